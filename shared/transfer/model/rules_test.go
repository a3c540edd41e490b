package model

import "github.com/fencepost/fencepost/shared/modelcheck"

// Rules are the rules that transfers between two ledgers depend on. A false field replaces its
// rule by the behaviour of a plausible defective build. [All] is the protocol.
type Rules struct {
	// PersistFirst: a ledger is called from a stored state that allows the call. Otherwise the
	// source is called from INIT, where the transfer can still be cancelled.
	PersistFirst bool
	// Compare: a write compares the state that it was decided in. Otherwise it writes
	// unconditionally.
	Compare bool
	// ReadBack: a commit without an answer is read back before a call depends on it. Otherwise
	// the worker assumes that it happened (H15).
	ReadBack bool
	// UnknownStays: a missing answer leaves the state. Otherwise it counts as a refusal.
	UnknownStays bool
	// Once: a ledger stores its answers and applies each call once. Otherwise it applies each
	// call.
	Once bool
	// StoreRefusals: a refusal is as permanent as a success. Otherwise the same call can succeed
	// later (H3).
	StoreRefusals bool
	// KeyedByOp: a ledger stores the answer by (req_id, op). Otherwise it stores only the req_id,
	// and answers a repeat with success (H2).
	KeyedByOp bool
	// RefundNeverRefused: a refund is credited whatever the account's status. Otherwise a frozen
	// account refuses it permanently (H3).
	RefundNeverRefused bool
	// ResolveStores: an operator's resolve stores the refusal in the ledger. Otherwise it only
	// answers that no answer is stored.
	ResolveStores bool
}

// All returns all rules switched on.
func All() Rules {
	return Rules{true, true, true, true, true, true, true, true, true}
}

// Budget bounds how often each fault and each act occurs in a run.
type Budget struct {
	Workers    uint8 // at most 2
	Crashes    uint8 // of workers, at any step
	Timeouts   uint8 // a worker stops waiting; its call may still arrive
	Losses     uint8 // a call is carried out, and its answer is lost
	Duplicates uint8 // a call is carried out, and arrives once more later
	Cuts       uint8 // a commit gets no answer
	Changes    uint8 // an account is frozen or unfrozen, closed or opened, or its balance changes; or [Always]
	Resolves   uint8
	Cancels    uint8
	Expiries   uint8 // at most 1: the transfer becomes older than initTimeout
}

// Always is a budget of changes that is never used up.
const Always = 255

// Check searches every interleaving within b and reports the first violation.
func Check(r Rules, b Budget) modelcheck.Report {
	return explore(&protocol{r, b}, state.describe)
}
