package main

import (
	"testing"

	"github.com/fencepost/fencepost/emulator/torture/load"
	"github.com/fencepost/fencepost/shared/nonce"
)

// What was told before a restore stays true on the chain; only its name may change.
func TestAcrossRestoreTheChainIsAsked(t *testing.T) {
	t.Parallel()
	confirmed, cancelled := load.End{State: nonce.Confirmed}, load.End{State: nonce.Failed, Sub: nonce.Cancelled}
	reverted, rejected := load.End{State: nonce.Failed, Sub: nonce.Reverted}, load.End{State: nonce.Failed, Sub: nonce.Rejected}
	recorded := load.End{State: nonce.Confirmed, Sub: "RECORDED"}
	for name, c := range map[string]struct {
		told                load.Told
		now                 *load.End // nil: not stored
		succeeded, reverted int
		wrong               bool
	}{
		"confirmed, and recorded":           {load.Told{End: &confirmed}, &recorded, 1, 0, false},
		"confirmed, and twice on the chain": {load.Told{End: &confirmed}, &recorded, 2, 0, true},
		"confirmed, and not on the chain":   {load.Told{End: &confirmed}, &recorded, 0, 0, true},
		"confirmed, and on record nowhere":  {load.Told{End: &confirmed}, nil, 1, 0, true},
		"confirmed, and cancelled now":      {load.Told{End: &confirmed}, &cancelled, 1, 0, true},
		"reverted, and reverted":            {load.Told{End: &reverted}, &reverted, 0, 1, false},
		"rejected, and cancelled now":       {load.Told{End: &rejected}, &cancelled, 0, 0, false},
		"cancelled, and lost":               {load.Told{End: &cancelled}, nil, 0, 0, false},
		"cancelled, and carried out":        {load.Told{End: &cancelled}, &confirmed, 1, 0, true},
		"cancelled, lost and carried out":   {load.Told{End: &cancelled}, nil, 1, 0, true},
		"cancelled, and open":               {load.Told{End: &cancelled}, &load.End{State: nonce.Queued}, 0, 0, true},
		"REQUEST_RECORDED":                  {load.Told{End: &recorded, Recorded: true}, &recorded, 1, 0, false},
		"REQUEST_RECORDED, and done twice":  {load.Told{End: &recorded, Recorded: true}, &recorded, 2, 0, true},
		"REQUEST_RECORDED, and never done":  {load.Told{End: &recorded, Recorded: true}, &recorded, 0, 0, true},
	} {
		l := last{stored: c.now != nil}
		if c.now != nil {
			l.end = *c.now
		}
		if got := acrossRestore(c.told, l, c.succeeded, c.reverted); (got != "") != c.wrong {
			t.Errorf("%s: got %q, want a contradiction: %t", name, got, c.wrong)
		}
	}
}
