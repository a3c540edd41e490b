package main

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/verify/torture/load"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// An answer from before a restore stays true on the chain; only the end's name may change.
func TestAfterRestoreTheChainMustAgree(t *testing.T) {
	t.Parallel()
	confirmed, cancelled := load.End{State: txmanager.Confirmed}, load.End{State: txmanager.Failed, Sub: txmanager.Cancelled}
	reverted, rejected := load.End{State: txmanager.Failed, Sub: txmanager.Reverted}, load.End{State: txmanager.Failed, Sub: txmanager.Rejected}
	recorded := load.End{State: txmanager.Confirmed, Sub: "RECORDED"}
	for name, c := range map[string]struct {
		answers             load.Answers
		now                 *load.End // nil: not stored
		succeeded, reverted int
		wrong               bool
	}{
		"confirmed, and recorded":           {load.Answers{End: &confirmed}, &recorded, 1, 0, false},
		"confirmed, and twice on the chain": {load.Answers{End: &confirmed}, &recorded, 2, 0, true},
		"confirmed, and not on the chain":   {load.Answers{End: &confirmed}, &recorded, 0, 0, true},
		"confirmed, and on record nowhere":  {load.Answers{End: &confirmed}, nil, 1, 0, true},
		"confirmed, and cancelled now":      {load.Answers{End: &confirmed}, &cancelled, 1, 0, true},
		"reverted, and reverted":            {load.Answers{End: &reverted}, &reverted, 0, 1, false},
		"rejected, and cancelled now":       {load.Answers{End: &rejected}, &cancelled, 0, 0, false},
		"cancelled, and lost":               {load.Answers{End: &cancelled}, nil, 0, 0, false},
		"cancelled, and carried out":        {load.Answers{End: &cancelled}, &confirmed, 1, 0, true},
		"cancelled, lost and carried out":   {load.Answers{End: &cancelled}, nil, 1, 0, true},
		"cancelled, and open":               {load.Answers{End: &cancelled}, &load.End{State: txmanager.Queued}, 0, 0, true},
		"REQUEST_RECORDED":                  {load.Answers{End: &recorded, Recorded: true}, &recorded, 1, 0, false},
		"REQUEST_RECORDED, and done twice":  {load.Answers{End: &recorded, Recorded: true}, &recorded, 2, 0, true},
		"REQUEST_RECORDED, and never done":  {load.Answers{End: &recorded, Recorded: true}, &recorded, 0, 0, true},
	} {
		l := lastAnswer{stored: c.now != nil}
		if c.now != nil {
			l.end = *c.now
		}
		if got := contradictsAcrossRestore(c.answers, l, mined{c.succeeded, c.reverted}); (got != "") != c.wrong {
			t.Errorf("%s: got %q, want a contradiction: %t", name, got, c.wrong)
		}
	}
}

// An answer may be lost only if it came after the start of a backup, from the database that the
// backup replaced or an earlier one.
func TestAnswersFromBeforeABackupMustHold(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	var l load.Ledger
	l.Restored(at(10))
	l.Restored(at(30))
	for name, c := range map[string]struct {
		answers load.Answers
		lost    bool
	}{
		"before the first backup":       {load.Answers{End: &load.End{}, EndAt: at(9)}, false},
		"after the first backup":        {load.Answers{End: &load.End{}, EndAt: at(11)}, true},
		"by the copy, before the other": {load.Answers{End: &load.End{}, EndAt: at(29), EndGeneration: 1}, false},
		"by the copy, after the other":  {load.Answers{End: &load.End{}, EndAt: at(31), EndGeneration: 1}, true},
		"by the last":                   {load.Answers{End: &load.End{}, EndAt: at(40), EndGeneration: 2}, false},
		"no end was told":               {load.Answers{EndAt: at(11)}, false},
	} {
		if got := l.EndMayBeLost(c.answers); got != c.lost {
			t.Errorf("%s: got may be lost %t, want %t", name, got, c.lost)
		}
	}
}

// Only state that the backup does not have is excused.
func TestOnlyStateMissingInTheBackupIsExcused(t *testing.T) {
	t.Parallel()
	const a, b = "01a20686-17ce-728d-87b6-27905b841302", "01a2067f-7e5a-7c69-ab98-133478f0c6d3"
	m := newStoredState()
	m.addLost(&storedState{hashes: map[string]bool{"1": true, "2": true}, published: map[string]string{a + "-queued-1": "s", b + "-queued-1": "s"}},
		&storedState{hashes: map[string]bool{"1": true}, published: map[string]string{a + "-queued-1": "s"}})
	if m.hashes["1"] || !m.hashes["2"] || m.lostEvents(a) || !m.lostEvents(b) || len(m.published) != 1 {
		t.Errorf("got %+v, want only what the backup has not", m)
	}
}
