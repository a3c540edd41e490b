package acceptance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/emulator/acceptance/payroll"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

type cancelled struct {
	Outcome, State, SubState string
}

func (b bench) cancel(t *testing.T, txID string) (status int, c cancelled) {
	t.Helper()
	status, answer, err := b.Call(b.ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx/"+txID+"/cancel", nil)
	check(t, err, "cancel")
	if err := json.Unmarshal(answer, &c); err != nil && status < 300 {
		t.Fatalf("cancel: %s: %v", answer, err)
	}
	return status, c
}

func (b bench) wantCancel(t *testing.T, what, txID string, status int, want cancelled) {
	t.Helper()
	if code, got := b.cancel(t, txID); code != status || got != want {
		t.Errorf("%s: got %d %+v, want %d %+v", what, code, got, status, want)
	}
}

// wantPendingCancel cancels a transaction whose end is not known yet.
func (b bench) wantPendingCancel(t *testing.T, what, txID string) {
	t.Helper()
	if status, got := b.cancel(t, txID); status != http.StatusAccepted || got.Outcome != "PENDING" {
		t.Fatalf("%s: got %d %+v, want 202 PENDING", what, status, got)
	}
}

// Before allocation a cancel is definite at once. The next intents continue, and no nonce is used.
func TestCancelInTheQueue(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	b.inFlight(t, transfer(s, "first"))
	_, second := b.post(t, transfer(s, "second"))
	b.post(t, transfer(s, "third"))
	want := cancelled{"CANCELLED", "FAILED", "CANCELLED"}
	for range 2 { // a repetition is harmless
		b.wantCancel(t, "cancel in the queue", second, http.StatusOK, want)
	}
	b.Chain.StartMining()
	b.await(t, s, txmanager.Confirmed, 2)
	b.wantContiguous(t, s, 2)
}

// H28: after allocation a placeholder competes for the nonce, only placeholders
// are sent from then on, and the mined version decides at finality.
func TestH28CancelAfterAllocation(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	id := b.inFlight(t, transfer(s, "regretted"))
	b.wantPendingCancel(t, "cancel with a nonce", id)
	b.replaced(t, id, "PLACEHOLDER")
	b.Chain.StartMining()
	b.await(t, s, txmanager.Failed, 1)
	b.wantCancel(t, "cancel at the end", id, http.StatusOK, cancelled{"CANCELLED", "FAILED", "PLACEHOLDER"})
	_, after := b.post(t, transfer(s, "after"))
	b.await(t, s, txmanager.Confirmed, 1)
	b.wantFate(t, "the next", after, "CONFIRMED", 1)
	b.wantContiguous(t, s, 2)
}

// versions waits until the transaction has signed versions of these kinds.
func (b bench) versions(t *testing.T, txID string, kinds ...string) {
	t.Helper()
	var have []string
	err := poll(b.ctx, func() bool {
		err := b.DB.QueryRow(b.ctx, `select coalesce(array_agg(kind order by version), '{}') from tx_version where tx_id = $1`, txID).Scan(&have)
		return err == nil && len(have) >= len(kinds)
	})
	if err != nil {
		t.Fatalf("versions: got %v, want %v: %v", have, kinds, err)
	}
	if !slices.Equal(have[:len(kinds)], kinds) {
		t.Fatalf("versions: got %v, want %v", have, kinds)
	}
}

// replaced waits until the chain's pool holds a second version of this kind. Until then a block could
// still contain the original.
func (b bench) replaced(t *testing.T, txID, kind string) {
	t.Helper()
	b.versions(t, txID, "ORIGINAL", kind)
	b.reachesPool(t, txID, 2)
}

// reachesPool waits until the chain's pool holds this version of the transaction.
func (b bench) reachesPool(t *testing.T, txID string, version int) {
	t.Helper()
	b.until(t, fmt.Sprintf("version %d of %s did not reach the pool", version, txID), func() bool {
		var hash string
		if b.DB.QueryRow(b.ctx, `select tx_hash from tx_version where tx_id = $1 and version = $2`, txID, version).Scan(&hash) != nil {
			return false
		}
		_, _, err := b.Node.TransactionByHash(b.ctx, common.HexToHash(hash))
		return err == nil
	})
}

// H28: a cancel that arrives when the original is in a block signs nothing and answers EXECUTED.
func TestH28CancelTooLate(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	id := b.inFlight(t, transfer(s, "kept"))
	b.mine(t, 1)
	b.wantPendingCancel(t, "cancel before finality", id)
	b.Chain.StartMining()
	b.await(t, s, txmanager.Confirmed, 1)
	b.wantCancel(t, "cancel at the end", id, http.StatusOK, cancelled{"EXECUTED", "CONFIRMED", ""})
	b.versions(t, id, "ORIGINAL")
	b.wantContiguous(t, s, 1)
}

// A transaction that was mined and reverted was carried out: its nonce is consumed and its fee is
// paid. Cancel answers EXECUTED at any time and signs nothing.
func TestH28CancelOfARevertedTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	b.Chain.StopMining()
	reverts := transfer(s, "reverts")
	reverts["payload"] = map[string]any{"data": "0xfe", "gas": 100_000} // INVALID; gas that is given skips the estimate
	_, id := b.post(t, reverts)
	b.await(t, s, txmanager.Tracking, 1)
	b.mine(t, 1)
	b.wantPendingCancel(t, "cancel before finality", id)
	b.Chain.StartMining()
	b.await(t, s, txmanager.Failed, 1)
	want := cancelled{"EXECUTED", "FAILED", "REVERTED"}
	for range 2 { // a repetition is harmless
		b.wantCancel(t, "cancel at the end", id, http.StatusOK, want)
	}
	b.versions(t, id, "ORIGINAL")
	b.wantContiguous(t, s, 1)
}

