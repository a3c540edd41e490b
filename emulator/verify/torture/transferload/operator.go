package transferload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers/rows"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Operator is the operator of transfers. It cancels some in INIT, resolves some that make no
// progress, asks for explanations, and starts full checks of conservation. It resumes no halt
// before a restore: nothing in a run steals money, so each halt is a violation.
type Operator struct {
	client.Client
	Stack   *stack.Stack
	DB      *pgxpool.Pool // lists the open transfers: the API does not
	Ledger  *Ledger
	Cashier *Cashier // settles what a restore lost
	Source  *rand.Rand
	Note    func(format string, args ...any)

	read        int // the generation of the database that was read
	settlements atomic.Int64
	settling    sync.Mutex // a payout is settled once, although two goroutines ask for it

	resolvedAt map[string]time.Time
	draining   atomic.Bool
	timeout    retry.Timeout
}

// The operator's acts, as they are counted and printed.
const (
	Cancels  = "transfers cancelled in INIT"
	TooLates = "cancels that came too late, refused"
	Resolves = "resolved: "
	Whys     = "asked why"
	Checks   = "full checks of conservation"
	Watches  = "checks of what is new"
)

// Acts returns the acts that are counted.
func Acts() []string {
	return []string{
		Cancels, TooLates, Whys, Checks, Watches,
		Resolves + string(transfer.Withdraw), Resolves + string(transfer.Deposit), Resolves + string(transfer.Refund),
	}
}

const (
	pollInterval  = 500 * time.Millisecond
	checkEvery    = 5 * time.Second // full checks
	watchEvery    = time.Second     // checks of new rows
	decisionPause = 4 * time.Second // between two decisions on one transfer
)

// Drain makes the operator decide nothing more: the open transfers finish alone.
func (c *Operator) Drain() { c.draining.Store(true) }

// Run acts on the open transfers until ctx ends. A call that fails is tried again.
func (c *Operator) Run(ctx context.Context) {
	c.resolvedAt = make(map[string]time.Time)
	var checked time.Time
	for ctx.Err() == nil {
		if time.Since(checked) > checkEvery {
			c.check(ctx)
			checked = time.Now()
		}
		// If the database, the chain or the core cannot be read, that act ends. It is tried again later.
		_ = steps.Run(func() { c.reconcile(ctx) })
		if !c.draining.Load() {
			_ = steps.Run(func() { c.actOnTransfers(ctx) })
		}
		retry.Pause(ctx, pollInterval)
	}
}

// Watch runs the check of new rows until ctx ends, as the scheduler does. Its findings are
// stored.
func (c *Operator) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		once, done := c.timeout.Context(ctx)
		if c.Stack.RunConservation(once) == nil {
			c.Ledger.Count(Watches)
		}
		done()
		retry.Pause(ctx, watchEvery)
	}
}

type open struct {
	ReqID string
	State transfer.State
	Stays bool // longer than without faults
}

func (c *Operator) actOnTransfers(ctx context.Context) {
	c.read = c.Ledger.Generation()
	for _, t := range rows.All(ctx, c.DB, pgx.RowToStructByPos[open], `
select req_id, state, failures > 0 and state_at < clock_timestamp() - interval '5 seconds'
  from transfers_tb where open order by transfer_id`) {
		switch {
		case t.State == transfer.Init && c.Source.IntN(4) > 0, c.Source.IntN(20) == 0:
			c.recordCancel(t, c.ask(ctx, http.MethodPost, "/admin/v1/transfers/"+t.ReqID+"/cancel", map[string]any{"reason": "the user has called"}))
		case t.Stays && time.Since(c.resolvedAt[t.ReqID]) > decisionPause && c.Source.IntN(3) == 0:
			c.resolve(ctx, t)
		case t.Stays && c.Source.IntN(5) == 0:
			c.recordExplanation(t, c.ask(ctx, http.MethodGet, "/admin/v1/transfers/"+t.ReqID+"/why", nil))
		}
	}
}

func (c *Operator) ask(ctx context.Context, method, path string, body any) client.Answer {
	a := c.Ask(ctx, method, path, body)
	if c.Replaced(c.read) {
		return client.Answer{} // the new database may not have what was read
	}
	return a
}

// recordCancel checks the answer to a cancel. It must cancel a transfer in INIT, and refuse
// any other.
func (c *Operator) recordCancel(t open, a client.Answer) {
	switch {
	case a.IsUnclear():
	case a.Status == http.StatusOK && a.State == transfer.Failed.String() && a.Reason == transfer.Cancelled:
		c.Ledger.Count(Cancels)
	case a.Status == http.StatusConflict && a.Code == "TOO_LATE":
		c.Ledger.Count(TooLates)
	default:
		c.Ledger.contradict(0, t.ReqID, fmt.Sprintf("cancelled in %s: got %s, want it CANCELLED, or TOO_LATE", t.State, a))
	}
}

func (c *Operator) resolve(ctx context.Context, t open) {
	op := t.State.AwaitedOp()
	if op == "" {
		return
	}
	c.resolvedAt[t.ReqID] = time.Now()
	a := c.ask(ctx, http.MethodPost, "/admin/v1/transfers/"+t.ReqID+"/resolve", map[string]any{"op": op, "reason": "it stays for too long"})
	c.Note("resolve of %s of %s: %s", op, t.ReqID, a)
	c.recordResolve(t, op, a)
}

func (c *Operator) recordResolve(t open, op transfer.Op, a client.Answer) {
	switch {
	case a.IsUnclear():
	case a.Status == http.StatusOK:
		c.Ledger.Count(Resolves + string(op))
	case a.Status == http.StatusConflict && a.Code == "NOTHING_TO_RESOLVE":
	default:
		c.Ledger.contradict(0, t.ReqID, fmt.Sprintf("%s resolved: got %s, want 200 or NOTHING_TO_RESOLVE", op, a))
	}
}

func (c *Operator) recordExplanation(t open, a client.Answer) {
	switch {
	case a.IsUnclear():
	case a.Status != http.StatusOK || a.ReqID != t.ReqID:
		c.Ledger.contradict(0, t.ReqID, fmt.Sprintf("asked why: got %s", a))
	default:
		c.Ledger.Count(Whys)
	}
}

// check runs a full check of conservation, which takes longer than other requests. It must find nothing, even with
// transfers in progress.
func (c *Operator) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c.recordCheck(c.AskOnce(ctx, http.MethodPost, "/admin/v1/conservation/check", map[string]any{"full": true}))
}

func (c *Operator) recordCheck(a client.Answer) {
	switch {
	case a.IsUnclear():
	case a.Result == "standing": // found and reported before
	case c.Ledger.Generation() > 0 && a.Result == "violated": // checked at the end of the run
	case a.Status != http.StatusOK || a.Result != "ok":
		c.Ledger.contradict(0, "", fmt.Sprintf("a full check of conservation: got %s, want ok", a))
	default:
		c.Ledger.Count(Checks)
	}
}
