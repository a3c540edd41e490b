package config

import (
	"log/slog"
	"time"
)

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

// Advance configures the function that signs.
type Advance struct {
	// BatchWait is how long an invocation may wait for others before it acquires its lease, to
	// share the round trip.
	BatchWait time.Duration
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

// Resubmit configures repeated broadcasts of the same bytes.
type Resubmit struct {
	// Enabled is true if a transaction without a receipt is sent again.
	Enabled bool
	// Interval is the time between two sends: below [Stuck.After] while Enabled.
	Interval time.Duration
	// MaxAttempts is the number of sends after which a transaction is STUCK.
	MaxAttempts int
}

// Stuck configures when a transaction needs a decision.
type Stuck struct {
	// After is the time since the first broadcast.
	After time.Duration
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

// Reorg configures the watch of final transactions.
type Reorg struct {
	// WatchDepth is the number of blocks below a submitter's last final one whose transactions
	// stay under watch.
	WatchDepth int
}

// Sweep configures the search for submitters that lost tasks left behind.
type Sweep struct {
	// Batch is how many submitters the sweep takes at a time.
	Batch int
	// Grace is how long a step must be overdue before the sweep takes its submitter.
	Grace time.Duration
}

// Hooks configures the reservation of nonces without an intent.
type Hooks struct {
	// Enabled is true if Allocate, MarkUsed and MarkRecyclable may be called.
	Enabled bool
	// ReservationTimeout is how long a nonce stays reserved for its owner without a mark.
	ReservationTimeout time.Duration
}

// GasBump configures the replacement of transactions without a receipt at a higher fee.
type GasBump struct {
	// Enabled is true if gas bumps are made.
	Enabled bool
	// MinInterval is the time before a version is replaced: below [Stuck.After] while Enabled.
	MinInterval time.Duration
	// MaxAttempts is the largest number of replacements of one transaction.
	MaxAttempts int
	// Multiplier raises both fees, in thousandths.
	Multiplier int64
	// MaxFeePerGas is the highest fee that a replacement offers, in wei per gas: not above
	// [Fees.MaxFeePerGas].
	MaxFeePerGas uint64
	// MaxFeePerTx is the most that the gas of one transaction may cost, in gwei; 0: no
	// separate limit.
	MaxFeePerTx uint64
	// BudgetPerDay limits what the replacements of one submitter may add to its highest
	// possible cost within 24 hours, in gwei.
	BudgetPerDay uint64
}

// Mempool configures the diagnosis of transactions that wait in nodes' pools.
type Mempool struct {
	// Diagnose is true if each chain query reports where a transaction without a receipt seems
	// to be.
	Diagnose bool
}

// Intents are settings of accepted intents.
type Intents struct {
	// MACKeys are the keys of the MACs of intents. The first makes MACs, all of them check
	// MACs.
	MACKeys []Secret
}

// Transfer configures internal transfers and payouts.
type Transfer struct {
	// InitTimeout is the age at which a transfer that has not begun fails.
	InitTimeout time.Duration
	// CallTimeout is the longest time of one call to a ledger: below RescueAfter.
	CallTimeout time.Duration
	// RetryFirst is the time until the next attempt after an unknown answer; it
	// doubles with each, up to RetryMost.
	RetryFirst, RetryMost time.Duration
	// RescueAfter is how long a transfer without a planned attempt may make no progress before
	// its worker counts as lost.
	RescueAfter time.Duration
	// SafetyFactor is how many times an amount must fit into 64 bits.
	SafetyFactor uint64
	// LimitsPerSecond and LimitsPerDay limit the transfers that one user may request in a
	// second and in 24 hours; 0: no limit.
	LimitsPerSecond, LimitsPerDay int
	// UnusualPerMinute is the number of transfers of one user in a minute above which there is
	// a warning.
	UnusualPerMinute int
	// PayoutFinality is the expected time of a payout on its chain. A person is alerted after
	// twice that, or after twice what its blocks take if that is longer.
	PayoutFinality time.Duration
	// PayoutMaxGas is the largest gas limit of a payout's transaction.
	PayoutMaxGas uint64
	// PayoutAddressesRequired limits payouts to addresses on the user's list.
	// PayoutAddressesDelay is how long a new address waits before it can be paid.
	PayoutAddressesRequired bool
	PayoutAddressesDelay    time.Duration
}

// Trading configures the trading core. Without it no transfers are offered.
type Trading struct {
	// URL is the core's address, without a path; "" if there is none.
	URL string
	// Secret is the secret that the core requires of its callers.
	Secret Secret
}

// HaltMode selects how much a violation of conservation stops.
type HaltMode string

// Everything at once, or only the scope of the violation.
const (
	HaltAll    HaltMode = "all"
	HaltGraded HaltMode = "graded"
)

// Conservation configures the reaction to money that was created or lost.
type Conservation struct {
	// Halt is one of the two modes.
	Halt HaltMode

	Chain        bool          // payments are read from the chains themselves
	ChainBlocks  int           // in one step
	ChainHistory time.Duration // of a payer that was never read; 0: to its registration
}

// RPC configures the connections to the chains' nodes.
type RPC struct {
	// URLs are the default chain's nodes in order of preference. They are secrets, because
	// providers put the account's key into them. They are empty if a function needs no node,
	// or if chains lists the nodes.
	URLs []Secret
	// Quorum is how many nodes must agree before an observation ends a transaction or opens
	// PROTECT. 0 selects more than half of a chain's nodes, and one of two.
	Quorum int
	// MaxLag is how many blocks a node may be behind the others.
	MaxLag int
	// LeaveOut is how long a node is excluded that lags, returns errors, or is on another
	// chain.
	LeaveOut time.Duration
	// Timeout is the longest time of one round trip. A lease with less time left makes it
	// shorter.
	Timeout time.Duration
	// MaxInFlight is the largest number of concurrent round trips in one instance, over all
	// nodes of all chains.
	MaxInFlight int
	// MaxBatch is the largest number of JSON-RPC calls in one round trip.
	MaxBatch int
}

// maxNodes is how many nodes one chain may have.
const maxNodes = 9

// Chain is the deployment's default chain.
type Chain struct {
	// ID is its EIP-155 id: the chain of a bare address.
	ID uint64
	// BlockTime is the usual time between two blocks. It only decides when to poll.
	BlockTime time.Duration
	// FeeKind is how the chain prices gas.
	FeeKind FeeKind
	// FinalizedTag is true if the chain's nodes know the block tag "finalized".
	FinalizedTag bool
}

// maxChainID is the bound of EIP-2294, https://eips.ethereum.org/EIPS/eip-2294.
const maxChainID = 1<<63 - 37

// The bounds of chain.blockTime.
const (
	minBlockTime = 10 * time.Millisecond
	maxBlockTime = time.Hour
)

// Signer configures the local keys and the remote signers.
type Signer struct {
	// LocalKeysFile is the path of the file with local keys; "" for none.
	LocalKeysFile string
	// LocalKeystore is a folder of encrypted key files, for accounts of the default
	// chain; "" for none.
	LocalKeystore string
	// LocalPasswordFile is the path of the file with the password of LocalKeystore.
	LocalPasswordFile string
	// KMSEndpoint is host:port of a Cloud KMS on this machine, without TLS; "" is Google's.
	KMSEndpoint string
	// RemotesFile is the path of the list of remote signers; "" for none.
	RemotesFile string
	// Timeout is how long one signature may take.
	Timeout time.Duration
	// Parallel is the limit of concurrent signatures for one submitter, where signing may
	// happen before the nonce is bound.
	Parallel int
}

// Database configures the connection to the only authority, a Postgres database.
type Database struct {
	// URL is the connection string for pgx, with the role and its password.
	URL Secret
	// Instance is the connection name of a Cloud SQL instance, dialled in place of the URL's
	// host; "" for none.
	Instance string
	// MaxConns is the largest number of connections of one instance. Multiplied by the number
	// of instances it must stay below the server's limit.
	MaxConns int32
	// StatementTimeout ends a statement that runs longer.
	StatementTimeout time.Duration
	// LockTimeout ends a wait for a lock: below [Lease.Duration].
	LockTimeout time.Duration
	// IdleInTransactionTimeout ends a session that sits in an open
	// transaction: below [Lease.Duration].
	IdleInTransactionTimeout time.Duration
}

// The least database time-out is above 0 because Postgres reads 0 as "none".
const leastDatabaseTimeout = 100 * time.Millisecond

// HTTP limits requests.
type HTTP struct {
	// MaxBodyBytes is the largest size of a request's body.
	MaxBodyBytes int64
	// MaxRequestsPerCaller and MaxBytesPerCaller limit the concurrent requests of one caller
	// in one instance, and the total size of their bodies.
	MaxRequestsPerCaller int
	MaxBytesPerCaller    int64
	// BodyTimeout is the longest time in which a request's body must arrive.
	BodyTimeout time.Duration
}

// Log configures the log.
type Log struct {
	// Level is the lowest level that is written.
	Level slog.Level
}

// Platform has the variables of Cloud Run and the functions framework
// (https://cloud.google.com/run/docs/container-contract).
type Platform struct {
	// Port is the port to listen on.
	Port int
	// FunctionTarget is the one function to serve; "" serves all of them.
	FunctionTarget string
	// Service and Revision name what runs; "" off the platform.
	Service, Revision string
	// Timeout is the service's own time-out for a request, which the framework
	// makes the deadline of its context; 0: none.
	Timeout time.Duration
}

// OnCloudRun is true if the process runs on Cloud Run.
func (p Platform) OnCloudRun() bool { return p.Service != "" }

// Handlers configures the business services that make transactions, by name.
type Handlers struct {
	// URLs are the addresses of the handlers. Only these addresses are called.
	URLs map[string]string
	// Secrets sign the calls of each handler, in the order given. While a secret is rotated, a
	// handler has two.
	Secrets map[string][]Secret
	// Timeout is the longest time of one handler call.
	Timeout time.Duration
	// Patience is how long a handler that answers "not now" is called again.
	Patience time.Duration
}

// EventsMode selects how events are published.
type EventsMode string

// The modes.
const (
	EventsPoll    EventsMode = "poll"      // nothing: callers ask
	EventsLog     EventsMode = "log"       // lines of the log
	EventsOutbox  EventsMode = "mq_outbox" // kept, and published to Pub/Sub
	EventsWebhook EventsMode = "webhook"   // kept, and posted to endpoints
)

// Events configures who is notified of changes of transactions.
type Events struct {
	// Mode selects how events are published.
	Mode EventsMode
	// Keep is how long events can be read again, where they are kept.
	Keep time.Duration
	// Topic is the Pub/Sub topic, projects/P/topics/T; "" for none.
	Topic string
	// PubSubEndpoint is host:port of a Pub/Sub without TLS; "" is Google's.
	PubSubEndpoint string
	// URLs are the webhook endpoints, by name.
	URLs map[string]string
	// Secrets sign the events of each endpoint, in the order given.
	Secrets map[string][]Secret
	// Callers limit an endpoint to the transactions of these callers. An endpoint without an
	// entry gets the events of all.
	Callers map[string][]string
	// Timeout is how long an endpoint may take over one event.
	Timeout time.Duration
}

// Kept is true if events are kept.
func (e Events) Kept() bool { return e.Mode == EventsOutbox || e.Mode == EventsWebhook }

// Mark configures the detection of a database that is not the one written last.
type Mark struct {
	// Enabled is true if a mark is kept outside the database.
	Enabled bool
	// Bucket is the Cloud Storage bucket of the mark.
	Bucket string
	// Endpoint is a storage other than Google's; "" is Google's.
	Endpoint string
}

// Tasks configures the task queues and the URL that tasks call.
type Tasks struct {
	// Project and Location are the Google Cloud project and region of the
	// queues. The project also names our traces.
	Project, Location string
	// Endpoint is host:port of a local Cloud Tasks without TLS; "" is Google's.
	Endpoint string
	// QueuePrefix begins the id of each queue.
	QueuePrefix string
	// TargetURL is the base URL of the internal functions, without a slash at
	// its end.
	TargetURL string
	// ServiceAccount is the e-mail of the account that tasks call as.
	ServiceAccount string
	// DispatchDeadline is how long Cloud Tasks waits for one answer.
	DispatchDeadline time.Duration
	// QueueShards is the number of queues over which one kind of work is
	// spread by submitter.
	QueueShards int
}

// Telemetry configures where metrics and traces go.
type Telemetry struct {
	// OTLPEndpoint is the host:port of a collector for OTLP over gRPC; "": none, and nothing
	// is traced.
	OTLPEndpoint string
	// Prometheus offers GET /metrics to every client that reaches the port.
	Prometheus bool
	// FlushEvery is how long metrics and spans may wait to be delivered at the end of a
	// request.
	FlushEvery time.Duration
	// TraceOneIn traces one of so many intents; 1: all.
	TraceOneIn int
	// Balances is the number of submitters whose balance is measured; 0: none.
	Balances int
}
