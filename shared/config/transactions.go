package config

import "time"

// Lease configures how long the right to act on a submitter lasts.
type Lease struct {
	// Duration is how far ahead an acquire or a renewal puts the expiry, in
	// the database's time.
	Duration time.Duration
	// RenewInterval is how old a lease session gets before it is renewed: below half of
	// Duration.
	RenewInterval time.Duration
	// ClockSkewAllowance is how long a lease must have been expired before another owner takes
	// it over: below Duration.
	ClockSkewAllowance time.Duration
}

func (l *Lease) settings() []setting {
	return []setting{
		{name: "lease.duration", def: "10s",
			meaning: "how long the lease of a submitter lasts unless renewed, and so how long others wait for a holder that died",
			field:   duration(&l.Duration, 2*time.Second, 5*time.Minute)},
		{name: "lease.renewInterval", def: "3s",
			meaning: "how long a holder works before it renews; below half of `lease.duration`",
			field:   duration(&l.RenewInterval, 100*time.Millisecond, time.Minute)},
		{name: "clockSkewAllowance", def: "1s",
			meaning: "how long another invocation's lease must have been expired before it is taken over; below `lease.duration`",
			field:   duration(&l.ClockSkewAllowance, 0, time.Minute)},
	}
}

// Nonce configures the allocation of nonces.
type Nonce struct {
	// StartFrom is the first nonce of a submitter that is registered without one.
	StartFrom uint64
	// Strict is true if the next nonce is allocated only when the last one is consumed and
	// final, whatever the submitter's window.
	Strict bool
	// Placeholder selects whether a placeholder needs an operator's decision.
	Placeholder PlaceholderMode
	// PlaceholderMaxFee is the highest fee of a placeholder, in wei per gas: at least 81/64 of
	// [Fees.MaxFeePerGas].
	PlaceholderMaxFee uint64
	// MaxInFlight is the window of newly registered submitters, in transactions. While Strict,
	// a registration must name its window if this is above 1.
	MaxInFlight int
	// DeferAfter is how long an intent may be blocked by its own bounds before intents of
	// other callers pass it; 0: they never do.
	DeferAfter time.Duration
}

func (n *Nonce) settings() []setting {
	return []setting{
		{name: "nonce.startFrom", def: "0",
			meaning: "the first nonce of a newly registered submitter; registration compares it with the chain's count",
			field:   number(&n.StartFrom, "a nonce", 0, maxBigint)},
		{name: "nonce.strict.enabled", def: "true",
			meaning: "one transaction in flight for each submitter, whatever window it was registered with. The next nonce is allocated when the last one is consumed and final. A registration with a window above 1 is refused",
			field:   boolean(&n.Strict)},
		{name: "nonce.placeholder", def: string(PlaceholderAuto),
			meaning: "whether a transaction with a nonce is cancelled, or a nonce filled, by a placeholder at once, or only by an operator's decision",
			field:   choice(&n.Placeholder, PlaceholderAuto, PlaceholderAsk)},
		{name: "nonce.placeholderMaxFeePerGas", def: "650000000000",
			meaning: "the maximum price of a placeholder, in wei per gas. Every other replacement pays at most 8/9 of it. It must be at least 81/64 of `fees.maxFeePerGas`, so that a first version at its ceiling can be replaced, and the replacement by a placeholder",
			field:   number(&n.PlaceholderMaxFee, "an amount in wei per gas", 1, maxBigint)},
		{name: "nonce.maxInFlight", constant: true, def: "1",
			meaning: "the window of newly registered submitters; used above 1 only with `nonce.strict.enabled=false`",
			field:   number(&n.MaxInFlight, "a number of transactions", 1, 10_000)},
		{name: "nonce.deferAfter", def: "1m",
			meaning: "how long the head of a queue waits for its own bounds, such as a `maxFeePerGas` below the base fee or a value above the balance, before intents of other callers go ahead of it; 0: they never do",
			field:   duration(&n.DeferAfter, 0, 24*time.Hour)},
	}
}

// PlaceholderMode selects who decides to send a placeholder.
type PlaceholderMode string

// At once, or by a named operator.
const (
	PlaceholderAuto PlaceholderMode = "auto"
	PlaceholderAsk  PlaceholderMode = "ask"
)

