package acceptance

import (
	"net/url"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// remote is a function process with separate connections to the database and to the chain.
type remote struct {
	*processes.Process
	database *pgproxy.Proxy
	chain    *rpcproxy.Proxy
	sends    atomic.Int64 // transactions that it has sent
}

// startRemote starts a process that stops itself at the point, once.
func (b bench) startRemote(t *testing.T, point string) *remote {
	t.Helper()
	folder := t.TempDir()
	check(t, crash.Arm(folder, point, 1, crash.Stop))
	at := must(url.Parse(b.Database))(t)
	r := new(remote)
	r.database = must(pgproxy.Start(b.ctx, pgproxy.Options{Target: at.Host}))(t)
	t.Cleanup(r.database.Close)
	r.chain = must(rpcproxy.Start(rpcproxy.Options{Target: b.Chain.URL()}))(t)
	t.Cleanup(func() { _ = r.chain.Close() })
	r.chain.SetFaults(rpcproxy.Faults{Refuse: func(*types.Transaction) string {
		r.sends.Add(1)
		return "" // it accepts the task
	}})
	r.Process = must(b.StartProcess(b.ctx, map[string]string{
		"FENCEPOST_DATABASE_URL": r.database.URL(b.Setting("FENCEPOST_DATABASE_URL")),
		"FENCEPOST_RPC_URLS":     r.chain.URL(), crash.Variable: folder,
	}))(t)
	return r
}

// stopsAsHolder gives r the submitter's next advance, and waits until r has stopped while it holds the
// lease. It returns the lease's token and end.
func (b bench) stopsAsHolder(t *testing.T, r *remote, s txmanager.Submitter) (token int64, expires time.Time) {
	t.Helper()
	others := slices.DeleteFunc(b.Processes(), func(p *processes.Process) bool { return p == r.Process })
	for _, p := range others {
		b.URLMap.Remove(string(txmanager.KindAdvance), p.Addr())
	}
	b.postUntilAnswered(t, transfer(s, "held"))
	b.stopped(t, r.Process)
	check(t, b.DB.QueryRow(b.ctx, `select fencing_token, expires_at from submitter_lease where submitter = $1 and owner_node <> ''`, s).Scan(&token, &expires), "the lease of a process that stopped while it held it")
	for _, p := range others {
		check(t, b.URLMap.Add(string(txmanager.KindAdvance), p.Addr()))
	}
	return token, expires
}

// TX-010: a process that loses its connection to the database while it holds a lease can do nothing
// critical. It allocates no nonce and sends nothing that was not stored. Another process continues
// after the lease has expired, never before. When the connection returns, no delayed write takes
// effect. If its packets are lost silently, the process stops when its lease expires: the deadline of
// its invocation is later than this test waits.
func TestTX010CutOffFromTheDatabase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		point      string
		cut        func(bench, *remote)
		heal       func(*remote)
		maySend    int64 // sends allowed, of versions stored before
		signedByIt bool
	}{
		"refused before it has written": {"advance.looked", refuse, accept, 0, false},
		"refused before it has sent":    {"advance.sending", refuse, accept, 1, true},
		"silent before it has written":  {"advance.looked", silence, thaw, 0, false},
		"silent after it has sent":      {"advance.sent", silence, thaw, 1, true},
	} {
		parallel(t, name, func(t *testing.T) {
			b := setup(t, stack.Options{Processes: 2, Window: 2, Settings: withSettings(quick, map[string]string{"CLOUD_RUN_TIMEOUT_SECONDS": "900"})})
			s := b.Submitters()[0]
			r := b.startRemote(t, c.point)
			token, expires := b.stopsAsHolder(t, r, s)
			c.cut(b, r)
			check(t, r.Signal(syscall.SIGCONT))
			b.postUntilAnswered(t, transfer(s, "behind"))
			b.await(t, s, txmanager.Confirmed, 2)
			if sent := r.sends.Load(); sent > c.maySend { // fewer if the lease had to be renewed first
				t.Errorf("transactions sent by the one that is cut off: got %d, want at most %d", sent, c.maySend)
			}
			b.tookOver(t, token, expires, c.signedByIt)
			c.heal(r)
			b.logged(t, "fenced", "lease not released", "terminating connection") // logged by the process that wanted the lease
			b.postUntilAnswered(t, transfer(s, "after"))
			b.ends(t, map[txmanager.Submitter]int{s: 3})
			b.wantNoOldToken(t)
			b.inOrder(t)
		})
	}
}

// refuse makes every request to the process fail, so that Cloud Tasks retries it.
func refuse(_ bench, r *remote) {
	r.database.Refuse(true)
	r.database.CutAll()
}

func accept(r *remote) { r.database.Refuse(false) }

// silence delays every commit and all later packets, like a network that loses all packets. A request
// to the process would wait for a minute.
func silence(b bench, r *remote) {
	r.database.Arm(pgproxy.Fault{Kind: pgproxy.Freeze, Times: 1000})
	b.forget(r.Process)
}

func thaw(r *remote) {
	r.database.Disarm()
	r.database.Thaw()
}

// tookOver checks that others wrote only after the lease had expired.
func (b bench) tookOver(t *testing.T, token int64, expires time.Time, wrote bool) {
	t.Helper()
	b.wantCount(t, "writes by others before the lease had run out", 0, `select count(*) from tx_history where fencing_token > $1 and at < $2 and from_state is not null`, token, expires)
	n := b.count(`select count(*) from tx_history where fencing_token = $1 and state = 'SUBMITTED'`, token)
	if n < 0 || n > 0 != wrote {
		t.Errorf("nonces bound by the one that is cut off: got %d, want some: %v", n, wrote)
	}
}
