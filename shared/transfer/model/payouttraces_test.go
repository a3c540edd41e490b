package model

import (
	"testing"

	"github.com/fencepost/fencepost/shared/modelcheck"
)

func payoutRulesWithout(change func(*PayoutRules)) PayoutRules {
	r := AllPayout()
	change(&r)
	return r
}

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

// (a) A create is refused in PROTECT while another create is still on the wire.
func TestH01RefusedCreateReadAsRefusalPaysAndRefunds(t *testing.T) {
	t.Parallel()
	CheckPayout(payoutRulesWithout(func(r *PayoutRules) { r.RowDecides = false }), PayoutBudget{Workers: 2, Protects: 2}).RequireViolation(t, "paid and given back",
		"sends create", "sends create", "refused: PROTECT", "records: refused", "PROTECT: false", "final: CONFIRMED")
}

// (b) Each attempt reads the submitter from the settings.
func TestH01SubmitterFromSettingsPaysTwice(t *testing.T) {
	t.Parallel()
	CheckPayout(payoutRulesWithout(func(r *PayoutRules) { r.SubmitterFixed = false }), PayoutBudget{Workers: 2, Deploys: 1}).RequireViolation(t, "paid twice",
		"a deploy names another submitter", "sends create, submitter 2")
}

// (c) A new build renders the payload differently. If the conflict is read as a refusal, the
// payout is paid and refunded; if it is read as unknown, the payout never ends.
func TestH01PayloadRenderedAgainPaysAndRefunds(t *testing.T) {
	t.Parallel()
	rules := payoutRulesWithout(func(r *PayoutRules) { r.PayloadFixed = false })
	budget := PayoutBudget{Workers: 1, Timeouts: 1, Deploys: 1}
	CheckPayout(rules, budget).RequireViolation(t, modelcheck.NoEnd, "a deploy renders payloads otherwise")
	rules.RowDecides = false
	CheckPayout(rules, budget).RequireViolation(t, "paid and given back", "final: CONFIRMED", "409", "records: refused")
}

// (d) A revert is read before it is final, and a reorg executes the transaction again.
func TestH01NonFinalReceiptPaysAndRefunds(t *testing.T) {
	t.Parallel()
	budget := PayoutBudget{Workers: 1, Reorgs: 1}
	CheckPayout(payoutRulesWithout(func(r *PayoutRules) { r.FinalRefusal = false }), budget).RequireViolation(t, "paid and given back",
		"mined, and reverted", "records: refused", "a reorg takes it out again", "final: CONFIRMED")
	CheckPayout(payoutRulesWithout(func(r *PayoutRules) { r.FinalSuccess = false }), budget).RequireViolation(t, "COMMITTED, and not paid",
		"mined", "records: success", "a reorg takes it out again", "final: FAILED")
}

// (e) A payout is cancelled without a tombstone: a create on the wire is still carried out.
func TestH01CancelWithoutTombstonePaysAndRefunds(t *testing.T) {
	t.Parallel()
	CheckPayout(payoutRulesWithout(func(r *PayoutRules) { r.Tombstone = false }), PayoutBudget{Workers: 2, Cancels: 1}).RequireViolation(t, "paid and given back",
		"sends create", "a cancel, submitter 1: there is none", "records: refused", "final: CONFIRMED")
}
