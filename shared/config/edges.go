package config

import (
	"log/slog"
	"regexp"
	"strings"
	"time"
)

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

func (r *RPC) settings() []setting {
	return []setting{
		{name: "rpc.urls",
			meaning: "the default chain's nodes, in the order in which they are preferred (docs/nodes.md); a secret, since a URL often holds a key",
			field:   nodeURLs(&r.URLs)},
		{name: "rpc.quorum", def: "0",
			meaning: "of a chain with several nodes: how many must agree before a transaction ends, a receipt is withdrawn or PROTECT opens. More must agree than disagree. 0: more than half; of two nodes one, if the other does not disagree",
			field:   number(&r.Quorum, "a number of nodes", 0, maxNodes)},
		{name: "rpc.maxLag", def: "5",
			meaning: "of a chain with several nodes: how many blocks one may be behind what a quorum has reached, before it is excluded",
			field:   number(&r.MaxLag, "a number of blocks", 1, 10_000)},
		{name: "rpc.leaveOut", constant: true, def: "30s",
			meaning: "of a chain with several nodes: how long a node is excluded that lags, errs, is contradicted, or answers for another chain; heads are compared as often",
			field:   duration(&r.LeaveOut, 100*time.Millisecond, time.Hour)},
		{name: "rpc.timeout", def: "10s",
			meaning: "how long one round trip to the node may take; at most `lease.duration`",
			field:   duration(&r.Timeout, 100*time.Millisecond, 5*time.Minute)},
		{name: "rpc.maxInFlight", def: "100",
			meaning: "how many round trips to nodes an instance has under way at once, over all nodes of all chains",
			field:   number(&r.MaxInFlight, "a number of round trips", 1, 10_000)},
		{name: "rpc.maxBatch", def: "100",
			meaning: "how many calls one round trip to the node has at most; nodes refuse more than their own limit (Erigon and Bor 100, go-ethereum 1000)",
			field:   number(&r.MaxBatch, "a number of calls", 10, 1000)},
	}
}

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
	leastBlockTime = 10 * time.Millisecond
	mostBlockTime  = time.Hour
)

func (c *Chain) settings() []setting {
	return []setting{
		{name: "chain.id", required: true,
			meaning: "the default chain, which a bare address is on",
			field:   number(&c.ID, "an EIP-155 chain id", 1, maxChainID)},
		{name: "chain.blockTime", def: "12s",
			meaning: "the usual time between two blocks, to plan polls by; correctness does not depend on it",
			field:   duration(&c.BlockTime, leastBlockTime, mostBlockTime)},
		{name: "chain.feeKind", def: string(FeeKindEIP1559),
			meaning: "how the chain prices gas: by base fee and tip, or, legacy, by the one price that `eth_gasPrice` advises",
			field:   choice(&c.FeeKind, FeeKindEIP1559, FeeKindLegacy)},
		{name: "chain.finalizedTag", def: "true",
			meaning: "whether the chain has the block tag `finalized`. If it is false, a resync out of PROTECT accepts the count that is `confirmations.required` blocks below the head",
			field:   boolean(&c.FinalizedTag)},
	}
}

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

