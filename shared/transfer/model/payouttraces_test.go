package model

import (
	"testing"

	"github.com/fencepost/fencepost/shared/modelcheck"
)

// H1: a payout is made once or refunded once if all rules hold. The row fixes the submitter and
// the payload, only the managed transaction's row decides, and a cancel leaves a tombstone.
func TestH01PayoutsHold(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]PayoutBudget{
		"one of everything": {Workers: 2, Crashes: 1, Timeouts: 1, Duplicates: 1, Protects: 1, Deploys: 1, Reorgs: 1, Cancels: 1},
		"protect, give up":  {Workers: 2, Timeouts: 2, Duplicates: 1, Protects: 2, Cancels: 2},
		"deploys, reorgs":   {Workers: 2, Crashes: 1, Timeouts: 1, Deploys: 2, Reorgs: 2, Cancels: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			CheckPayout(AllPayout(), b).RequireHolds(t)
		})
	}
}

// H1: without one of its rules a payout is paid twice, paid and refunded, or never ends.
func TestH01EachRuleOfPayoutsIsNeeded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		without   func(*PayoutRules)
		budget    PayoutBudget
		violation string
		steps     []string // of the trace, in their order
	}{
		"a: a create is refused in PROTECT while another is on the wire": {func(r *PayoutRules) { r.RowDecides = false },
			PayoutBudget{Workers: 2, Protects: 2}, "paid and given back", []string{"sends create", "sends create", "refused: PROTECT", "records: refused", "PROTECT: false", "final: CONFIRMED"}},
		"b: each attempt reads the submitter from the settings": {func(r *PayoutRules) { r.SubmitterFixed = false },
			PayoutBudget{Workers: 2, Deploys: 1}, "paid twice", []string{"a deploy names another submitter", "sends create, submitter 2"}},
		"c: a new build renders the payload differently, and the conflict is unknown": {func(r *PayoutRules) { r.PayloadFixed = false },
			PayoutBudget{Workers: 1, Timeouts: 1, Deploys: 1}, modelcheck.NoEnd, []string{"a deploy renders payloads otherwise"}},
		"c: the same, and the conflict is read as a refusal": {func(r *PayoutRules) { r.PayloadFixed, r.RowDecides = false, false },
			PayoutBudget{Workers: 1, Timeouts: 1, Deploys: 1}, "paid and given back", []string{"final: CONFIRMED", "409", "records: refused"}},
		"d: a revert is read before it is final, and a reorg executes the transaction again": {func(r *PayoutRules) { r.FinalRefusal = false },
			PayoutBudget{Workers: 1, Reorgs: 1}, "paid and given back", []string{"mined, and reverted", "records: refused", "a reorg takes it out again", "final: CONFIRMED"}},
		"d: a success is read before it is final": {func(r *PayoutRules) { r.FinalSuccess = false },
			PayoutBudget{Workers: 1, Reorgs: 1}, "COMMITTED, and not paid", []string{"mined", "records: success", "a reorg takes it out again", "final: FAILED"}},
		"e: a cancel leaves no tombstone, and a create on the wire is still carried out": {func(r *PayoutRules) { r.Tombstone = false },
			PayoutBudget{Workers: 2, Cancels: 1}, "paid and given back", []string{"sends create", "a cancel, submitter 1: there is none", "records: refused", "final: CONFIRMED"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := AllPayout()
			c.without(&rules)
			CheckPayout(rules, c.budget).RequireViolation(t, c.violation, c.steps...)
		})
	}
}