// With nonce.placeholder=ask a cancel sends no placeholder. The transaction is STUCK until an operator
// decides, by name and with a reason.
func TestCancelAsksAnOperator(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: map[string]string{"FENCEPOST_NONCE_PLACEHOLDER": "ask"}})
	s := b.Submitters()[0]
	id := b.inFlight(t, transfer(s, "regretted"))
	b.cancel(t, id)
	b.await(t, s, txmanager.Stuck, 1)
	b.versions(t, id, "ORIGINAL")

	decide := func(account string, body map[string]any) answered {
		return b.call(t, account, http.MethodPost, "/admin/v1/tx/"+id+"/decide", body)
	}
	for name, c := range map[string]struct {
		account string
		body    map[string]any
		want    int
	}{
		"a caller":          {stack.CallerAccount, map[string]any{"action": "placeholder", "reason": "r"}, http.StatusForbidden},
		"no reason":         {stack.OperatorAccount, map[string]any{"action": "placeholder"}, http.StatusBadRequest},
		"an unknown action": {stack.OperatorAccount, map[string]any{"action": "forget", "reason": "r"}, http.StatusBadRequest},
	} {
		decide(c.account, c.body).want("decision with "+name, c.want)
	}
	decide(stack.OperatorAccount, map[string]any{"action": "placeholder", "reason": "the customer called"}).need("decide", http.StatusAccepted)
	b.replaced(t, id, "PLACEHOLDER")
	b.Chain.StartMining()
	b.await(t, s, txmanager.Failed, 1)
	b.wantContiguous(t, s, 1)
	record := value[string](t, b, `select string_agg(action || ' ' || by || ' ' || reason, '; ' order by id) from tx_decision`)
	const caller, operator = "email:" + stack.CallerAccount, "email:" + stack.OperatorAccount
	want := "CANCEL " + caller + " asked by " + caller + "; PLACEHOLDER " + operator + " the customer called"
	equal(t, "record", record, want)
}

// STUCK: a transaction without attempts left waits for a decision. An operator has it replaced, and
// the record names the replacement.
func TestStuckIsReplacedByDecision(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: map[string]string{
		"FENCEPOST_RESUBMIT_INTERVAL": "1s", "FENCEPOST_RESUBMIT_MAX_ATTEMPTS": "2",
	}})
	s := b.Submitters()[0]
	b.Chain.StopMining()
	_, id := b.post(t, transfer(s, "cheap"))
	b.await(t, s, txmanager.Stuck, 1)
	b.decide(t, id, "replace")
	b.replaced(t, id, "BUMP")
	b.Chain.StartMining()
	b.await(t, s, txmanager.Confirmed, 1)
	var replaced, first string
	if err := b.DB.QueryRow(b.ctx, `
		select m.replaced_by_hash, v.tx_hash from managed_tx m join tx_version v using (tx_id)
		 where v.version = 1 and m.tx_hash = m.replaced_by_hash`).Scan(&replaced, &first); err != nil || replaced == first {
		t.Errorf("replaced_by_hash: got %s, first version %s, %v; want the mined one", replaced, first, err)
	}
	b.wantContiguous(t, s, 1)
}

// A business' compiled-in code decides about STUCK transactions (Extensions.Stuck). Its placeholder is
// signed without an operator, and its decision is stored. A transaction that it does not decide stays
// STUCK.
func TestStuckIsDecidedByTheBusinessCode(t *testing.T) {
	t.Parallel()
	b := setup(t, withPayroll(t, stack.Options{Submitters: 2, Settings: map[string]string{
		"FENCEPOST_RESUBMIT_INTERVAL": "1s", "FENCEPOST_RESUBMIT_MAX_ATTEMPTS": "2",
	}}))
	decided, left := b.Submitters()[0], b.Submitters()[1]
	b.Chain.StopMining()
	_, id := b.post(t, transfer(decided, payroll.GiveUp+"1"))
	_, waits := b.post(t, transfer(left, "waits"))
	b.await(t, left, txmanager.Stuck, 1)
	b.replaced(t, id, "PLACEHOLDER")
	b.versions(t, waits, "ORIGINAL")
	b.wantState(t, "the one that is left alone", waits, "STUCK")
	b.Chain.StartMining()
	b.await(t, decided, txmanager.Failed, 1)
	record := value[string](t, b, `select string_agg(action || ' ' || by || ' ' || reason, '; ' order by id) from tx_decision`)
	if want := "PLACEHOLDER StuckResolution the business gives it up"; record != want {
		t.Errorf("record: got %q, want %q", record, want)
	}
	b.wantContiguous(t, decided, 1)
}
