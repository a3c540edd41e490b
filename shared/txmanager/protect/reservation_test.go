package protect

import (
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// An owner's bytes are not replaced by code or by a higher fee. A lost nonce of an owner needs a
// request's name: the owner may have sent the consuming transaction.
func TestOwnersBytesAreNotReplaced(t *testing.T) {
	t.Parallel()
	txtest.Frozen(t, func(t *testing.T) {
		x := txtest.UsedBy(txtest.Stuck(5))
		if reason := rulesOf(3).RefuseAction(x, txmanager.ActionReplace); reason == "" {
			t.Error("replace by code: got it allowed")
		}
		x.RequestedAction = txmanager.ActionReplace
		w := txtest.StateOf(1, 6, x)
		if jobs, _ := rulesOf(3).PlanSignatures(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), nil); len(jobs) != 0 {
			t.Errorf("replace by order: got %+v signed", jobs)
		}
		held := txtest.StateOf(1, 6, txtest.Lent(5, txmanager.Reserved, time.Minute))
		tn := &incident{Session: &session.Session{Service: &session.Service{Rules: rulesOf(3), Timing: testTiming}, State: held}}
		tn.State.Lease = lease.New(string(txtest.Alice), "a/1", 1, time.Now(), time.Hour)
		e := evidence{lost: []uint64{5}, foreign: map[uint64]txmanager.ForeignTransaction{5: {Nonce: 5}}}
		tn.Chain = txtest.Reader(nil)
		_, err := tn.pairRequests(&txmanager.ReleaseRequest{Count: 6}, e, nil)
		var foreign txmanager.UnnamedNonceError
		if !errors.As(err, &foreign) || foreign.Nonce != 5 {
			t.Errorf("a lost nonce that nobody named: got %v, want it refused", err)
		}
	})
}
