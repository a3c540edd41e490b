package acceptance

import (
	"net/http"
	"testing"

	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A process dies between the insert of a create and its commit. If the commit was never sent, nothing
// is stored. If it was sent, the intent can be stored. In both cases the caller's repetition is stored
// once.
func TestDeathBetweenInsertAndCommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		then   func(*pgproxy.Proxy)
		stored int // 1: possible
	}{
		"the commit never left":     {func(p *pgproxy.Proxy) { p.CutAll() }, 0},
		"the commit was on its way": {(*pgproxy.Proxy).Thaw, 1},
	} {
		parallel(t, name, func(t *testing.T) {
			b := setup(t, stack.Options{Processes: 1, WireProxy: true, Settings: quick})
			s := b.Submitters()[0]
			b.Proxy.Arm(pgproxy.Fault{Kind: pgproxy.Freeze, Match: pgproxy.Containing("insert into managed_tx")})
			dying := b.Processes()[0]
			answered := make(chan int, 1)
			go func() {
				status, _, _ := b.Call(b.ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx", transfer(s, "r"))
				answered <- status
			}()
			b.until(t, "no create came to its commit", func() bool { return b.Proxy.Counts().Hits[pgproxy.Freeze] == 1 })
			check(t, dying.Kill())
			<-dying.Done()
			equal(t, "the answer of a process that died", <-answered, http.StatusBadGateway)
			c.then(b.Proxy)
			b.noTransactionOpen(t)
			if n := b.count(`select count(*) from managed_tx`); n < 0 || n > c.stored {
				t.Errorf("rows after the death: got %d, want at most %d", n, c.stored)
			}
			first := b.postUntilAnswered(t, transfer(s, "r"))
			equal(t, "the request once more", b.postUntilAnswered(t, transfer(s, "r")), first)
			b.wantCount(t, "rows after the repeat", 1, `select count(*) from managed_tx`)
			b.ends(t, map[txmanager.Submitter]int{s: 1})
		})
	}
}

// noTransactionOpen waits until no session of the functions has an open transaction.
func (b bench) noTransactionOpen(t *testing.T) {
	t.Helper()
	b.awaitCount(t, "a transaction stays open", 0, `select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null`)
}
