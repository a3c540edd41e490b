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

// H13: if an expired nonce is allocated again, bytes that the owner sent elsewhere can consume an
// intent's nonce.
func TestH13ExpiredNonceMustNotBeAllocatedAgain(t *testing.T) {
	t.Parallel()
	Check(less(func(r *Rules) { r.TimeOutFills = false }), Budget{Workers: 1, Window: 1, Intents: 1, Owners: 1, Rogues: 1}).RequireViolation(t,
		"consumed by what is not its holder's", "owner A signs", "owner A sends", "intent 1 shall have nonce 0")
}

// A late mark of a former owner, accepted for the next owner, stores bytes that the next owner
// never signed.
func TestLateMarkOfAFormerOwner(t *testing.T) {
	t.Parallel()
	Check(less(func(r *Rules) { r.OwnersOnly = false }), Budget{Workers: 1, Window: 1, Owners: 2, Twice: 1}).RequireViolation(t,
		"consumed by what is not its holder's", "owner A signs", "gives nonce 0 back", "owner B has nonce 0 reserved", "the mark used of owner A arrives")
}

// A nonce that has stored bytes and is released anyway gets versions of two payloads.
func TestNonceWithStoredBytesIsNotReleased(t *testing.T) {
	t.Parallel()
	Check(less(func(r *Rules) { r.UnsignedOnly = false }), Budget{Workers: 1, Window: 1, Intents: 1, Owners: 1}).RequireViolation(t,
		"versions of two payloads", "the mark used of owner A arrives", "the mark recyclable of owner A arrives", "intent 1 shall have nonce 0")
}

// H5: the intent that is to get a released nonce is cancelled between load and write.
func TestH05CancelledIntentGetsNoReleasedNonce(t *testing.T) {
	t.Parallel()
	Check(less(func(r *Rules) { r.IntentFirst = false }), Budget{Workers: 1, Window: 1, Intents: 1, Owners: 1, Cancels: 1}).RequireViolation(t,
		"a nonce that nobody has", "worker 0 loads: intent 1 shall have nonce 0, from owner A", "intent 1 is cancelled")
}

// A released nonce that no intent needs is never consumed.
func TestReleasedNonceIsConsumedIfNoIntentNeedsIt(t *testing.T) {
	t.Parallel()
	Check(less(func(r *Rules) { r.ReleasedTimesOut = false }), Budget{Workers: 1, Window: 1, Owners: 1}).RequireViolation(t,
		modelcheck.NoEnd, "the mark recyclable of owner A arrives")
}

// Without the fence a worker writes a plan although another invocation has allocated the nonce
// meanwhile.
func TestWriteOfAFormerHolder(t *testing.T) {
	t.Parallel()
	Check(less(func(r *Rules) { r.Fenced = false }), Budget{Workers: 2, Window: 1, Intents: 2, Owners: 1, Cancels: 1}).RequireViolation(t,
		"versions of two payloads", "loads: intent 1 shall have nonce 0", "owner A has nonce 0 reserved", "writes: intent 1 shall have nonce 0", "the mark used of owner A arrives")
}

// Bytes that are sent before they are stored may be refused afterwards, and still consume the
// nonce.
func TestSentBeforeItIsStored(t *testing.T) {
	t.Parallel()
	Check(less(func(r *Rules) { r.StoredFirst = false }), Budget{Workers: 1, Window: 1, Owners: 1}).RequireViolation(t,
		"sent and not stored", "the mark used of owner A arrives")
}
