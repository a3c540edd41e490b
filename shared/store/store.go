// Package store has every SQL statement on the project's tables, one file per table or per
// act. Exported methods are transactions, unexported functions are statements.
//
// The outcome of a method that returns an error is unknown unless its documentation says
// otherwise: a commit may have happened although its answer was lost. A caller that continues
// must read again first. All times come from the database's clock.
package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Store is a pool of connections to the one database.
type Store struct {
	db        *pgxpool.Pool
	opts      Options
	rules     lease.Rules
	bumpAfter *time.Duration // nil: never

	bounds queueRooms

	// unlimited are submitters without a policy. Their intents share one statement; each other intent has its own, in the
	// same round trip. A stale entry costs a second round trip and has no other effect.
	unlimited cache[txmanager.Submitter, bool]

	creates *batch.Group[pendingCreate, Created]
	leases  *batch.Group[leaseCall, leaseAnswer]
	commits *batch.Group[*fencedCommit, txmanager.CommitResult]
	lane    batch.Lane

	// epoch is the database's, as the last load or create returned it.
	epoch cache[thisDatabase, string]

	// names are the name epochs of submitters, as the last load or create returned them. Only submitters that were released
	// by resync have one. All are kept: without the epoch a task would get the name of one before the release.
	names cache[txmanager.Submitter, string]

	// costly are submitters whose load would delay those that share its round trip, by the last load of each alone.
	costly cache[txmanager.Submitter, bool]

	// usable are pairs of a caller's names and a submitter that the caller may use, by digests: names may be long. They only
	// save a query before an insert, which checks again. If the insert refuses a pair, the pair is removed. Refusals are not
	// kept, so that a new caller is accepted at once.
	usable cache[[sha256.Size]byte, bool]
}

// Options configure the connection to the database and its time-outs.
type Options struct {
	URL      string
	Dial     pgconn.DialFunc // connects in place of the URL's host; may be nil
	MaxConns int
	Lease    lease.Rules

	// Each time-out must be shorter than the lease. No lock on a lease row may outlive the
	// lease, even if its client is frozen.
	StatementTimeout         time.Duration
	LockTimeout              time.Duration
	IdleInTransactionTimeout time.Duration

	// StuckAfter is the time without a receipt after which a transaction may be STUCK. Younger
	// transactions are loaded without payload and bytes; 0: all are loaded complete.
	StuckAfter time.Duration

	// GasBumpAfter is the time without a receipt after which a transaction may be replaced at
	// a higher fee. Such a transaction is loaded with its payload, and the submitter with the
	// cost of its replacements; 0: neither is.
	GasBumpAfter time.Duration

	// Strict is true if one nonce of a submitter is open at a time, whatever its window.
	Strict bool

	// AnyCaller is true if [AnyCaller] in a submitter's callers matches every token.
	AnyCaller bool

	// MACs makes the MACs of intents; nil: this process accepts none.
	MACs MACMaker

	// MACKeys are the ids of the keys by which this process checks MACs. A queued intent whose
	// MAC names another key is loaded once, and again when this process has the key. nil: this
	// process checks no MACs and loads all.
	MACKeys []string

	// BlockTime is the longest block time of the chains. See [Store.Overdue].
	BlockTime time.Duration

	// AcquireWait is how long an acquire may wait for others to share its round trip, in a context
	// of [WithPatience], while no round trip is under way.
	AcquireWait time.Duration

	Events   EventMode
	OnEvents func(context.Context, CommittedEvents) // gets the events, in the context of the statement that made them; nil: they are dropped
}

// Open creates the pool. It does not connect yet.
func Open(ctx context.Context, o Options) (*Store, error) {
	cfg, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, errors.New("database.url is not a Postgres URL") // the text of err holds the password
	}
	cfg.MaxConns = int32(o.MaxConns)
	cfg.MaxConnIdleTime = 5 * time.Minute
	cfg.PingTimeout = 2 * time.Second
	cfg.ConnConfig.ConnectTimeout = 3 * time.Second
	cfg.ConnConfig.Tracer = Tracer{o.OnEvents}
	if o.OnEvents != nil {
		cfg.ConnConfig.OnNotice = notice
		cfg.ConnConfig.RuntimeParams["client_min_messages"] = "notice"
	}
	if o.Dial != nil {
		cfg.ConnConfig.DialFunc = o.Dial
		cfg.ConnConfig.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	}
	milliseconds := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	maps.Copy(cfg.ConnConfig.RuntimeParams, map[string]string{
		"application_name": "fencepost",
		"fencepost.events": string(o.Events),

		"statement_timeout":                   milliseconds(o.StatementTimeout),
		"lock_timeout":                        milliseconds(o.LockTimeout),
		"idle_in_transaction_session_timeout": milliseconds(o.IdleInTransactionTimeout),

		// A peer that vanished is noticed well within a lease.
		"tcp_keepalives_idle": "3", "tcp_keepalives_interval": "1", "tcp_keepalives_count": "3",

		// Every statement has a key, so the plan is the same for any number of rows. A plan made
		// while a table or partition was empty must not scan it once it has grown. JIT compilation
		// never pays off.
		"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off",
	})
	db, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return newStore(db, o), nil
}

func newStore(db *pgxpool.Pool, o Options) *Store {
	s := &Store{db: db, opts: o, rules: o.Lease}
	s.costly.lasts, s.epoch.lasts, s.names.keepsAll = costlyFor, epochTTL, true
	if o.GasBumpAfter > 0 {
		s.bumpAfter = &o.GasBumpAfter
	}
	s.lane.Pause = lanePause
	s.creates, s.leases, s.commits = s.newCreates(), s.newLeases(o.AcquireWait), s.newCommits()
	return s
}

// Pool is the pool itself, for the packages that hold the SQL of other tables.
func (s *Store) Pool() *pgxpool.Pool { return s.db }

// LeaseRules are those of the options.
func (s *Store) LeaseRules() lease.Rules { return s.rules }

// Close closes every connection, waiting for those in use.
func (s *Store) Close() { s.db.Close() }

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.db.Ping(ctx) }

// SQLSTATEs raised by the database functions require_lease, close_incident, refuse_by_policy and
// refuse_while_moving.
const (
	fencedCode   = "FP001"
	incidentCode = "FP005"
	policyCode   = "FP010"
	movingCode   = "FP013"

	proposalCode  = "FP014" // of carry_out_proposal
	proposalsCode = "FP015" // of propose_act
	openWorkCode  = "FP016" // of a retirement
)

// fence maps the SQLSTATEs of the database's functions to their errors.
func fence(err error) error {
	switch pg := results.Refusal(err); pg.Code {
	case fencedCode:
		return fmt.Errorf("%s: %w", pg.Message, lease.ErrFenced)
	case incidentCode:
		return fmt.Errorf("%s: %w", pg.Message, txmanager.ErrIncidentClosed)
	case policyCode:
		return PolicyError{PolicyRule(pg.Message), pg.Detail}
	}
	return err
}
