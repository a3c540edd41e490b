package pgproxy_test

import (
	"context"
	"crypto/sha256"
	"math/big"
	"net"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// After the last test no goroutine of a proxy is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const alice = txmanager.Submitter("eip155:1337:0x00000000000000000000000000000000000a11ce")

// proxied starts a proxy before the server of a database.
func proxied(t testing.TB, databaseURL string) *pgproxy.Proxy {
	t.Helper()
	config := check.Value(pgx.ParseConfig(databaseURL))(t)
	p := check.Value(pgproxy.Start(context.WithoutCancel(t.Context()), pgproxy.Options{Target: net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))}))(t)
	t.Cleanup(p.Close)
	return p
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	return connectBy(t, check.Value(pgx.ParseConfig(url))(t))
}

func connectBy(t testing.TB, config *pgx.ConnConfig) *pgx.Conn {
	t.Helper()
	c := check.Value(pgx.ConnectConfig(t.Context(), config))(t)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// emptyDatabase returns the URL of a database with one table, t (n int primary key).
func emptyDatabase(t testing.TB) string {
	t.Helper()
	cluster := check.Value(pgcluster.Shared())(t)
	name, drop, err := cluster.Clone(t.Context(), "template1")
	check.OK(t)(err)
	t.Cleanup(drop)
	do(t, connect(t, cluster.URL(name)), `create table t (n int primary key)`)
	return cluster.URL(name)
}

func do(t testing.TB, c *pgx.Conn, statement string, args ...any) {
	t.Helper()
	if _, err := c.Exec(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func value[T any](t testing.TB, c *pgx.Conn, query string, args ...any) (v T) {
	t.Helper()
	if err := c.QueryRow(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// errOf is the error of a call.
func errOf[T any](_ T, err error) error { return err }

// scene is a database with the submitter alice, a store behind a proxy, and connections without the proxy.
type scene struct {
	*testing.T
	direct storetest.Bundle
	conn   *pgx.Conn // without the proxy, too
	proxy  *pgproxy.Proxy
	store  *store.Store
}

// newScene has a pool of maxConns behind the proxy, with changed options.
func newScene(t *testing.T, maxConns int, change func(*store.Options)) scene {
	t.Helper()
	sc := scene{T: t, direct: storetest.New(t)}
	sc.direct.Register(t, alice, 1)
	sc.conn = connect(t, sc.direct.URL)
	sc.proxy = proxied(t, sc.direct.URL)
	sc.store = sc.open(maxConns, change)
	// Close waits for the pool's connections, so the proxy must release them first.
	t.Cleanup(sc.proxy.Close)
	return sc
}

// open returns one more store behind the proxy.
func (sc scene) open(maxConns int, change func(*store.Options)) *store.Store {
	sc.Helper()
	o := storetest.Options(sc.proxy.URL(sc.direct.URL), storetest.Rules)
	o.MaxConns = maxConns
	if change != nil {
		change(&o)
	}
	s := check.Value(store.Open(sc.Context(), o))(sc)
	sc.Cleanup(s.Close)
	return s
}

// awaitFrozen waits until a transaction is frozen and the server waits for the rest of its batch.
func (sc scene) awaitFrozen() {
	sc.Helper()
	storetest.Await(sc, "a transaction is frozen", func() bool {
		return sc.proxy.Counts().Hits[pgproxy.Freeze] == 1 && value[bool](sc, sc.conn, `select exists (
			select from pg_stat_activity
			 where datname = current_database() and application_name = 'fencepost'
			   and query = 'commit' and state = 'active' and wait_event = 'ClientRead')`)
	})
}

func (sc scene) txs() int {
	return value[int](sc, sc.conn, `select count(*) from managed_tx where submitter = $1`, alice)
}

func intent(requestID string) store.Intent {
	return store.Intent{
		TxID: uuid.NewString(), Submitter: alice, RequestID: requestID, Caller: "test",
		Payload: []byte(`{}`), Fingerprint: sha256.Sum256(nil),
	}
}

// allocation binds the head of the queue of w, with its signed bytes.
func allocation(w txmanager.SubmitterState) txmanager.Commit {
	head := w.Queue[0]
	one := big.NewInt(1)
	head.Gas = &txmanager.GasParams{Gas: 21_000, FeeCapWei: one, TipCapWei: one, ValueWei: one}
	signed := storetest.Signed(alice, w.NextNonce, head.ID)
	return txmanager.Commit{Lease: w.Lease, Allocations: []txmanager.Allocation{{Tx: head, Nonce: w.NextNonce, Signed: &signed}}}
}
