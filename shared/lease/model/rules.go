package model

// Rules are the sentences of the contract on leases, wake marks and task names
// that the protocol stands on. A field that is false leaves its rule out and
// puts in its place what a plausible build does instead. [All] is the protocol.
type Rules struct {
	// FencedAcquiresAgain: an invocation that is told FENCED goes back to
	// acquire as if just delivered. Else it stops and answers 2xx (H19).
	FencedAcquiresAgain bool
	// MovedRowLoadsAgain: a write whose fence held but whose row had moved loads
	// again. Else that is taken for FENCED and the invocation stops (H19).
	MovedRowLoadsAgain bool
	// DueDecides: what is enqueued follows from what the submitter has due as
	// last read. Else it hangs on what the invocation itself did (H21).
	DueDecides bool
	// EnqueueAfterRelease: tasks are made after the lease was released. Else
	// they are made while it is still held (H21).
	EnqueueAfterRelease bool
	// LoadAfterLock: the queue is read by a later statement than the one that
	// locks the lease. Else one statement does both, and its snapshot is older
	// than its lock (H22).
	LoadAfterLock bool
	// TokenVisibleBeforeLoad: the new token is committed before the queue is
	// read. Else lock, new token and load are one transaction, and creates read
	// the old token until it commits (H22, H23).
	TokenVisibleBeforeLoad bool
	// TokenAfterCommit: create reads the token after its insert has committed.
	// Else it reads it in the same transaction, before the commit (H22).
	TokenAfterCommit bool
	// TokenPerRound: a holder that goes round again raises the token before it
	// reads. Else the whole tenure has one token (H23).
	TokenPerRound bool
	// WakeTask: an invocation that found the lease held makes a delayed task.
	// Else it only sets the mark (H24).
	WakeTask bool
	// WakeAfterSkew: the delayed task is due when others may take the lease. Else
	// it is due at expires_at (H24).
	WakeAfterSkew bool
	// WakeNamedByExpiry: the delayed task is named by the token and the
	// expires_at seen. Else by the token alone (H24).
	WakeNamedByExpiry bool
	// UnavailableWithoutTask: an invocation that could not make a task answers
	// 503, and its own comes again. Else it answers 2xx (H24).
	UnavailableWithoutTask bool
	// Mark: an invocation that found the lease held leaves a wake mark. Else the
	// delayed task is all it leaves (H25).
	Mark bool
	// MarkInAcquire: acquire-or-mark is one statement. Else the mark is set by a
	// second one, for the token seen (H25).
	MarkInAcquire bool
	// ReleaseInOneStatement: looking at the mark and letting the lease go is one
	// statement. Else two (H25).
	ReleaseInOneStatement bool
	// LookAfterRelease: who has released reads the queue again, in a statement after
	// that commit. Else it goes by what it read while it held the lease. Only
	// [Shape.CreateSkips] needs it, and only there it is done.
	LookAfterRelease bool
	// LookIsAfterCommit: that look is after the release's commit. Else it is in the
	// releasing transaction, and misses what commits meanwhile.
	LookIsAfterCommit bool
	// RowLock: a write holds the row lock of the lease until it commits. Else the
	// fence is a bare EXISTS, and a takeover fits between check and commit.
	RowLock bool
	// ForcedReleaseRaises: a holder that lets the lease go although the mark is
	// set raises the token by that statement. Else its task bears the name of
	// the tenure that ended.
	ForcedReleaseRaises bool
}

// All are the rules of the protocol, none left out.
func All() Rules {
	return Rules{
		FencedAcquiresAgain: true, MovedRowLoadsAgain: true,
		DueDecides: true, EnqueueAfterRelease: true,
		LoadAfterLock: true, TokenVisibleBeforeLoad: true, TokenAfterCommit: true,
		TokenPerRound: true,
		WakeTask:      true, WakeAfterSkew: true, WakeNamedByExpiry: true, UnavailableWithoutTask: true,
		Mark: true, MarkInAcquire: true, ReleaseInOneStatement: true,
		LookAfterRelease: true, LookIsAfterCommit: true,
		RowLock: true, ForcedReleaseRaises: true,
	}
}

// Shape are choices that the contract leaves open; the protocol must hold under
// every one of them.
type Shape struct {
	// Window has at most one intent in flight, which a poll must confirm before
	// the next is sent. Else an intent is done when it leaves the queue.
	Window bool
	// WholeRound lets every holder send and confirm. Else an advance only sends
	// and a poll only confirms, and each enqueues the other when that is due.
	WholeRound bool
	// CreateSkips lets a create make no task if it sees, after its commit, the lease
	// held and not expired, or the window full: who releases, or frees the window,
	// looks at the queue again. Else every create makes one. And an advance that is
	// enqueued stands for the poll that is due too.
	CreateSkips bool
	// StrictRelease treats a release after expires_at as FENCED, even when no one
	// has taken over. Else owner and token are all it compares.
	StrictRelease bool
	// ReleaseRaises raises the token at every release.
	ReleaseRaises bool
	// PollsApart lets a poll be due in another second than the one that waits,
	// so that there are two. Else they merge.
	PollsApart bool
}

// Budget bounds a run: how many creates and concurrent invocations there are,
// and how often each thing that may go wrong does.
type Budget struct {
	// Creates is the number of intents, at most 3.
	Creates uint8
	// Invocations is how many run at once, at most 3.
	Invocations uint8
	// Crashes is how many invocations die; their tasks are delivered again.
	Crashes uint8
	// Pauses is how many times a holder stands still beyond its lease.
	Pauses uint8
	// Duplicates is how many deliveries happen twice.
	Duplicates uint8
	// Failures is how many times an invocation cannot make a task.
	Failures uint8
	// Renewals is how many times a live holder moves its expires_at, at most 2.
	Renewals uint8
	// Slow is how many delayed tasks come due amid other steps although no lease
	// has run out: a lease's length has passed, then, in steps that each take
	// little time. Without a bound two invocations could mark each other for ever.
	Slow uint8
	// Early is how many polls come before there is anything to confirm.
	Early uint8
	// Forced is how many holders are past half of their dispatch deadline when
	// they find the mark set: they release, and enqueue an advance, instead of
	// going round again.
	Forced uint8
	// Cancels is how many queued intents are cancelled, without the lease.
	Cancels uint8
}
