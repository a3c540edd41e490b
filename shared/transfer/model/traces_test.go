package model

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/modelcheck"
)

// ordinary is a budget with one of everything, two of what two are needed for.
var ordinary = Budget{Workers: 2, Crashes: 1, Timeouts: 1, Losses: 1, Duplicates: 1, Cuts: 1, Changes: 1, Resolves: 1, Cancels: 1, Expiries: 1}

// breaks asserts that the report is of a run that ends in want, with all the given
// events in it in that order.
func breaks(t *testing.T, got modelcheck.Report, want string, events ...string) {
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

// holds asserts that nothing is wrong, and that every state was met.
func holds(t *testing.T, got modelcheck.Report) {
	t.Helper()
	t.Log(got)
	if got.Violation != "" || !got.Complete {
		t.Errorf("got %q, complete %t, want nothing wrong, complete", got.Violation, got.Complete)
	}
}

func less(leaveOut func(*Rules)) Rules {
	r := All()
	leaveOut(&r)
	return r
}

// Under all rules nothing is wrong with one of each fault at once, nor with two of
// those that make trouble together.
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
			holds(t, Check(All(), b))
		})
	}
}

// H2: a ledger that keeps its processed set by req_id, and answers a repeat with
// success, makes money.
func TestH02ProcessedByReqIDAlone(t *testing.T) {
	t.Parallel()
	rules := less(func(r *Rules) { r.KeyedByOp = false })
	breaks(t, Check(rules, Budget{Workers: 1, Losses: 1, Timeouts: 1, Changes: 1}), "money from nothing",
		"withdraw is carried out: refused", "withdraw is carried out: success", "deposit is carried out: success")
	// Nor does a refund give anything back: the withdrawal has processed the req_id.
	breaks(t, Check(rules, Budget{Workers: 1, Changes: 1}), "ROLLED_BACK without its effects", "deposit is carried out: refused", "refund is carried out: success")
}

// H3a: a refund that may be refused leaves the money in flight for ever.
func TestH03RefundRefused(t *testing.T) {
	t.Parallel()
	breaks(t, Check(less(func(r *Rules) { r.RefundNeverRefused = false }), Budget{Workers: 1, Changes: Always}), modelcheck.NoEnd,
		"deposit is carried out: refused", "refund is carried out: refused")
}

// H3b: a refusal that is not stored lets a late duplicate apply under FAILED.
func TestH03RefusalNotStored(t *testing.T) {
	t.Parallel()
	rules := less(func(r *Rules) { r.StoreRefusals = false })
	breaks(t, Check(rules, Budget{Workers: 2, Duplicates: 1, Changes: 2}), "an effect under FAILED",
		"withdraw is carried out: refused, and will arrive again", "to FAILED", "withdraw is carried out: success; nobody waits")
}

// H15: a commit that is believed without an answer is not there when the user
// cancels.
func TestH15CASBelievedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	breaks(t, Check(less(func(r *Rules) { r.ReadBack = false }), Budget{Workers: 1, Cuts: 1, Cancels: 1}), "an effect under FAILED",
		"no answer, and it happened: false", "withdraw is carried out: success", "an operator cancels")
}

// A time-out that is taken for a refusal doubles the money.
func TestUnknownTakenForRefused(t *testing.T) {
	t.Parallel()
	rules := less(func(r *Rules) { r.UnknownStays = false })
	breaks(t, Check(rules, Budget{Workers: 1, Timeouts: 1}), "an effect under FAILED",
		"takes the withdraw for refused", "withdraw is carried out: success")
	// A credit whose answer is lost is given back, too.
	breaks(t, Check(rules, Budget{Workers: 1, Losses: 1}), "an effect under FAILED", "withdraw is carried out: success; the answer is lost")
}

func TestCalledBeforeItIsStored(t *testing.T) {
	t.Parallel()
	breaks(t, Check(less(func(r *Rules) { r.PersistFirst = false }), Budget{Workers: 1, Cancels: 1}), "an effect under FAILED",
		"a worker that sees INIT sends withdraw", "an operator cancels")
}

func TestWrittenWithoutComparing(t *testing.T) {
	t.Parallel()
	breaks(t, Check(less(func(r *Rules) { r.Compare = false }), Budget{Workers: 2, Cancels: 1}), "a final state changed",
		"a worker loads INIT", "an operator cancels", "a worker writes INIT to SOURCE_PENDING")
}

func TestDoneAtEachCall(t *testing.T) {
	t.Parallel()
	breaks(t, Check(less(func(r *Rules) { r.Once = false }), Budget{Workers: 1, Duplicates: 1}), "an effect twice",
		"withdraw is carried out: success, and will arrive again", "withdraw is carried out: success")
}

// An operator's word that stands nowhere does not stop a call that is on its way.
func TestResolvedWithoutBeingStored(t *testing.T) {
	t.Parallel()
	breaks(t, Check(less(func(r *Rules) { r.ResolveStores = false }), Budget{Workers: 1, Timeouts: 1, Resolves: 1}), "an effect under FAILED",
		"an operator resolves the withdraw: refused", "withdraw is carried out: success")
}
