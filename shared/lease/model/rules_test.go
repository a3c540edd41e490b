package model

// Rules are the rules of the contract on leases, rerun marks and task names. A false field replaces
// its rule by the behaviour of a plausible defective build. [All] is the protocol.
type Rules struct {
	// FencedAcquiresAgain: after FENCED an invocation acquires again, as if just delivered.
	// Otherwise it stops and answers 2xx (H19).
	FencedAcquiresAgain bool
	// MovedRowLoadsAgain: a write whose fence held but whose row had changed loads again. Otherwise
	// that counts as FENCED and the invocation stops (H19).
	MovedRowLoadsAgain bool
	// DueDecides: the tasks to enqueue follow from the submitter's due work as last read. Otherwise
	// they follow from the invocation's own acts (H21).
	DueDecides bool
	// EnqueueAfterRelease: tasks are enqueued after the lease was released. Otherwise they are
	// enqueued while it is held (H21).
	EnqueueAfterRelease bool
	// LoadAfterLock: a later statement than the one that locks the lease reads the queue. Otherwise
	// one statement does both, and its snapshot is older than its lock (H22).
	LoadAfterLock bool
	// TokenVisibleBeforeLoad: the new token is committed before the queue is read. Otherwise lock,
	// new token and load are one transaction, and creates read the old token until it commits (H22,
	// H23).
	TokenVisibleBeforeLoad bool
	// TokenAfterCommit: a create reads the token after its insert has committed. Otherwise it reads
	// it in the same transaction, before the commit (H22).
	TokenAfterCommit bool
	// TokenPerIteration: a holder that iterates again raises the token before it reads. Otherwise
	// the whole lease session has one token (H23).
	TokenPerIteration bool
	// DelayedTask: an invocation that found the lease held enqueues a delayed task. Otherwise it
	// only sets the mark (H24).
	DelayedTask bool
	// DelayedTaskAfterSkew: the delayed task is due when others may take the lease. Otherwise it is
	// due at expires_at (H24).
	DelayedTaskAfterSkew bool
	// DelayedTaskNamedByExpiry: the delayed task is named by the token and the expires_at that were
	// read. Otherwise it is named by the token alone (H24).
	DelayedTaskNamedByExpiry bool
	// UnavailableWithoutTask: an invocation that could not enqueue a task answers 503, and its own
	// task is delivered again. Otherwise it answers 2xx (H24).
	UnavailableWithoutTask bool
	// Mark: an invocation that found the lease held sets the rerun mark. Otherwise it only enqueues
	// the delayed task (H25).
	Mark bool
	// MarkInAcquire: acquire-or-mark is one statement. Otherwise a second one sets the mark, for
	// the token that was read (H25).
	MarkInAcquire bool
	// ReleaseInOneStatement: one statement reads the mark and releases the lease. Otherwise there
	// are two (H25).
	ReleaseInOneStatement bool
	// ReadAfterRelease: the invocation that has released reads the queue again, in a statement
	// after that commit. Otherwise it relies on what it read while it held the lease. The rule is
	// used only with [Shape.CreateSkips], which needs it.
	ReadAfterRelease bool
	// ReadIsAfterCommit: that read is after the release's commit. Otherwise it is in the releasing
	// transaction, and misses commits in between.
	ReadIsAfterCommit bool
	// RowLock: a write holds the lease's row lock until it commits. Otherwise the fence is a bare
	// EXISTS, and a takeover is possible between check and commit.
	RowLock bool
	// ForcedReleaseRaises: a holder that releases although the mark is set raises the token in that
	// statement. Otherwise its task has the name of the lease session that ended.
	ForcedReleaseRaises bool
}

// All returns all rules switched on.
func All() Rules {
	return Rules{
		FencedAcquiresAgain: true, MovedRowLoadsAgain: true,
		DueDecides: true, EnqueueAfterRelease: true,
		LoadAfterLock: true, TokenVisibleBeforeLoad: true, TokenAfterCommit: true,
		TokenPerIteration: true,
		DelayedTask:       true, DelayedTaskAfterSkew: true, DelayedTaskNamedByExpiry: true, UnavailableWithoutTask: true,
		Mark: true, MarkInAcquire: true, ReleaseInOneStatement: true,
		ReadAfterRelease: true, ReadIsAfterCommit: true,
		RowLock: true, ForcedReleaseRaises: true,
	}
}

// Shape holds the choices that the contract leaves open. The protocol must hold with each of them.
type Shape struct {
	// Window has at most one intent in flight, and a poll must confirm it before the next is sent.
	// Otherwise an intent is done when it leaves the queue.
	Window bool
	// WholeIteration lets every holder send and confirm. Otherwise an advance only sends and a poll
	// only confirms, and each enqueues the other when it is due.
	WholeIteration bool
	// CreateSkips lets a create enqueue no task if, after its commit, it reads the lease as held
	// and unexpired, or the window as full. The invocation that releases, or frees the window,
	// reads the queue again. Otherwise every create enqueues one. With it, an enqueued advance also
	// replaces the poll that is due.
	CreateSkips bool
	// StrictRelease treats a release after expires_at as FENCED, even without a takeover. Otherwise
	// only owner and token are compared.
	StrictRelease bool
	// ReleaseRaises raises the token at every release.
	ReleaseRaises bool
	// PollsApart lets a poll be due in another second than the waiting one, so that there are two.
	// Otherwise they merge.
	PollsApart bool
}

// Budget bounds a run: the number of creates and concurrent invocations, and how often each fault
// occurs.
type Budget struct {
	// Creates is the number of intents, at most 3.
	Creates uint8
	// Invocations is the number of concurrent invocations, at most 3.
	Invocations uint8
	// Crashes is how many invocations die; their tasks are delivered again.
	Crashes uint8
	// Pauses is how many times a holder pauses beyond its lease.
	Pauses uint8
	// Duplicates is how many deliveries happen twice.
	Duplicates uint8
	// Failures is how many times an invocation cannot enqueue a task.
	Failures uint8
	// Renewals is how many times a live holder moves its expires_at, at most 2.
	Renewals uint8
	// Slow is how many delayed tasks are due between other steps although no lease has expired:
	// many short steps can take as long as a lease. Without a limit two invocations could mark each
	// other endlessly.
	Slow uint8
	// Early is how many polls are delivered before anything can be confirmed.
	Early uint8
	// Forced is how many holders find the mark set after half of their dispatch deadline. They
	// release and enqueue an advance instead of iterating again.
	Forced uint8
	// Cancels is how many queued intents are cancelled, without the lease.
	Cancels uint8
}
