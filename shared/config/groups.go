package config

import (
	"time"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Lease configures how long the right to act on a submitter lasts.
type Lease struct {
	Duration           time.Duration // how far ahead an acquire or a renewal puts the expiry, in the database's time
	RenewInterval      time.Duration // how old a lease session gets before it is renewed: below half of Duration
	ClockSkewAllowance time.Duration // how long a lease must have been expired before another owner takes it over: below Duration
	BatchWait          time.Duration // how long an advance may wait for others before it acquires its lease, to share the round trip
}

// Nonce configures the allocation of nonces.
type Nonce struct {
	StartFrom         uint64          // the first nonce of a submitter that is registered without one
	Strict            bool            // the next nonce is allocated only when the last one is final, whatever the submitter's window
	Placeholder       PlaceholderMode // selects whether a placeholder needs an operator's decision
	PlaceholderMaxFee uint64          // the highest fee of a placeholder, in wei per gas: at least 81/64 of [Fees.MaxFeePerGas]
	MaxInFlight       int             // the window of newly registered submitters; while Strict, a registration must name its window if this is above 1
	DeferAfter        time.Duration   // how long an intent may be blocked by its own bounds before intents of other callers pass it; 0: they never do
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
	MaxFeePerGas      uint64 // the highest fee of a first version, in wei per gas
	MaxFeePerTx       uint64 // the most that the gas of a first version may cost, in wei
	MaxTipMultiple    int64  // limits tips to this multiple of the nodes' advice
	MinTipBound       uint64 // the lowest value of that limit, in wei per gas
	History           bool   // true if tips follow the tips of the last blocks, in place of the node's advice
	HistoryBlocks     int    // the number of blocks that are read
	HistoryPercentile int    // the percentile of each block's tips, weighted by gas
}

// FeeKind is how a chain prices gas.
type FeeKind string

// A burnt base fee and a tip (EIP-1559), or a single price.
const (
	FeeKindEIP1559 FeeKind = "eip1559"
	FeeKindLegacy  FeeKind = "legacy"
)

// Intents configures the acceptance of intents, and the records of those that wait.
type Intents struct {
	MACKeys   []Secret // the keys of the MACs of intents: the first makes MACs, all of them check MACs
	MaxQueued int      // how many intents may wait for one submitter
	Diagnose  bool     // true if each chain query reports where a transaction without a receipt seems to be in nodes' pools
}

// Finality configures how included transactions are watched, and when they are final.
type Finality struct {
	Mode                txmanager.Finality
	Confirmations       int           // how many confirming blocks make a transaction final, where Mode is [txmanager.ByConfirmations]
	ReceiptWorkers      int           // the receipt queue's concurrency for each shard
	StaleReceiptTimeout time.Duration // how long a tracked transaction may go without a check before the sweep counts it as overdue
	WatchDepth          int           // the number of blocks below a submitter's last final one whose transactions stay under watch
}

const maxConfirmations = 1000

// maxQueueConcurrency is Cloud Tasks' own bound for one queue
// (google.cloud.tasks.v2.RateLimits, max_concurrent_dispatches).
const maxQueueConcurrency = 5000

// Sweep configures the search for submitters that lost tasks left behind.
type Sweep struct {
	Batch int           // how many submitters the sweep takes at a time
	Grace time.Duration // how long a step must be overdue before the sweep takes its submitter
}

// Hooks configures the reservation of nonces without an intent.
type Hooks struct {
	Enabled            bool          // true if Allocate, MarkUsed and MarkRecyclable may be called
	ReservationTimeout time.Duration // how long a nonce stays reserved for its owner without a mark
}

// GasBump configures the replacement of transactions without a receipt at a higher fee.
type GasBump struct {
	Enabled      bool          // true if gas bumps are made
	MinInterval  time.Duration // the time before a version is replaced: below stuck.after while Enabled
	MaxAttempts  int           // the largest number of replacements of one transaction
	Multiplier   int64         // raises both fees, in thousandths
	MaxFeePerGas uint64        // the highest fee that a replacement offers, in wei per gas: not above [Fees.MaxFeePerGas]
	BudgetPerDay uint64        // limits what the replacements of one submitter may add to its highest possible cost within 24 hours, in gwei
}

// Transfer configures internal transfers and payouts.
type Transfer struct {
	InitTimeout           time.Duration // the age at which a transfer that has not begun fails
	CallTimeout           time.Duration // the longest time of one call to a ledger: below RescueAfter
	RetryFirst, RetryMost time.Duration // the time until the next attempt after an unknown answer, doubled with each up to RetryMost
	RescueAfter           time.Duration // how long a transfer without a planned attempt may make no progress before its worker counts as lost
	Terms                 transfer.Terms
	UnusualPerMinute      int // the number of transfers of one user in a minute above which there is a warning
	// PayoutFinality is the expected time of a payout on its chain. A person is alerted after
	// twice that, or after twice what its blocks take if that is longer.
	PayoutFinality time.Duration
	PayoutMaxGas   uint64 // the largest gas limit of a payout's transaction
}

// Trading configures the trading core. Without it no transfers are offered.
type Trading struct {
	URL    string // the core's address, without a path; "" if there is none
	Secret Secret // the secret that the core requires of its callers
}

// Conservation configures the reaction to money that was created or lost.
type Conservation struct {
	Halt         conservation.Mode
	ChainBlocks  int           // read from a chain in one step; 0: no chain is read
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
	Quorum      int
	MaxLag      int           // how many blocks a node may be behind the others
	LeaveOut    time.Duration // how long a node is excluded that lags, returns errors, or is on another chain
	Timeout     time.Duration // the longest time of one round trip; a lease with less time left makes it shorter
	MaxInFlight int           // the largest number of concurrent round trips in one instance, over all nodes of all chains
	MaxBatch    int           // the largest number of JSON-RPC calls in one round trip
}

// maxNodes is how many nodes one chain may have.
const maxNodes = 9

// Chain is the deployment's default chain.
type Chain struct {
	ID           uint64        // its EIP-155 id: the chain of a bare address
	BlockTime    time.Duration // the usual time between two blocks, which only decides when to poll
	FeeKind      FeeKind       // how the chain prices gas
	FinalizedTag bool          // true if the chain's nodes know the block tag "finalized"
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
	LocalKeysFile     string        // the path of the file with local keys; "" for none
	LocalKeystore     string        // a folder of encrypted key files, for accounts of the default chain; "" for none
	LocalPasswordFile string        // the path of the file with the password of LocalKeystore
	KMSEndpoint       string        // host:port of a Cloud KMS on this machine, without TLS; "" is Google's
	RemotesFile       string        // the path of the list of remote signers; "" for none
	Timeout           time.Duration // how long one signature may take
	Parallel          int           // the limit of concurrent signatures for one submitter, where signing may happen before the nonce is bound
}

// Database configures the connection to the only authority, a Postgres database.
type Database struct {
	URL                      Secret        // the connection string for pgx, with the role and its password
	Instance                 string        // the connection name of a Cloud SQL instance, dialled in place of the URL's host; "" for none
	MaxConns                 int32         // of one instance; multiplied by the number of instances it must stay below the server's limit
	StatementTimeout         time.Duration // ends a statement that runs longer
	LockTimeout              time.Duration // ends a wait for a lock: below [Lease.Duration]
	IdleInTransactionTimeout time.Duration // ends a session that sits in an open transaction: below [Lease.Duration]
}

// The least database time-out is above 0 because Postgres reads 0 as "none".
const leastDatabaseTimeout = 100 * time.Millisecond

// Auth configures who may call.
type Auth struct {
	Issuer           string   // the issuer whose tokens are accepted, letter for letter
	JWKSURL          string   // the URL of its public keys
	PublicAudience   string   // the audience of tokens for public functions
	InternalAudience string   // the audience of tokens for internal functions; tasks are given it
	InternalAccounts []string // the e-mails that may call internal functions
	Operators        []string // the callers of admin functions, each with "email:" or "sub:" in front
	Viewers          []string // people who may read what operators can read, in the form of Operators
	DepositService   []string // the callers that may book deposits, within each asset's daily limit, in the form of Operators
	OpenIssuer       bool     // the issuer also gives tokens to people outside the organisation: no submitter may have "*" as its callers
	// UsersIssuer, UsersJWKSURL and UsersAudience configure the tokens of users, whose subject
	// is the user's id. They are unset if no transfers are offered.
	UsersIssuer, UsersJWKSURL, UsersAudience string
}

// Approvals configures which acts need two operators.
type Approvals struct {
	Required []string      // kinds out of [ApprovalKinds]
	ValidFor time.Duration // how long a proposal may wait to be approved and carried out
}

// ApprovalKinds are all kinds that can be required. docs/approvals.md lists the acts of each.
var ApprovalKinds = []string{"policy", "callers", "signer", "register", "release", "accept", "adjustments", "webhooks"}

// HTTP limits requests.
type HTTP struct {
	MaxBodyBytes         int64         // the largest size of a request's body
	MaxRequestsPerCaller int           // the limit of concurrent requests of one caller in one instance
	MaxBytesPerCaller    int64         // the limit of the total size of their bodies
	BodyTimeout          time.Duration // the longest time in which a request's body must arrive
}

// Platform has the variables of Cloud Run and the functions framework
// (https://cloud.google.com/run/docs/container-contract).
type Platform struct {
	Port              int           // the port to listen on
	FunctionTarget    string        // the one function to serve; "" serves all of them
	Service, Revision string        // name what runs; "" off the platform
	Timeout           time.Duration // the service's own time-out for a request, which the framework makes the deadline of its context; 0: none
}

// OnCloudRun is true if the process runs on Cloud Run.
func (p Platform) OnCloudRun() bool { return p.Service != "" }

// Handlers configures the business services that make transactions, by name.
type Handlers struct {
	URLs     map[string]string   // the addresses of the handlers: only these are called
	Secrets  map[string][]Secret // sign the calls of each handler, in the order given; two while a secret is rotated
	Timeout  time.Duration       // the longest time of one handler call
	Patience time.Duration       // how long a handler that answers "not now" is called again
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
	Mode           EventsMode          // selects how events are published
	Keep           time.Duration       // how long events can be read again, where they are kept
	Topic          string              // the Pub/Sub topic, projects/P/topics/T; "" for none
	PubSubEndpoint string              // host:port of a Pub/Sub without TLS; "" is Google's
	URLs           map[string]string   // the webhook endpoints, by name
	Secrets        map[string][]Secret // sign the events of each endpoint, in the order given
	Callers        map[string][]string // limit an endpoint to the transactions of these callers; one without an entry gets the events of all
	Timeout        time.Duration       // how long an endpoint may take over one event
}

// Kept is true if events are kept.
func (e Events) Kept() bool { return e.Mode == EventsOutbox || e.Mode == EventsWebhook }

// Mark configures the detection of a database that is not the one written last.
type Mark struct {
	Bucket   string // the Cloud Storage bucket of the mark; "": no mark is kept outside the database
	Endpoint string // a storage other than Google's; "" is Google's
}

// Tasks configures the task queues and the URL that tasks call.
type Tasks struct {
	Project, Location string        // the Google Cloud project and region of the queues; the project also names our traces
	Endpoint          string        // host:port of a local Cloud Tasks without TLS; "" is Google's
	QueuePrefix       string        // begins the id of each queue
	TargetURL         string        // the base URL of the internal functions, without a slash at its end
	ServiceAccount    string        // the e-mail of the account that tasks call as
	DispatchDeadline  time.Duration // how long Cloud Tasks waits for one answer
	QueueShards       int           // the number of queues over which one kind of work is spread by submitter
}

// Telemetry configures where metrics and traces go.
type Telemetry struct {
	OTLPEndpoint string        // the host:port of a collector for OTLP over gRPC; "": none, and nothing is traced
	Prometheus   bool          // offers GET /metrics to every client that reaches the port
	FlushEvery   time.Duration // how long metrics and spans may wait to be delivered at the end of a request
	TraceOneIn   int           // traces one of so many intents; 1: all
	Balances     int           // the number of submitters whose balance is measured; 0: none
}
