package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/emulator/verify/torture/load"
)

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
	kept := &storedState{
		hashes: map[string]bool{"1": true}, published: map[string]string{a + "-queued-1": "s"},
		transfers: map[string]bool{"old": true, "went on": true}, payouts: map[string]payout{"old": {Withdrawn: 1}, "went on": {}},
	}
	m.addLost(&storedState{
		hashes: map[string]bool{"1": true, "2": true}, published: map[string]string{a + "-queued-1": "s", b + "-queued-1": "s"},
		transfers: map[string]bool{"old": true, "new": true}, payouts: map[string]payout{"old": {Withdrawn: 1}, "went on": {Withdrawn: 1}, "new": {}},
	}, kept)
	if m.lostEvents(a) || !m.lostEvents(b) {
		t.Errorf("lost events: got those of %v, want those of %s", m.published, b)
	}
	want := &storedState{
		hashes: map[string]bool{"2": true}, published: map[string]string{b + "-queued-1": "s"}, open: map[string]bool{},
		transfers: map[string]bool{"new": true}, payouts: map[string]payout{"went on": {Withdrawn: 1}, "new": {}},
	}
	if diff := cmp.Diff(want, m, cmp.AllowUnexported(storedState{})); diff != "" {
		t.Errorf("what the backup has not (-want +got):\n%s", diff)
	}
}