// maxBigint is the most that a bigint column of Postgres holds.
const maxBigint = 1<<63 - 1

// Fees configures the fees that are offered and their limits.
type Fees struct {
	// MaxFeePerGas is the highest fee of a first version, in wei per gas.
	MaxFeePerGas uint64
	// MaxFeePerTx is the most that the gas of a first version may cost, in wei.
	MaxFeePerTx uint64
	// MaxTipMultiple limits tips to this multiple of the nodes' advice.
	MaxTipMultiple int64
	// MinTipBound is the lowest value of that limit, in wei per gas.
	MinTipBound uint64
	// History is true if tips follow the tips of the last blocks, in place of the node's
	// advice.
	History bool
	// HistoryBlocks is the number of blocks that are read.
	HistoryBlocks int
	// HistoryPercentile is the percentile of each block's tips, weighted by gas.
	HistoryPercentile int
}

func (f *Fees) settings() []setting {
	return []setting{
		{name: "fees.maxFeePerGas", def: "500000000000",
			meaning: "the maximum price of a transaction, in wei per gas, even if the node advises or the caller allows more; while the base fee is above it, intents wait",
			field:   number(&f.MaxFeePerGas, "an amount in wei per gas", 1, maxBigint)},
		{name: "fees.maxFeePerTx", def: "750000000000000000",
			meaning: "the maximum cost of a first version's gas, in wei: its gas limit times its `maxFeePerGas`. Two replacements come to 81/64 of it, which should stay below the nodes' own limit (go-ethereum: 1 ether, by `--rpc.txfeecap`)",
			field:   number(&f.MaxFeePerTx, "an amount in wei", 21_000, maxBigint)},
		{name: "fees.maxTipMultiple", def: "10",
			meaning: "the maximum tip of a transaction, as a multiple of the nodes' advice; a higher tip is lowered to it",
			field:   number(&f.MaxTipMultiple, "a multiple", 1, 1_000_000)},
		{name: "fees.minTipBound", constant: true, def: "1000000000",
			meaning: "below which the bound of `fees.maxTipMultiple` never is, in wei per gas, whatever the nodes advise, also nothing",
			field:   number(&f.MinTipBound, "an amount in wei per gas", 1, maxBigint)},
		{name: "fees.history.enabled", def: "false",
			meaning: "take tips from those of the last blocks, by `eth_feeHistory`. The node's own advice is used only if the history is empty",
			field:   boolean(&f.History)},
		{name: "fees.history.blocks", constant: true, def: "20",
			meaning: "over how many of the last blocks; the median of those that were not empty is taken",
			field:   number(&f.HistoryBlocks, "a number of blocks", 1, 100)},
		{name: "fees.history.percentile", constant: true, def: "50",
			meaning: "which of each block's tips, weighted by gas: higher is sooner and dearer",
			field:   number(&f.HistoryPercentile, "a percentile", 1, 100)},
	}
}

// FeeKind is how a chain prices gas.
type FeeKind string

// A burnt base fee and a tip (EIP-1559), or a single price.
const (
	FeeKindEIP1559 FeeKind = "eip1559"
	FeeKindLegacy  FeeKind = "legacy"
)

// Queue limits the intents that wait for a nonce.
type Queue struct {
	// MaxPerSubmitter is how many intents may wait for one submitter.
	MaxPerSubmitter int
}

func (q *Queue) settings() []setting {
	return []setting{
		{name: "queue.maxPerSubmitter", def: "100000",
			meaning: "how many intents may wait for one submitter; a create beyond it is answered 429 QUEUE_FULL",
			field:   number(&q.MaxPerSubmitter, "a number of intents", 1, 10_000_000)},
	}
}

// Resubmit configures repeated broadcasts of the same bytes.
type Resubmit struct {
	// Enabled is true if a transaction without a receipt is sent again.
	Enabled bool
	// Interval is the time between two sends: below [Stuck.After] while Enabled.
	Interval time.Duration
	// MaxAttempts is the number of sends after which a transaction is STUCK.
	MaxAttempts int
}

