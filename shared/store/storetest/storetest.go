// Package storetest gives each test a separate real database, equal to one that was migrated once for
// the process.
package storetest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/events"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Rules are the leases of tests: the default lengths.
var Rules = lease.Rules{Duration: 10 * time.Second, RenewBelow: 5 * time.Second, ClockSkewAllowance: time.Second}

// Bundle is a database of one test.
type Bundle struct {
	*store.Store
	EventLog *events.Log
	URL      string        // as its owner
	DB       *pgxpool.Pool // for looking behind the store's back
}

// New returns a database for t, as it is after the migrations. When t ends the database is reset for
// another test, or dropped if its schema has changed.
func New(t testing.TB) Bundle {
	t.Helper()
	return At(t, URL(t), Rules)
}

// NewClone is [New] with a database that no test has used: the sizes of its tables, from which Postgres
// chooses plans, are those after the migrations.
func NewClone(t testing.TB) Bundle {
	t.Helper()
	return NewIn(t, check.Value(pgcluster.Shared())(t))
}

// NewIn is [New] in a cluster that the test may restart. Its database is a new clone.
func NewIn(t testing.TB, cluster *pgcluster.Cluster) Bundle {
	t.Helper()
	check.OK(t)(cluster.Template(t.Context(), template, migrate))
	return At(t, cloneOf(t, cluster, template), Rules)
}

// NewCopy is [NewClone] with what fill has put into the database. It is called once for each name, and its
// database is copied for every test: a copy takes a small part of the time of many inserts.
func NewCopy(t testing.TB, name string, fill func(Bundle)) Bundle {
	t.Helper()
	cluster := check.Value(pgcluster.Shared())(t)
	check.OK(t)(cluster.Template(t.Context(), name, func(ctx context.Context, url string) error {
		err := migrate(ctx, url)
		if err == nil {
			fill(At(t, url, Rules))
		}
		return err
	}))
	return At(t, cloneOf(t, cluster, name), Rules)
}

// At is the database at the URL, with the lease durations given.
func At(t testing.TB, url string, rules lease.Rules) Bundle {
	t.Helper()
	s := Open(t, Options(url, rules))
	db := check.Value(pgxpool.New(t.Context(), url))(t)
	t.Cleanup(db.Close)
	return Bundle{Store: s, EventLog: events.New(s), URL: url, DB: db}
}

// Open opens a store that is closed when t ends.
func Open(t testing.TB, o store.Options) *store.Store {
	t.Helper()
	s := check.Value(store.Open(t.Context(), o))(t)
	t.Cleanup(s.Close)
	return s
}

// Options are those of production with the rules given.
func Options(url string, rules lease.Rules) store.Options {
	return store.Options{
		URL: url, MaxConns: 8, Lease: rules,
		StatementTimeout: 5 * time.Second, LockTimeout: 3 * time.Second, IdleInTransactionTimeout: time.Second,
	}
}

// URL returns the URL of a database for t, as [New] does.
func URL(t testing.TB) string {
	t.Helper()
	cluster := check.Value(pgcluster.Shared())(t)
	check.OK(t)(cluster.Template(t.Context(), template, migrate))
	return cluster.URL(reusable.take(t, cluster))
}

// cloneOf is the URL of a copy of the database, which is dropped when t ends.
func cloneOf(t testing.TB, cluster *pgcluster.Cluster, database string) string {
	t.Helper()
	name, drop, err := cluster.Clone(t.Context(), database)
	check.OK(t)(err)
	t.Cleanup(drop)
	return cluster.URL(name)
}

// template is a migrated database in which intents may be without a MAC, as after an
// upgrade: most tests are about something else. See [migrations.RequireMACs].
const template = "migrated_unmarked"

func migrate(ctx context.Context, url string) error {
	_, err := migrations.Up(ctx, url, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err == nil {
		_, err = migrations.RequireMACs(ctx, url, false, "storetest", "tests of other things")
	}
	return err
}

// Copy copies b's database as it is now, in the same cluster, with every identity. It closes
// b; [At] opens its database anew.
func Copy(t testing.TB, b Bundle) Bundle {
	t.Helper()
	at := check.Value(url.Parse(b.URL))(t)
	b.DB.Close()
	b.Store.Close()
	return At(t, cloneOf(t, check.Value(pgcluster.Shared())(t), strings.TrimPrefix(at.Path, "/")), Rules)
}

// Callers are the callers of the submitters that [Bundle.Register] registers.
var Callers = []string{"*", "shop", "test", "bank", "till", "quiet", "caller", "c", "handler:wage", "handler:pays"}

// Register puts sub under management with the window given, for the callers, or for [Callers].
func (b Bundle) Register(t testing.TB, sub txmanager.Submitter, window int, callers ...string) {
	t.Helper()
	if callers == nil {
		callers = Callers
	}
	check.OK(t)(b.Store.Register(t.Context(), store.Registration{
		Submitter: sub, Signer: "local", MaxInFlight: window, Callers: callers, CreatedBy: "test",
	}))
}

// Proposed is an act that the person proposes.
func (b Bundle) Proposed(t testing.TB, by, kind, act string, subject map[string]any) store.Proposal {
	t.Helper()
	return check.Value(b.Propose(t.Context(), store.NewProposal{
		Kind: kind, Act: act, Subject: subject, Method: "PUT", Path: "/", Body: "{}", Call: "{}",
		Effect: "an effect", By: by, Names: []string{by}, Reason: "r", ValidFor: time.Hour,
	}))(t)
}

// Approved is an act that ann proposes and ben has approved.
func (b Bundle) Approved(t testing.TB, kind, act string, subject map[string]any) store.Proposal {
	t.Helper()
	p := b.Proposed(t, "ann", kind, act, subject)
	verdict, _, err := b.ApproveProposal(t.Context(), store.Approval{ProposalID: p.ID, By: "ben", Names: []string{"ben"}, Reason: "r"})
	if err != nil || verdict != store.VerdictOpen {
		t.Fatalf("approve: got %s, %v; want %s", verdict, err, store.VerdictOpen)
	}
	return p
}

// Violated is the name of the constraint that refused a statement, by the results of its call.
func Violated(returned ...any) string {
	err, _ := returned[len(returned)-1].(error)
	return cmp.Or(results.Refusal(err).ConstraintName, fmt.Sprintf("none (error %v)", err))
}

// Signed stands for a signed transaction for nonce n of s. Its bytes are data without a
// signature, and its hash is that of data.
func Signed(s txmanager.Submitter, n uint64, data string) txmanager.Signed {
	raw := Bytes(s.ChainID(), n, eip155.Address([20]byte{9}), 1, data)
	return txmanager.Signed{Hash: sha256.Sum256([]byte(data)), Raw: raw}
}

// Bytes are the unsigned bytes of a transaction with that call.
func Bytes(chainID, n uint64, to txmanager.Address, valueWei int64, data string) []byte {
	raw, err := types.NewTx(&types.DynamicFeeTx{
		ChainID: new(big.Int).SetUint64(chainID), Nonce: n, To: (*common.Address)(eip155.Recipient(&to)), Value: big.NewInt(valueWei), Data: []byte(data), Gas: 21_000,
		GasFeeCap: big.NewInt(1), GasTipCap: big.NewInt(1), V: new(big.Int), R: big.NewInt(1), S: big.NewInt(1),
	}).MarshalBinary()
	if err != nil {
		panic(err) // of its own making
	}
	return raw
}