func (s *Signer) settings() []setting {
	return []setting{
		{name: "signer.local.keysFile",
			meaning: "the file with the private keys of the local signer, mounted from a secret",
			field:   text(&s.LocalKeysFile, "a path", path)},
		{name: "signer.local.keystore",
			meaning: "a folder of go-ethereum's encrypted key files, for accounts of the default chain; all are opened when the process starts",
			field:   text(&s.LocalKeystore, "a path", path)},
		{name: "signer.local.passwordFile",
			meaning: "the file whose first line is the password of `signer.local.keystore`, mounted from a secret",
			field:   text(&s.LocalPasswordFile, "a path", path)},
		{name: "signer.kms.endpoint",
			meaning: "a Cloud KMS other than Google's, reached without TLS and without credentials: the emulator's",
			field:   ownPort(&s.KMSEndpoint)},
		{name: "signer.remotesFile",
			meaning: "the list of remote signers by name, mounted from a secret, as docs/runbooks/signing-service.md shows it",
			field:   text(&s.RemotesFile, "a path", path)},
		{name: "signer.timeout", def: "5s",
			meaning: "how long one signature may take; a missing answer is unknown, and the signature is requested again. The lease bounds it too",
			field:   duration(&s.Timeout, 100*time.Millisecond, 5*time.Minute)},
		{name: "signer.parallel", def: "8",
			meaning: "how many signatures of one submitter's window are requested at once; a remote signer gets one request at a time",
			field:   number(&s.Parallel, "a number of signatures", 1, 100)},
	}
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

func (d *Database) settings() []setting {
	return []setting{
		{name: "database.url", required: true,
			meaning: "the connection to Postgres, with user and database; a secret",
			field:   secretText(&d.URL, "postgres://user@host:port/database, or the form user=… dbname=…", postgresAddress)},
		{name: "database.instance",
			meaning: "a Cloud SQL instance, reached by its private address as the service account that the function runs as; then `database.url` names only user and database, with `sslmode=disable`: the connector encrypts",
			field:   text(&d.Instance, "project:region:instance", instanceName)},
		{name: "database.maxConns", def: "4",
			meaning: "how many connections an instance opens at most; times the most instances it must stay below the server's `max_connections`",
			field:   number(&d.MaxConns, "a number of connections", 1, 100)},
		{name: "database.statementTimeout", constant: true, def: "5s",
			meaning: "how long a statement may run",
			field:   duration(&d.StatementTimeout, leastDatabaseTimeout, time.Minute)},
		{name: "database.lockTimeout", constant: true, def: "3s",
			meaning: "how long a statement may wait for a lock; below `lease.duration`",
			field:   duration(&d.LockTimeout, leastDatabaseTimeout, time.Minute)},
		{name: "database.idleInTransactionTimeout", constant: true, def: "1s",
			meaning: "how long a session may be idle in an open transaction; below `database.lockTimeout`",
			field:   duration(&d.IdleInTransactionTimeout, leastDatabaseTimeout, time.Minute)},
	}
}

// instanceName is a Cloud SQL connection name; a project's id may have a domain in
// front.
var instanceName = regexp.MustCompile(`^([a-z0-9.-]+:)?[a-z][a-z0-9-]+:[a-z0-9-]+:[a-z][a-z0-9-]+$`)

// postgresAddress accepts both forms of a connection string
// (https://www.postgresql.org/docs/current/libpq-connect.html); the driver
// looks closer.
func postgresAddress(text string) bool {
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://") ||
		!strings.Contains(text, "://") && strings.Contains(text, "=")
}

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

func (h *HTTP) settings() []setting {
	return []setting{
		{name: "http.maxBodyBytes", def: "262144",
			meaning: "how long a request's body may be; longer ones are answered 413 BODY_TOO_LARGE",
			field:   number(&h.MaxBodyBytes, "a number of bytes", 1024, 32<<20)},
		{name: "http.bodyTimeout", def: "20s",
			meaning: "how long a request's body may take to arrive; then the answer is 408 BODY_TIMEOUT, and the connection ends. Keep it below the service's own time-out",
			field:   duration(&h.BodyTimeout, 10*time.Millisecond, 10*time.Minute)},
		{name: "http.maxRequestsPerCaller", def: "32",
			meaning: "how many requests of one caller, operator or user an instance serves at once; further ones are answered 429 TOO_MANY_REQUESTS. Keep it below what an instance serves at once (`concurrency` in Terraform), so that there is room for others",
			field:   number(&h.MaxRequestsPerCaller, "a number of requests", 1, 100_000)},
		{name: "http.maxBytesPerCaller", def: "4194304",
			meaning: "how many bytes the bodies of those requests may have together, at least http.maxBodyBytes. A body without a Content-Length counts as the longest. Further requests are answered 429 TOO_MANY_REQUESTS",
			field:   number(&h.MaxBytesPerCaller, "a number of bytes", 1024, 1<<30)},
	}
}

// Log configures the log.
type Log struct {
	// Level is the lowest level that is written.
	Level slog.Level
}

func (l *Log) settings() []setting {
	return []setting{
		{name: "log.level", def: "info",
			meaning: "the least severity that is logged",
			field:   logLevel(&l.Level)},
	}
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

func (p *Platform) settings() []setting {
	return []setting{
		{name: "PORT", google: true, def: "8080",
			meaning: "where to listen; Cloud Run sets it",
			field:   number(&p.Port, "a port", 1, 65535)},
		{name: "FUNCTION_TARGET", google: true,
			meaning: "the one function to serve, at every path; if not set, all are served, each at its path",
			field:   text(&p.FunctionTarget, "a function's name", word)},
		{name: "K_SERVICE", google: true,
			meaning: "the service's name; Cloud Run sets it",
			field:   text(&p.Service, "a name", word)},
		{name: "K_REVISION", google: true,
			meaning: "the revision's name; Cloud Run sets it",
			field:   text(&p.Revision, "a name", word)},
		{name: "CLOUD_RUN_TIMEOUT_SECONDS", google: true,
			meaning: "the deadline of a request; to be set to the service's own time-out",
			field:   seconds(&p.Timeout, 1, 3600)},
	}
}
