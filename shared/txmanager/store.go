package txmanager

import (
	"context"
	"math/big"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// Store is the record of all submitters: Postgres, the only authority. An error
// from any method is unknown: the write may have happened. Whoever goes on
// takes or loads again before anything else.
type Store interface {
	// Acquire takes the lease of s for owner, under the next token, and loads the
	// work: of the queue as much as the window is wide with wide, else its head
	// alone. Where another holds the lease it leaves the wake mark instead.
	// Either is one statement under the row lock, and the load comes after the
	// token is committed.
	Acquire(ctx context.Context, s Submitter, owner string, wide bool) (Acquired, error)

	// BeginIteration begins a further round of l: the next token, no wake mark, a new
	// load. The error wraps [lease.ErrFenced] if l is no longer held.
	BeginIteration(ctx context.Context, l lease.Lease, wide bool) (SubmitterState, error)

	// Renew extends l under its token. The error wraps [lease.ErrFenced] if l
	// is no longer held.
	Renew(ctx context.Context, l lease.Lease) (lease.Lease, error)

	// Commit makes all of w true in one transaction under the fence, or nothing.
	// The error wraps [lease.ErrFenced] if the lease is no longer held.
	Commit(ctx context.Context, w Commit) (CommitResult, error)

	// CheckPolicy holds what a handler made for a nonce that is bound to the submitter's
	// policy, under the fence, and counts its value. It returns why the policy refuses
	// it, or "". Asking again for the same transaction counts nothing twice. The error
	// wraps [lease.ErrFenced] if the lease is no longer held.
	CheckPolicy(ctx context.Context, l lease.Lease, txID string, c Call) (refused string, err error)

	// FinalTransactions lists the final transactions of s whose receipts on record are of
	// these blocks, by nonce.
	FinalTransactions(ctx context.Context, s Submitter, blocks []Hash) ([]FinalTx, error)

	// ForeignTransactions lists what is stored of the foreign transactions that
	// consumed the nonces of s, from one nonce on and below another, by nonce.
	ForeignTransactions(ctx context.Context, s Submitter, from, below uint64) ([]ForeignTransaction, error)

	// OpenRequests lists the queued intents of s, and the open payouts that s is to make
	// and that are not on record as intents.
	OpenRequests(ctx context.Context, s Submitter) ([]OpenRequest, error)

	// NamedRequests finds what is on record of requests of s, by requestId. What is not
	// on record is left out.
	NamedRequests(ctx context.Context, s Submitter, requestIDs []string) (map[string]NamedRequest, error)

	// LostNonces says what is known of the nonces of s for which a lost database may have
	// signed.
	LostNonces(ctx context.Context, s Submitter) (LostNonces, error)

	// StoreForeignTransactions stores foreign transactions under the fence. Of one nonce what was
	// read last is kept, until a release has judged by it. Then the error wraps
	// [ErrForeignChanged] where it is another one, and nothing is stored. It wraps
	// [lease.ErrFenced] if the lease is no longer held.
	StoreForeignTransactions(ctx context.Context, l lease.Lease, all []ForeignTransaction) error

	// ForeignScan says how far blocks were read for foreign transactions of s in an
	// episode of PROTECT, and from where they may be read for nonces from one on.
	ForeignScan(ctx context.Context, s Submitter, episode int, from uint64) (ForeignScan, error)

	// StoreForeignScan stores foreign transactions that were found in blocks, and how far
	// those were read, in one commit under the fence. The error wraps that of StoreForeignTransactions.
	StoreForeignScan(ctx context.Context, l lease.Lease, found []ForeignTransaction, r ForeignScan) error
}

// Acquired is the answer of [Store.Acquire].
type Acquired struct {
	Held      bool
	State     SubmitterState // where Held
	TakenOver bool           // where Held: from a holder whose lease had run out

	// Where not Held: the holder's token, and when it would be waited out.
	Token      int64
	ExpiresAt  time.Time
	TakeoverAt time.Time // expiry and the skew allowance
}

// Commit is one fenced transaction.
type Commit struct {
	Lease        lease.Lease
	Transitions  []Transition     // each against the state it was loaded in
	Allocations  []Allocation     // in queue order, for the nonces from the cursor on; or one, for a nonce that was given back
	Reservations []NewReservation // all of them, or nothing of the write
	Mark         *ReservationMark // nil: none
	Versions     []Version        // signed bytes for nonces already bound
	Fees         []FeeUse         // what counts against the fees of a day, of what of the above is written
	Cursor       CursorChange
	LeaseEnd     LeaseEnd
}

// FeeUse is what one transaction adds to the fees of its submitter, at worst.
type FeeUse struct {
	TxID     string
	AddedWei *big.Int
}

// Empty says that w writes nothing at all.
func (w Commit) Empty() bool {
	return len(w.Transitions)+len(w.Allocations)+len(w.Reservations)+len(w.Versions) == 0 && w.Mark == nil && w.Cursor.Empty() && w.LeaseEnd == KeepLease
}

// signedIDs names the allocations that come with their bytes.
func (w Commit) signedIDs() []string {
	var ids []string
	for _, a := range w.Allocations {
		if a.Signed != nil {
			ids = append(ids, a.Tx.ID)
		}
	}
	return ids
}

// Transition replaces the changeable part of a transaction by To's, if its state is
// still From.
type Transition struct {
	From            State
	To              Tx
	CompletedAction Action // the order that this carries out, and which is taken off; "": none

	// Decision is kept with the transaction, and its order given, unless
	// somebody's stands there already; nil: nothing was decided.
	Decision *Decision
}

// Allocation binds the next nonce to one queued transaction, named by its id.
// With Signed (a signer in this process) its bytes are stored and its first
// broadcast claimed in the same statement.
type Allocation struct {
	Tx              Tx // To-be: nonce, gas
	Nonce           uint64
	Signed          *Signed
	FromReservation string // the transaction of the reservation that gives the nonce up; "": the cursor moves
}

// Version is a signed version of a transaction whose nonce is bound. Storing it
// claims its first broadcast.
type Version struct {
	Tx              Tx // as it becomes: SUBMITTED, with the bytes
	From            State
	Kind            VersionKind
	CompletedAction Action // the order that this carries out; "": none
	Signed          Signed

	// ExtraWei is what it may cost beyond the version before it, where a gas bump made
	// it: then it counts against the budget, and the transaction's life goes on. nil: none
	// did, and it begins anew.
	ExtraWei *big.Int
}

// CursorChange is what a look found out about the account as a whole.
type CursorChange struct {
	FinalHead      uint64          // raise the highest final block to this; 0: leave it
	FinalBlocks    []Header        // the last final blocks as they are now, perhaps none; nil: leave them
	Suspect        *Violation      // remember
	ClearSuspected bool            // forget the suspicion
	OpenIncident   *Violation      // open an episode of PROTECT with this as evidence
	CloseIncident  *ReleaseRequest // close an episode of PROTECT
}

// Empty says that c changes nothing.
func (c CursorChange) Empty() bool {
	return c.FinalHead == 0 && c.FinalBlocks == nil && c.Suspect == nil && !c.ClearSuspected && c.OpenIncident == nil && c.CloseIncident == nil
}

// LeaseEnd says what becomes of the lease with a write.
type LeaseEnd int

// A lease is kept; or given back unless the wake mark is set; or given back
// whatever the mark says, with the token raised by one so that a task named
// after it is new.
const (
	KeepLease LeaseEnd = iota
	ReleaseUnlessRerun
	ReleaseAnyway
)

// CommitResult is the answer of [Store.Commit].
type CommitResult struct {
	Transitioned int   // rows; fewer than asked for: load again
	Allocated    int   // the first so many of the allocations were bound
	Marked       bool  // the mark was its owner's to make, in time
	Refused      error // why the submitter's policy does not let the mark be made; nil: it does
	Released     bool  // false after ReleaseUnlessRerun: the wake mark was set, go round again
	Token        int64 // in force after the release
	Queued       int   // how many wait in the queue, at most [AdvanceNowQueue]: as read behind the commit of a release, and only there
	Suspended    bool  // as read there
}

// AdvanceNowQueue is how many that wait are enough to be served at once, and not a little
// later together with those to come.
const AdvanceNowQueue = 64

// TaskEnqueuer makes the tasks by which submitters are served later. A task that
// exists by that name already, or existed, is no error.
type TaskEnqueuer interface {
	// EnqueueAdvance asks for a look at s, under the token now in force.
	EnqueueAdvance(ctx context.Context, s Submitter, token int64) error

	// EnqueueAdvanceAt is Advance, not before that time.
	EnqueueAdvanceAt(ctx context.Context, s Submitter, token int64, at time.Time) error

	// EnqueueTakeover asks for a look at s at the time when the holder that was met,
	// with its token and expiry, would be waited out.
	EnqueueTakeover(ctx context.Context, s Submitter, t Acquired) error

	// EnqueuePoll asks for a look at s at a time, by the function that suits kind.
	EnqueuePoll(ctx context.Context, s Submitter, kind Kind, at time.Time) error
}

// Kind is the function that a look is due for. Whatever the kind, the look is
// at everything; the kind decides the queue and whether it may sign.
type Kind string

// The functions that look at a submitter.
const (
	KindAdvance  Kind = "advance"
	KindReceipt  Kind = "receipt"
	KindConfirm  Kind = "confirm"
	KindResubmit Kind = "resubmit"
)

// MaySign says whether the function of the kind has the signer's rights.
func (k Kind) MaySign() bool { return k == KindAdvance }
