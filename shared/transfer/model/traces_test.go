package model

import (
	"testing"

	"github.com/fencepost/fencepost/shared/modelcheck"
)

// ordinary is a budget with one of each fault, and with two of those that need two.
var ordinary = Budget{Workers: 2, Crashes: 1, Timeouts: 1, Losses: 1, Duplicates: 1, Cuts: 1, Changes: 1, Resolves: 1, Cancels: 1, Expiries: 1}

func rulesWithout(change func(*Rules)) Rules {
	r := All()
	change(&r)
	return r
}

// With all rules no property is violated: with one of each fault at once, and with two of those
// that interact.
func TestTransfersHold(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]Budget{
		"one of everything":  ordinary,
		"late and twice":     {Workers: 2, Timeouts: 2, Losses: 1, Duplicates: 2, Changes: 2, Resolves: 1},
		"cuts and crashes":   {Workers: 2, Crashes: 2, Timeouts: 1, Cuts: 2, Cancels: 1, Expiries: 1},
		"two who resolve":    {Workers: 2, Timeouts: 2, Duplicates: 1, Cuts: 1, Changes: 1, Resolves: 2},
		"one worker, faults": {Workers: 1, Crashes: 1, Timeouts: 1, Losses: 1, Duplicates: 2, Cuts: 2, Changes: Always, Resolves: 1, Cancels: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Check(All(), b).RequireHolds(t)
		})
	}
}

// H2: a ledger that stores only the req_id, and answers a repeat with success, creates money.
func TestH02AnswersKeyedByReqIDCreateMoney(t *testing.T) {
	t.Parallel()
	rules := rulesWithout(func(r *Rules) { r.KeyedByOp = false })
	Check(rules, Budget{Workers: 1, Losses: 1, Timeouts: 1, Changes: 1}).RequireViolation(t, "money from nothing",
		"withdraw is carried out: refused", "withdraw is carried out: success", "deposit is carried out: success")
	// A refund returns nothing either: the withdrawal has stored the req_id.
	Check(rules, Budget{Workers: 1, Changes: 1}).RequireViolation(t, "ROLLED_BACK without its effects", "deposit is carried out: refused", "refund is carried out: success")
}

// H3a: a refund that can be refused leaves the money in flight permanently.
func TestH03RefusedRefundLeavesMoneyInFlight(t *testing.T) {
	t.Parallel()
	Check(rulesWithout(func(r *Rules) { r.RefundNeverRefused = false }), Budget{Workers: 1, Changes: Always}).RequireViolation(t, modelcheck.NoEnd,
		"deposit is carried out: refused", "refund is carried out: refused")
}

// H3b: a refusal that is not stored lets a late duplicate apply after FAILED.
func TestH03UnstoredRefusalLetsDuplicateApply(t *testing.T) {
	t.Parallel()
	rules := rulesWithout(func(r *Rules) { r.StoreRefusals = false })
	Check(rules, Budget{Workers: 2, Duplicates: 1, Changes: 2}).RequireViolation(t, "an effect under FAILED",
		"withdraw is carried out: refused, and will arrive again", "to FAILED", "withdraw is carried out: success; nobody waits")
}

// H15: a worker assumes that a commit without an answer happened. It did not, and the user
// cancels.
func TestH15CASBelievedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	Check(rulesWithout(func(r *Rules) { r.ReadBack = false }), Budget{Workers: 1, Cuts: 1, Cancels: 1}).RequireViolation(t, "an effect under FAILED",
		"no answer, and it happened: false", "withdraw is carried out: success", "an operator cancels")
}

// A time-out that counts as a refusal doubles the money.
func TestUnknownTakenForRefused(t *testing.T) {
	t.Parallel()
	rules := rulesWithout(func(r *Rules) { r.UnknownStays = false })
	Check(rules, Budget{Workers: 1, Timeouts: 1}).RequireViolation(t, "an effect under FAILED",
		"takes the withdraw for refused", "withdraw is carried out: success")
	// A credit whose answer is lost is refunded, too.
	Check(rules, Budget{Workers: 1, Losses: 1}).RequireViolation(t, "an effect under FAILED", "withdraw is carried out: success; the answer is lost")
}

func TestCalledBeforeItIsStored(t *testing.T) {
	t.Parallel()
	Check(rulesWithout(func(r *Rules) { r.PersistFirst = false }), Budget{Workers: 1, Cancels: 1}).RequireViolation(t, "an effect under FAILED",
		"a worker that sees INIT sends withdraw", "an operator cancels")
}

func TestWriteWithoutCompareChangesTerminalState(t *testing.T) {
	t.Parallel()
	Check(rulesWithout(func(r *Rules) { r.Compare = false }), Budget{Workers: 2, Cancels: 1}).RequireViolation(t, "a final state changed",
		"a worker loads INIT", "an operator cancels", "a worker writes INIT to SOURCE_PENDING")
}

func TestRepeatedCallAppliedTwice(t *testing.T) {
	t.Parallel()
	Check(rulesWithout(func(r *Rules) { r.Once = false }), Budget{Workers: 1, Duplicates: 1}).RequireViolation(t, "an effect twice",
		"withdraw is carried out: success, and will arrive again", "withdraw is carried out: success")
}

// A refusal that a resolve does not store cannot stop a call that is on the wire.
func TestUnstoredResolveLetsCallApply(t *testing.T) {
	t.Parallel()
	Check(rulesWithout(func(r *Rules) { r.ResolveStores = false }), Budget{Workers: 1, Timeouts: 1, Resolves: 1}).RequireViolation(t, "an effect under FAILED",
		"an operator resolves the withdraw: refused", "withdraw is carried out: success")
}