func (r *Resubmit) settings() []setting {
	return []setting{
		{name: "resubmit.enabled", def: "true",
			meaning: "send a transaction without a receipt again, with the same bytes",
			field:   boolean(&r.Enabled)},
		{name: "resubmit.interval", def: "60s",
			meaning: "how long after a send the next may follow; below `stuck.after`",
			field:   duration(&r.Interval, time.Second, 24*time.Hour)},
		{name: "resubmit.maxAttempts", def: "20",
			meaning: "after how many sends without a receipt a transaction is STUCK",
			field:   number(&r.MaxAttempts, "a number of sends", 1, 1000)},
	}
}

// Stuck configures when a transaction needs a decision.
type Stuck struct {
	// After is the time since the first broadcast.
	After time.Duration
}

func (s *Stuck) settings() []setting {
	return []setting{
		{name: "stuck.after", def: "30m",
			meaning: "how long after its first broadcast a transaction without a receipt is STUCK, if its attempts last so long",
			field:   duration(&s.After, time.Second, 720*time.Hour)},
	}
}

// Confirmations configures how included transactions are watched.
type Confirmations struct {
	// Required is the number of confirming blocks that make a transaction
	// final, where [Finality.Mode] is [FinalityConfirmations].
	Required int
	// ReceiptWorkers is the receipt queue's concurrency for each shard.
	ReceiptWorkers int
	// StaleReceiptTimeout is how long a tracked transaction may go without a check before the
	// sweep counts it as overdue.
	StaleReceiptTimeout time.Duration
}

func (c *Confirmations) settings() []setting {
	return []setting{
		{name: "confirmations.required", def: "20",
			meaning: "how many confirming blocks make a transaction final, with `finality.mode=confirmations`",
			field:   number(&c.Required, "a number of blocks", 0, maxConfirmations)},
		{name: "confirmations.receiptWorkers", def: "10",
			meaning: "how many receipt tasks run at once on each shard of their queue",
			field:   number(&c.ReceiptWorkers, "a number of tasks", 1, maxQueueConcurrency)},
		{name: "confirmations.staleReceiptTimeout", def: "60s",
			meaning: "how long a tracked transaction may go without a chain query before the sweep enqueues a task for it",
			field:   duration(&c.StaleReceiptTimeout, time.Second, 24*time.Hour)},
	}
}

const maxConfirmations = 1000

// maxQueueConcurrency is Cloud Tasks' own bound for one queue
// (google.cloud.tasks.v2.RateLimits, max_concurrent_dispatches).
const maxQueueConcurrency = 5000

// FinalityMode names what makes an included transaction final.
type FinalityMode string

// The modes: our own count of confirming blocks, or one of the chain's tags.
const (
	FinalityConfirmations FinalityMode = "confirmations"
	FinalitySafe          FinalityMode = "safe"
	FinalityFinalized     FinalityMode = "finalized"
)

// Finality is when an included transaction is final.
type Finality struct {
	// Mode is one of the three modes.
	Mode FinalityMode
}

func (f *Finality) settings() []setting {
	return []setting{
		{name: "finality.mode", def: string(FinalityConfirmations),
			meaning: "the rule that makes a transaction final: a number of confirming blocks, or that its block is at or below the chain's block with this tag",
			field:   choice(&f.Mode, FinalityConfirmations, FinalitySafe, FinalityFinalized)},
	}
}

// Reorg configures the watch of final transactions.
type Reorg struct {
	// WatchDepth is the number of blocks below a submitter's last final one whose transactions
	// stay under watch.
	WatchDepth int
}

func (r *Reorg) settings() []setting {
	return []setting{
		{name: "reorg.watchDepth", def: "100",
			meaning: "how many blocks deep final transactions are watched for a reorg that removes them, which opens PROTECT",
			field:   number(&r.WatchDepth, "a number of blocks", 1, 100)},
	}
}

// Sweep configures the search for submitters that lost tasks left behind.
type Sweep struct {
	// Batch is how many submitters the sweep takes at a time.
	Batch int
	// Grace is how long a step must be overdue before the sweep takes its submitter.
	Grace time.Duration
}

func (s *Sweep) settings() []setting {
	return []setting{
		{name: "sweep.batch", def: "500",
			meaning: "how many submitters the sweep takes up at a time",
			field:   number(&s.Batch, "a number of submitters", 1, 10_000)},
		{name: "sweep.grace", constant: true, def: "5s",
			meaning: "how long work must be overdue before the sweep enqueues it again; above the second by which polls are named",
			field:   duration(&s.Grace, 2*time.Second, 10*time.Minute)},
	}
}
