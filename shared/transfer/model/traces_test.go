package model

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/modelcheck"
)

// ordinary is a budget with one of each fault, and with two of those that need two.
var ordinary = Budget{Workers: 2, Crashes: 1, Timeouts: 1, Losses: 1, Duplicates: 1, Cuts: 1, Changes: 1, Resolves: 1, Cancels: 1, Expiries: 1}

// requireViolation requires a report of a run that ends in want and contains the given events in
// that order.
func requireViolation(t *testing.T, got modelcheck.Report, want string, events ...string) {
	t.Helper()
	t.Log(got)
	if got.Violation != want {
		t.Errorf("without the rule: got %q, want %q", got.Violation, want)
	}
	rest := strings.Join(got.Trace, "\n")
	for _, e := range events {
		_, after, ok := strings.Cut(rest, e)
		if !ok {
			t.Errorf("trace: got no %q where it should be, want it in\n%s", e, got)
			break
		}
		rest = after
	}
}

// requireNone requires a complete search without a violation.
func requireNone(t *testing.T, got modelcheck.Report) {
	t.Helper()
	t.Log(got)
	if got.Violation != "" || !got.Complete {
		t.Errorf("got %q, complete %t, want nothing wrong, complete", got.Violation, got.Complete)
	}
}

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
			requireNone(t, Check(All(), b))
		})
	}
}

// H2: a ledger that stores only the req_id, and answers a repeat with success, creates money.
func TestH02AnswersKeyedByReqIDCreateMoney(t *testing.T) {
	t.Parallel()
	rules := rulesWithout(func(r *Rules) { r.KeyedByOp = false })
	requireViolation(t, Check(rules, Budget{Workers: 1, Losses: 1, Timeouts: 1, Changes: 1}), "money from nothing",
		"withdraw is carried out: refused", "withdraw is carried out: success", "deposit is carried out: success")
	// A refund returns nothing either: the withdrawal has stored the req_id.
	requireViolation(t, Check(rules, Budget{Workers: 1, Changes: 1}), "ROLLED_BACK without its effects", "deposit is carried out: refused", "refund is carried out: success")
}

// H3a: a refund that can be refused leaves the money in flight permanently.
func TestH03RefusedRefundLeavesMoneyInFlight(t *testing.T) {
	t.Parallel()
	requireViolation(t, Check(rulesWithout(func(r *Rules) { r.RefundNeverRefused = false }), Budget{Workers: 1, Changes: Always}), modelcheck.NoEnd,
		"deposit is carried out: refused", "refund is carried out: refused")
}

// H3b: a refusal that is not stored lets a late duplicate apply after FAILED.
func TestH03UnstoredRefusalLetsDuplicateApply(t *testing.T) {
	t.Parallel()
	rules := rulesWithout(func(r *Rules) { r.StoreRefusals = false })
	requireViolation(t, Check(rules, Budget{Workers: 2, Duplicates: 1, Changes: 2}), "an effect under FAILED",
		"withdraw is carried out: refused, and will arrive again", "to FAILED", "withdraw is carried out: success; nobody waits")
}

// H15: a worker assumes that a commit without an answer happened. It did not, and the user
// cancels.
func TestH15CASBelievedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	requireViolation(t, Check(rulesWithout(func(r *Rules) { r.ReadBack = false }), Budget{Workers: 1, Cuts: 1, Cancels: 1}), "an effect under FAILED",
		"no answer, and it happened: false", "withdraw is carried out: success", "an operator cancels")
}

// A time-out that counts as a refusal doubles the money.
func TestUnknownTakenForRefused(t *testing.T) {
	t.Parallel()
	rules := rulesWithout(func(r *Rules) { r.UnknownStays = false })
	requireViolation(t, Check(rules, Budget{Workers: 1, Timeouts: 1}), "an effect under FAILED",
		"takes the withdraw for refused", "withdraw is carried out: success")
	// A credit whose answer is lost is refunded, too.
	requireViolation(t, Check(rules, Budget{Workers: 1, Losses: 1}), "an effect under FAILED", "withdraw is carried out: success; the answer is lost")
}

func TestCalledBeforeItIsStored(t *testing.T) {
	t.Parallel()
	requireViolation(t, Check(rulesWithout(func(r *Rules) { r.PersistFirst = false }), Budget{Workers: 1, Cancels: 1}), "an effect under FAILED",
		"a worker that sees INIT sends withdraw", "an operator cancels")
}

func TestWriteWithoutCompareChangesTerminalState(t *testing.T) {
	t.Parallel()
	requireViolation(t, Check(rulesWithout(func(r *Rules) { r.Compare = false }), Budget{Workers: 2, Cancels: 1}), "a final state changed",
		"a worker loads INIT", "an operator cancels", "a worker writes INIT to SOURCE_PENDING")
}

func TestRepeatedCallAppliedTwice(t *testing.T) {
	t.Parallel()
	requireViolation(t, Check(rulesWithout(func(r *Rules) { r.Once = false }), Budget{Workers: 1, Duplicates: 1}), "an effect twice",
		"withdraw is carried out: success, and will arrive again", "withdraw is carried out: success")
}

// A refusal that a resolve does not store cannot stop a call that is on the wire.
func TestUnstoredResolveLetsCallApply(t *testing.T) {
	t.Parallel()
	requireViolation(t, Check(rulesWithout(func(r *Rules) { r.ResolveStores = false }), Budget{Workers: 1, Timeouts: 1, Resolves: 1}), "an effect under FAILED",
		"an operator resolves the withdraw: refused", "withdraw is carried out: success")
}
