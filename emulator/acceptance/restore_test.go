package acceptance

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// restore replaces the database by the backup and marks it with the migration job, as the runbook does
// for an unnoticed restore.
func (b bench) restore(t *testing.T) {
	t.Helper()
	b.PutBack(t)
	check(t, migrations.Distrust(b.ctx, b.Database, "restored"))
}

// again repeats an API call while another invocation has the lease or a connection was cut.
func (b bench) again(t *testing.T, account, method, path string, body any) (status int, text string) {
	t.Helper()
	call := func() answered { return b.call(t, account, method, path, body) }
	return b.repeat(t, path, call, func(a answered) bool { return a.status >= 500 })
}

// operates is again for a call that an operator must make.
func (b bench) operates(t *testing.T, path string, body any) {
	t.Helper()
	if status, text := b.again(t, stack.OperatorAccount, http.MethodPost, path, body); status >= 300 {
		t.Fatalf("%s: got %d %s", path, status, text)
	}
}

// worth returns a transfer of this many wei, by which the chain distinguishes it.
func worth(s txmanager.Submitter, requestID string, wei int) map[string]any {
	in := transfer(s, requestID)
	in["payload"].(map[string]any)["value"] = fmt.Sprint(wei)
	return in
}

// minedWorth counts the chain's transactions to the tests' recipient, by value.
func (b bench) minedWorth(t *testing.T) map[int64]int {
	t.Helper()
	mined := make(map[int64]int)
	for _, tx := range b.transactions(t, b.Node) {
		if to := tx.To(); to != nil && *to == common.HexToAddress(cafe0) {
			mined[tx.Value().Int64()]++
		}
	}
	return mined
}

// After a restore nothing that was cancelled after the backup runs. A new post of a caller continues.
// A repeated post of a lost request that had run is held until an operator has matched it, and never
// runs a second time.
func TestRestoreHoldsWhatMayHaveRunOrWasCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	busy, still := b.Submitters()[0], b.Submitters()[1]
	reason := map[string]any{"reason": "the restore of the test"}
	b.Chain.StopMining()
	for _, s := range []txmanager.Submitter{busy, still} { // the first holds up the queue
		b.post(t, worth(s, "first", 100))
		b.await(t, s, txmanager.Tracking, 1)
	}
	_, gone := b.post(t, worth(busy, "cancelled later", 101))
	_, ran := b.post(t, worth(busy, "ran later", 102))
	_, wanted := b.post(t, worth(still, "wanted", 103))
	_, letGo := b.post(t, worth(still, "let go", 104))
	_, unwanted := b.post(t, worth(still, "not wanted", 105))
	b.BackUp(t)

	_, text := b.again(t, stack.CallerAccount, http.MethodPost, "/api/v1/tx/"+gone+"/cancel", nil)
	says(t, "cancel after the backup", text, `"CANCELLED"`)
	b.operates(t, "/admin/v1/submitters/"+string(still)+"/suspend", reason)
	b.Chain.StartMining()
	b.again(t, stack.CallerAccount, http.MethodPost, "/api/v1/tx", worth(busy, "lost", 106))
	b.await(t, busy, txmanager.Confirmed, 3)
	b.restore(t)

	b.until(t, "no sweep succeeded", func() bool { return b.RunSweep(b.ctx) == nil })
	b.mine(t, 70)
	b.operates(t, "/admin/v1/database/accept", reason)
	for _, id := range []string{gone, ran, wanted, letGo, unwanted} {
		_, text := b.again(t, stack.CallerAccount, http.MethodGet, "/api/v1/tx/"+id, nil)
		says(t, id+" after the acceptance", text, `"subState":"HELD"`)
	}
	// The operators' acts after the backup, from the log, before any release.
	_, text = b.again(t, stack.OperatorAccount, http.MethodPost, "/api/v1/tx/"+gone+"/cancel", nil)
	says(t, "cancel again", text, `"CANCELLED"`)
	b.operates(t, "/admin/v1/submitters/"+string(still)+"/suspend", reason)
	for _, s := range []txmanager.Submitter{busy, still} { // by the sweep: the restore lost the tasks
		b.until(t, fmt.Sprintf("%s: what was in flight in the copy is not CONFIRMED", s), func() bool {
			_ = b.RunSweep(b.ctx)
			return b.count(`select count(*) from managed_tx where submitter = $1 and state = 'CONFIRMED'`, s) >= 1
		})
	}
	b.until(t, "the foreign transactions were never read", func() bool {
		_ = b.RunSweep(b.ctx)
		return b.count(`select count(*) from foreign_transaction where submitter = $1`, busy) == 2
	})
	for s, more := range map[txmanager.Submitter]map[string]any{
		busy:  {"mode": "resync", "count": 3, "requests": map[string]string{"1": "ran later"}},
		still: {"mode": "resume"},
	} {
		incident := b.inProtect(t, s)
		more["incident"], more["reason"] = incident, "reconciled"
		b.operates(t, "/admin/v1/submitters/"+string(s)+"/release", more)
	}
	b.operates(t, "/admin/v1/submitters/"+string(still)+"/resume", reason)

	status, lost := b.post(t, worth(busy, "lost", 106))
	equal(t, "the lost request, posted again", status, http.StatusAccepted)
	_, behind := b.post(t, worth(busy, "behind", 107))
	b.confirmed(t, behind)
	if _, r := b.ask(t, stack.CallerAccount, lost); r.State != "QUEUED" || r.SubState == nil || *r.SubState != "HELD" {
		t.Errorf("the lost request: got %+v, want it HELD", r)
	}
	b.operates(t, "/admin/v1/submitters/"+string(busy)+"/foreign/match", map[string]any{"nonce": 2, "txId": lost, "reason": "the caller's log"})
	if _, r := b.ask(t, stack.CallerAccount, lost); r.State != "CONFIRMED" || r.SubState == nil || *r.SubState != "RECORDED" {
		t.Errorf("the lost request, matched: got %+v, want CONFIRMED/RECORDED", r)
	}

	b.wantPost(t, "posted again", worth(still, "wanted", 103), http.StatusOK, wanted)
	b.confirmed(t, wanted)
	b.operates(t, "/admin/v1/tx/"+letGo+"/proceed", reason)
	b.confirmed(t, letGo)
	if _, c := b.cancel(t, unwanted); c.Outcome != "CANCELLED" {
		t.Errorf("cancel of what is held: got %+v", c)
	}
	check(t, b.RunSweep(b.ctx))
	_, last := b.post(t, worth(still, "last", 108)) // nothing before it in the queue is left
	b.confirmed(t, last)
	same(t, "how often the chain has the intent of so many wei", b.minedWorth(t), map[int64]int{100: 2, 102: 1, 103: 1, 104: 1, 106: 1, 107: 1, 108: 1})
}

func (b bench) confirmed(t *testing.T, txID string) {
	t.Helper()
	b.becomes(t, txID, "CONFIRMED", func(r record) bool { return r.State == "CONFIRMED" })
	if status, r := b.ask(t, stack.CallerAccount, txID); status != http.StatusOK || r.State != "CONFIRMED" {
		t.Errorf("%s, asked for by its caller: got %d %+v, want it CONFIRMED", txID, status, r)
	}
}
