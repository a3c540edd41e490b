package acceptance

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/acceptance/payroll"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// payrollServer builds the functions with the payroll's handlers, once.
var payrollServer = sync.OnceValues(func() (string, error) {
	return stack.BuildProgram(context.Background(), filepath.Dir(acceptancetest.Server.Path), "emulator/acceptance/payroll/server", acceptancetest.RaceFlags...)
})

// withPayroll returns o for functions with the payroll compiled in.
func withPayroll(t *testing.T, o stack.Options) stack.Options {
	t.Helper()
	o.Binary = must(payrollServer())(t)
	return o
}

// payer returns a program of the business that posts requests: this test's process.
func (b bench) payer(t *testing.T) *functions.App {
	t.Helper()
	c := must(config.LoadForTests(b.Environment()))(t)
	app := must(functions.New(b.ctx, c, slog.New(slog.DiscardHandler), "payer", functions.Extensions{Handlers: payroll.Handlers()}))(t)
	t.Cleanup(func() { _ = app.Close(context.WithoutCancel(b.ctx)) })
	must(b.DB.Exec(b.ctx, `update submitter set callers = callers || '{handler:wage}' where not 'handler:wage' = any (callers)`))(t)
	return app
}

func (b bench) pay(t *testing.T, app *functions.App, s txmanager.Submitter, request, how string) (txID string) {
	t.Helper()
	return must(app.WithNonce(b.ctx, s, request, "wage", payroll.Wage{Wei: 5, How: how}))(t)
}

// TX-009: a handler that fails after its nonce was allocated costs a placeholder and leaves no gap.
// Its request ends FAILED/PLACEHOLDER with the reason. Earlier and later requests are carried out.
func TestTX009HandlerFailure(t *testing.T) {
	t.Parallel()
	windows(t, []int{1, 4}, func(t *testing.T, window int) {
		b := setup(t, withPayroll(t, stack.Options{Settings: quick, Window: window}))
		app, s := b.payer(t), b.Submitters()[0]
		paid := b.pay(t, app, s, "r-0", "")
		reasons := map[string]string{"fails": "the ledger of wages is closed", "panics": "panic: no such employee",
			"hangs": "no answer in time", "reverts": "would revert",
			"starves": "every node charges", "drivels": "204800 bytes"}
		failed := make(map[string]string)
		for how := range reasons {
			failed[how] = b.pay(t, app, s, "r-"+how, how)
		}
		b.postUntilAnswered(t, transfer(s, "behind them"))
		b.ends(t, map[txmanager.Submitter]int{s: len(reasons) + 2})
		b.wantState(t, "the one that pays", paid, "CONFIRMED")
		for how, want := range reasons {
			b.wantPlaceholder(t, "the one that "+how, failed[how], want)
		}
		equal(t, "the same request again", b.pay(t, app, s, "r-0", ""), paid)
	})
}

// H13: a handler that does not answer in time can have signed and sent elsewhere. A placeholder
// consumes its nonce, which never goes to another request.
func TestH13TimeOutNeverRecyclesANonce(t *testing.T) {
	t.Parallel()
	b := setup(t, withPayroll(t, stack.Options{Settings: quick}))
	app, s := b.payer(t), b.Submitters()[0]
	slow := b.pay(t, app, s, "slow", "hangs")
	next := b.postUntilAnswered(t, transfer(s, "next"))
	b.ends(t, map[txmanager.Submitter]int{s: 2})
	b.wantFate(t, "the one that timed out", slow, "FAILED/PLACEHOLDER", 0)
	b.wantFate(t, "the next", next, "CONFIRMED", 1)
}

// A request whose handler no process has gets no nonce. It waits in the queue with the reason, and
// once it is cancelled the next ones continue.
func TestNoProcessHasTheHandler(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	app, s := b.payer(t), b.Submitters()[0]
	wage := b.pay(t, app, s, "wage", "")
	behind := b.postUntilAnswered(t, transfer(s, "behind it"))
	r := b.becomes(t, wage, "told why it waits", func(r record) bool { return r.LastError != nil })
	if r.State != "QUEUED" || r.Nonce != nil || *r.LastError != "no handler wage in this process" {
		t.Errorf("the wage: got %s, nonce %v, %s; want QUEUED, and why", r.State, r.Nonce, text(r.LastError))
	}
	b.wantState(t, "behind it", behind, "QUEUED")
	b.call(t, stack.OperatorAccount, http.MethodPost, "/api/v1/tx/"+wage+"/cancel", nil).want("cancel by an operator", http.StatusOK)
	b.ends(t, map[txmanager.Submitter]int{s: 1})
}

// handlerEpisode makes a process die at a step of a handler; another process calls the handler again.
func handlerEpisode(t *testing.T, b bench, folder, point string) {
	app, s := b.payer(t), b.Submitters()[0]
	paid := b.pay(t, app, s, "r-0", "")
	b.killed(t, folder, point)
	b.postUntilAnswered(t, transfer(s, "behind it"))
	b.ends(t, map[txmanager.Submitter]int{s: 2})
	b.wantState(t, "the wage", paid, "CONFIRMED")
}

func text(s *string) string {
	if s == nil {
		return "nothing"
	}
	return *s
}
