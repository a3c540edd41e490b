package model

import (
	"testing"

	"github.com/fencepost/fencepost/shared/modelcheck"
)

func lessPayout(leaveOut func(*PayoutRules)) PayoutRules {
	r := AllPayout()
	leaveOut(&r)
	return r
}

// H1: with the submitter and the payload on the row, judged by the managed
// transaction's row alone, and with a tombstone for what was given up, a payout is
// made once or given back once.
func TestH01PayoutsHold(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]PayoutBudget{
		"one of everything": {Workers: 2, Crashes: 1, Timeouts: 1, Duplicates: 1, Protects: 1, Deploys: 1, Reorgs: 1, Cancels: 1},
		"protect, give up":  {Workers: 2, Timeouts: 2, Duplicates: 1, Protects: 2, Cancels: 2},
		"deploys, reorgs":   {Workers: 2, Crashes: 1, Timeouts: 1, Deploys: 2, Reorgs: 2, Cancels: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holds(t, CheckPayout(AllPayout(), b))
		})
	}
}

// (a) A create that is refused in PROTECT, while another is paused on the wire.
func TestH01RefusedCreateTakenForARefusal(t *testing.T) {
	t.Parallel()
	breaks(t, CheckPayout(lessPayout(func(r *PayoutRules) { r.JudgeByRow = false }), PayoutBudget{Workers: 2, Protects: 2}), "paid and given back",
		"sends create", "sends create", "refused: PROTECT", "records: refused", "PROTECT: false", "final: CONFIRMED")
}

// (b) The submitter is read from the settings at each attempt.
func TestH01SubmitterOfTheMoment(t *testing.T) {
	t.Parallel()
	breaks(t, CheckPayout(lessPayout(func(r *PayoutRules) { r.SubmitterFixed = false }), PayoutBudget{Workers: 2, Deploys: 1}), "paid twice",
		"a deploy names another submitter", "sends create, submitter 2")
}

// (c) A new build renders the payload otherwise: read as a refusal it is paid and
// given back, read as unknown it never ends.
func TestH01PayloadOfTheMoment(t *testing.T) {
	t.Parallel()
	rules := lessPayout(func(r *PayoutRules) { r.PayloadFixed = false })
	budget := PayoutBudget{Workers: 1, Timeouts: 1, Deploys: 1}
	breaks(t, CheckPayout(rules, budget), modelcheck.NoEnd, "a deploy renders payloads otherwise")
	rules.JudgeByRow = false
	breaks(t, CheckPayout(rules, budget), "paid and given back", "final: CONFIRMED", "409", "records: refused")
}

// (d) "Reverted" read before it is final, and a reorg that runs it again.
func TestH01JudgedBeforeItIsFinal(t *testing.T) {
	t.Parallel()
	budget := PayoutBudget{Workers: 1, Reorgs: 1}
	breaks(t, CheckPayout(lessPayout(func(r *PayoutRules) { r.FinalRefusal = false }), budget), "paid and given back",
		"mined, and reverted", "records: refused", "a reorg takes it out again", "final: CONFIRMED")
	breaks(t, CheckPayout(lessPayout(func(r *PayoutRules) { r.FinalSuccess = false }), budget), "COMMITTED, and not paid",
		"mined", "records: success", "a reorg takes it out again", "final: FAILED")
}

// (e) Given up without a tombstone: a create on its way runs all the same.
func TestH01GivenUpWithoutATombstone(t *testing.T) {
	t.Parallel()
	breaks(t, CheckPayout(lessPayout(func(r *PayoutRules) { r.Tombstone = false }), PayoutBudget{Workers: 2, Cancels: 1}), "paid and given back",
		"sends create", "a cancel, submitter 1: there is none", "records: refused", "final: CONFIRMED")
}
