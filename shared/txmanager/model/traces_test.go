package model

import (
	"testing"

	"github.com/fencepost/fencepost/shared/modelcheck"
)

func less(leaveOut func(*Rules)) Rules {
	r := All()
	leaveOut(&r)
	return r
}

// Under all rules no property is broken, and every run can terminate.
func TestReservationsHold(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]Budget{
		"one owner, strict":           {Workers: 2, Window: 1, Intents: 2, Owners: 1, Crashes: 1, Losses: 1, Twice: 1, Cancels: 1, Rogues: 1},
		"two owners, strict":          {Workers: 1, Window: 1, Intents: 1, Owners: 2, Crashes: 1, Losses: 1, Twice: 1, Cancels: 1, Rogues: 1},
		"two owners, window of three": {Workers: 1, Window: 3, Intents: 2, Owners: 2, Losses: 1, Twice: 1, Cancels: 1},
		"two workers, two owners":     {Workers: 2, Window: 2, Intents: 1, Owners: 2, Crashes: 1, Twice: 1, Cancels: 1},
		"owners who send":             {Workers: 1, Window: 3, Intents: 2, Owners: 2, Rogues: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Check(All(), b).RequireHolds(t)
		})
	}
}

// Without any one rule a property is broken.
func TestEachRuleIsNeeded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		rules  Rules
		budget Budget
		want   string
		events []string
	}{
		// Bytes that the owner sent elsewhere can consume an intent's nonce.
		{"H13: an expired nonce is allocated again", less(func(r *Rules) { r.TimeOutFills = false }), Budget{Workers: 1, Window: 1, Intents: 1, Owners: 1, Rogues: 1},
			"consumed by what is not its holder's", []string{"owner A signs", "owner A sends", "intent 1 shall have nonce 0"}},
		// The mark stores bytes that the next owner never signed.
		{"a late mark of a former owner", less(func(r *Rules) { r.OwnersOnly = false }), Budget{Workers: 1, Window: 1, Owners: 2, Twice: 1},
			"consumed by what is not its holder's", []string{"owner A signs", "gives nonce 0 back", "owner B has nonce 0 reserved", "the mark used of owner A arrives"}},
		{"a nonce with stored bytes is released", less(func(r *Rules) { r.UnsignedOnly = false }), Budget{Workers: 1, Window: 1, Intents: 1, Owners: 1},
			"versions of two payloads", []string{"the mark used of owner A arrives", "the mark recyclable of owner A arrives", "intent 1 shall have nonce 0"}},
		{"H05: the intent that is to get a released nonce is cancelled", less(func(r *Rules) { r.IntentFirst = false }), Budget{Workers: 1, Window: 1, Intents: 1, Owners: 1, Cancels: 1},
			"a nonce that nobody has", []string{"worker 0 loads: intent 1 shall have nonce 0, from owner A", "intent 1 is cancelled"}},
		{"no intent needs a released nonce", less(func(r *Rules) { r.ReleasedTimesOut = false }), Budget{Workers: 1, Window: 1, Owners: 1},
			modelcheck.NoEnd, []string{"the mark recyclable of owner A arrives"}},
		// A worker writes a plan although another invocation has allocated the nonce meanwhile.
		{"no fence", less(func(r *Rules) { r.Fenced = false }), Budget{Workers: 2, Window: 1, Intents: 2, Owners: 1, Cancels: 1},
			"versions of two payloads", []string{"loads: intent 1 shall have nonce 0", "owner A has nonce 0 reserved", "writes: intent 1 shall have nonce 0", "the mark used of owner A arrives"}},
		// Bytes that are sent first may be refused afterwards, and still consume the nonce.
		{"sent before it is stored", less(func(r *Rules) { r.StoredFirst = false }), Budget{Workers: 1, Window: 1, Owners: 1},
			"sent and not stored", []string{"the mark used of owner A arrives"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			Check(c.rules, c.budget).RequireViolation(t, c.want, c.events...)
		})
	}
}
