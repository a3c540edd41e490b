package txmanager

import (
	"context"
	"math/big"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// Store is the port to Postgres, whose rows decide about all submitters. An error from any method
// is unknown: the write may have happened. The caller must acquire or load again before it
// continues. The error of a write under a lease wraps [lease.ErrFenced] if the lease is no longer held.
type Store interface {
	// Acquire acquires the lease of s for owner, under the next token, and loads the state. With
	// wide it loads as much of the queue as the window is wide, otherwise only its head. If
	// another owner holds the lease, it sets the rerun flag instead. Either is one statement under
	// the row lock. The load follows the commit of the token.
	Acquire(ctx context.Context, s Submitter, owner string, wide bool) (AcquireResult, error)

	// BeginIteration begins a further iteration of l: next token, rerun flag cleared, state loaded
	// again.
	BeginIteration(ctx context.Context, l lease.Lease, wide bool) (SubmitterState, error)

	// Renew extends l under its token.
	Renew(ctx context.Context, l lease.Lease) (lease.Lease, error)

	// Commit writes all of w in one transaction under the fence, or nothing.
	Commit(ctx context.Context, w Commit) (CommitResult, error)

	// CheckPolicy checks the call that a handler made for a bound nonce against the submitter's
	// policy, under the fence, and counts its value. It returns the policy's reason to refuse it,
	// or "". A repeated check of the same transaction is counted once.
	CheckPolicy(ctx context.Context, l lease.Lease, txID string, c Call) (refused string, err error)

	// FinalTransactions lists the final transactions of s whose stored receipts are in these
	// blocks, by nonce.
	FinalTransactions(ctx context.Context, s Submitter, blocks []Hash) ([]FinalTx, error)

	// ForeignTransactions lists the stored foreign transactions that consumed nonces of s, from
	// one nonce on and below another, by nonce.
	ForeignTransactions(ctx context.Context, s Submitter, from, below uint64) ([]ForeignTransaction, error)

	// OpenRequests lists the queued intents of s, and the open payouts of s that have no stored
	// intent.
	OpenRequests(ctx context.Context, s Submitter) ([]OpenRequest, error)

	// NamedRequests returns the stored requests of s with these requestIds. The map has no entry
	// for a request that is not stored.
	NamedRequests(ctx context.Context, s Submitter, requestIDs []string) (map[string]NamedRequest, error)

	// LostNonces describes the nonces of s for which a lost database may have signed.
	LostNonces(ctx context.Context, s Submitter) (LostNonces, error)

	// StoreForeignTransactions stores foreign transactions, and how far blocks were read for them (nil: no further than
	// before), in one commit under the fence. For one nonce the last one read replaces the one before,
	// until a release has used it as evidence. After that the error wraps [ErrForeignChanged] where
	// another one was read, and nothing is stored.
	StoreForeignTransactions(ctx context.Context, l lease.Lease, all []ForeignTransaction, scan *ForeignScan) error

	// ForeignScan returns how far blocks were read for foreign transactions of s in a PROTECT
	// incident, and from where they may be read for nonces from one on.
	ForeignScan(ctx context.Context, s Submitter, incident int, from uint64) (ForeignScan, error)
}

// AcquireResult is the answer of [Store.Acquire].
type AcquireResult struct {
	Held      bool
	State     SubmitterState // where Held
	TakenOver bool           // where Held: from a holder whose lease had expired

	// Where not Held: the holder's token, and the time when its lease can be taken over.
	Token      int64
	ExpiresAt  time.Time
	TakeoverAt time.Time // ExpiresAt plus the allowance for clock skew
}

// Commit is one fenced transaction.
type Commit struct {
	Lease        lease.Lease
	Transitions  []Transition     // each compares with the state that was loaded
	Allocations  []Allocation     // in queue order, for the nonces from the cursor on; or one, for a released nonce
	Reservations []NewReservation // all of them are written, or nothing of the commit
	Mark         *ReservationMark // nil: none
	Versions     []Version        // signed bytes for nonces already bound
	Fees         []FeeUse         // what the written parts add to the fees of a day
	Cursor       CursorChange
	LeaseEnd     LeaseEnd
}

// FeeUse is the worst-case cost that one transaction adds to its submitter's fees.
type FeeUse struct {
	TxID     string
	AddedWei *big.Int
}

// Empty reports whether w writes nothing.
func (w Commit) Empty() bool {
	return len(w.Transitions)+len(w.Allocations)+len(w.Reservations)+len(w.Versions) == 0 && w.Mark == nil && w.Cursor.Empty() && w.LeaseEnd == KeepLease
}

// SignedIDs are the ids of the allocations that come with signed bytes.
func (w Commit) SignedIDs() []string {
	var ids []string
	for _, a := range w.Allocations {
		if a.Signed != nil {
			ids = append(ids, a.Tx.ID)
		}
	}
	return ids
}

// Transition replaces the changeable columns of a transaction by To's, if its state is still From.
type Transition struct {
	From            State
	To              Tx
	CompletedAction Action // the requested action that this carries out and clears; "": none

	// Decision is stored with the transaction and requests its action, unless another action is
	// already requested; nil: nothing was decided.
	Decision *Decision

	Node    string       // whose observation led to this, for the history; "": none did
	Answers []NodeAnswer // to the broadcast whose outcome this is, for the history; nil: it is none
}

// Allocation binds the next nonce to one queued transaction, named by its id. With Signed (from an
// in-process signer) the same statement stores the bytes and claims their first broadcast.
type Allocation struct {
	Tx              Tx // as it is to become: nonce, gas
	Nonce           uint64
	Signed          *Signed
	FromReservation string // the transaction of the reservation that releases the nonce; "": the cursor advances
}

// Version is a signed version of a transaction whose nonce is bound. Storing it claims its first
// broadcast.
type Version struct {
	Tx              Tx // as it is to become: SUBMITTED, with the bytes
	From            State
	Kind            VersionKind
	CompletedAction Action // the requested action that this carries out; "": none
	Signed          Signed

	// ExtraWei is set for a gas bump: what it may cost beyond the version before, which counts
	// against the budget. The STUCK timer then continues. nil: no gas bump, and the timer starts
	// again.
	ExtraWei *big.Int
}

// CursorChange is what an evaluation found about the account as a whole.
type CursorChange struct {
	FinalHead      uint64          // raises the highest final block to this; 0: unchanged
	FinalBlocks    []Header        // the last final blocks from now on, possibly none; nil: unchanged
	Suspect        *Violation      // stores a suspected violation
	ClearSuspected bool            // clears the suspected violation
	OpenIncident   *Violation      // opens a PROTECT incident with this as evidence
	CloseIncident  *ReleaseRequest // closes a PROTECT incident

	HeldBackSince map[string]time.Time // replaces [SubmitterState.HeldBackSince]; nil: unchanged
}

// Empty reports whether c changes nothing.
func (c CursorChange) Empty() bool {
	return c.FinalHead == 0 && c.FinalBlocks == nil && c.Suspect == nil && !c.ClearSuspected && c.OpenIncident == nil && c.CloseIncident == nil && c.HeldBackSince == nil
}

// LeaseEnd is how a write changes the lease.
type LeaseEnd int

// KeepLease keeps the lease. ReleaseUnlessRerun releases it unless the rerun flag is set.
// ReleaseAnyway releases it in any case. A release raises the token by one, so that a task named
// after it is new.
const (
	KeepLease LeaseEnd = iota
	ReleaseUnlessRerun
	ReleaseAnyway
)

// CommitResult is the answer of [Store.Commit].
type CommitResult struct {
	Transitioned int   // rows; fewer than requested: load again
	Allocated    int   // the first so many of the allocations were bound
	Marked       bool  // the reservation was this owner's, and in time
	Refused      error // why the submitter's policy refuses the mark; nil: it allows it
	Released     bool  // false after ReleaseUnlessRerun: the rerun flag was set, iterate again
	Token        int64 // in force after the release
	Queued       int   // queued intents, at most [AdvanceNowQueue], as read after the commit of a release; only set there
	Suspended    bool  // as read with Queued
}

// AdvanceNowQueue is the queue length from which a submitter is served at once. A shorter queue is
// served a little later, together with intents that arrive meanwhile.
const AdvanceNowQueue = 64

// TaskEnqueuer creates the tasks that serve submitters later. A task name that exists or existed
// is no error.
type TaskEnqueuer interface {
	// EnqueueAdvance enqueues an advance of s, under the token now in force.
	EnqueueAdvance(ctx context.Context, s Submitter, token int64) error

	// EnqueueAdvanceAt is EnqueueAdvance, not before at.
	EnqueueAdvanceAt(ctx context.Context, s Submitter, token int64, at time.Time) error

	// EnqueueTakeover enqueues an advance of s for the time when the holder in t can be taken
	// over. The holder's token and expiry name the task.
	EnqueueTakeover(ctx context.Context, s Submitter, t AcquireResult) error

	// EnqueuePoll enqueues a poll of s at a time, for the function of kind.
	EnqueuePoll(ctx context.Context, s Submitter, kind Kind, at time.Time) error
}

// Kind is the function that a task is for. Each function does everything that is due. The kind
// decides the task queue and whether the function may sign.
type Kind string

// The functions that serve a submitter.
const (
	KindAdvance  Kind = "advance"
	KindReceipt  Kind = "receipt"
	KindConfirm  Kind = "confirm"
	KindResubmit Kind = "resubmit"
)

// MaySign reports whether the function of the kind has the signer's rights.
func (k Kind) MaySign() bool { return k == KindAdvance }
