package model

import "github.com/fencepost/fencepost/shared/modelcheck"

// Rules are the sentences that transfers between two ledgers stand on. A field that
// is false leaves its rule out and puts in its place what a plausible build does
// instead. [All] is the protocol.
type Rules struct {
	// PersistFirst: a ledger is called from a stored state that says so. Else the
	// source is called from INIT, where the transfer may still be cancelled.
	PersistFirst bool
	// Compare: a write compares the state it was decided in. Else it just writes.
	Compare bool
	// ReadBack: a commit without an answer is read back before a call stands on it.
	// Else it is believed (H15).
	ReadBack bool
	// UnknownStays: an answer that does not come leaves the transfer as it is. Else
	// it is taken for a refusal.
	UnknownStays bool
	// Once: a ledger keeps what it has done and does it once. Else each call is done.
	Once bool
	// StoreRefusals: a refusal is as permanent as a success. Else the same call may
	// succeed later (H3).
	StoreRefusals bool
	// KeyedByOp: a ledger keeps the answer by (req_id, op). Else it keeps that it has
	// processed the req_id, and answers a repeat with success (H2).
	KeyedByOp bool
	// RefundNeverRefused: a refund is credited whatever the account's status. Else a
	// frozen account's is refused, for ever (H3).
	RefundNeverRefused bool
	// ResolveStores: an operator's resolve records the refusal in the ledger. Else it
	// answers that nothing is there.
	ResolveStores bool
}

// All are the rules of the protocol, none left out.
func All() Rules {
	return Rules{true, true, true, true, true, true, true, true, true}
}

// Budget bounds a run: how often each thing that may go wrong does.
type Budget struct {
	Workers    uint8 // at most 2
	Crashes    uint8 // of workers, at any step
	Timeouts   uint8 // a worker stops waiting; its call may still arrive
	Losses     uint8 // a call is carried out, its answer does not arrive
	Duplicates uint8 // a call is carried out, and arrives once more later
	Cuts       uint8 // a commit gets no answer
	Changes    uint8 // an account is frozen or freed, a balance falls short or is filled up; or [Always]
	Resolves   uint8
	Cancels    uint8
	Expiries   uint8 // at most 1: the transfer becomes older than initTimeout
}

// Always is a budget of changes that is never used up.
const Always = 255

// Check walks every interleaving within b and reports the first state that is wrong.
func Check(r Rules, b Budget) modelcheck.Report {
	return explore(&protocol{r, b}, state.plight)
}
