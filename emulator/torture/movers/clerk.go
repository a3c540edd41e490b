package movers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/torture/patience"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Clerk is the operator of transfers: cancels some that have not begun, resolves some
// that stay, looks why, and has the books checked. A halt is nobody's to resume here:
// nothing in a run steals money, so that each is a violation.
type Clerk struct {
	Stack  *stack.Stack
	DB     *pgxpool.Pool // what stays: the API lists no transfers
	Ledger *Ledger
	Teller *Teller // who settles what a restore lost
	Source *rand.Rand
	Note   func(format string, args ...any)

	read        int             // the generation of the database of which the clerk acts
	generation  int             // of the database that was reconciled last
	stated      map[string]bool // payouts of which it was said whether they were paid
	settlements atomic.Int64
	settling    sync.Mutex // one payout is settled once, whoever asks for it

	resolvedAt map[string]time.Time
	calm       atomic.Bool
	patience   patience.Patience
}

// What the operator does, as it is counted.
const (
	Cancels  = "transfers cancelled in INIT"
	TooLates = "cancels that came too late, refused"
	Resolves = "resolved: "
	Whys     = "asked why"
	Checks   = "full checks of conservation"
	Watches  = "checks of what is new"
)

// Acts lists what is counted.
func Acts() []string {
	all := []string{Cancels, TooLates, Whys, Checks, Watches}
	for _, op := range []transfer.Op{transfer.Withdraw, transfer.Deposit, transfer.Refund} {
		all = append(all, Resolves+string(op))
	}
	return all
}

const (
	rounds     = 500 * time.Millisecond
	checkEvery = 5 * time.Second // a full check
	watchEvery = time.Second     // a check of what is new
	thinking   = 4 * time.Second // between two decisions on one transfer
)

// Calm has the clerk decide nothing any more: what is left ends by itself.
func (c *Clerk) Calm() { c.calm.Store(true) }

// Run looks after the transfers until ctx ends. What fails is tried again.
func (c *Clerk) Run(ctx context.Context) {
	c.resolvedAt = make(map[string]time.Time)
	var checked time.Time
	for ctx.Err() == nil {
		if time.Since(checked) > checkEvery {
			c.check(ctx)
			checked = time.Now()
		}
		c.reconcile(ctx)
		if !c.calm.Load() {
			c.round(ctx)
		}
		patience.Pause(ctx, rounds)
	}
}

// Watch has what is new checked until ctx ends, as the schedule does. What a check
// finds is on record.
func (c *Clerk) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		once, done := c.patience.Bound(ctx)
		if c.Stack.RunConservation(once) == nil {
			c.Ledger.did(Watches)
		}
		done()
		patience.Pause(ctx, watchEvery)
	}
}

// open is a transfer that has not ended.
type open struct {
	ReqID string
	State transfer.State
	Stays bool // longer than it takes where nothing is wrong
}

func (c *Clerk) round(ctx context.Context) {
	c.read = c.Ledger.Generation()
	rows, _ := c.DB.Query(ctx, `
select req_id, state, failures > 0 and state_at < clock_timestamp() - interval '5 seconds'
  from transfers_tb where open order by transfer_id`) // the collector has the error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[open])
	if err != nil {
		return
	}
	for _, t := range all {
		switch {
		case t.State == transfer.Init && c.Source.IntN(4) > 0, c.Source.IntN(20) == 0:
			c.cancel(ctx, t)
		case t.Stays && time.Since(c.resolvedAt[t.ReqID]) > thinking && c.Source.IntN(3) == 0:
			c.resolve(ctx, t)
		case t.Stays && c.Source.IntN(5) == 0:
			c.why(ctx, t)
		}
	}
}

func (c *Clerk) call(ctx context.Context, method, path string, body any) (a answer) {
	ctx, done := c.patience.Bound(ctx)
	defer done()
	status, text, err := c.Stack.Call(ctx, stack.OperatorAccount, method, path, body)
	if err != nil || status != http.StatusNoContent && json.Unmarshal(text, &a) != nil {
		return answer{}
	}
	if c.Ledger.Generation() != c.read {
		return answer{} // the database was replaced meanwhile, and may not know what the clerk has read
	}
	a.status, a.text = status, text
	return a
}

func (c *Clerk) cancel(ctx context.Context, t open) {
	c.cancelled(t, c.call(ctx, http.MethodPost, "/admin/v1/transfers/"+t.ReqID+"/cancel", map[string]any{"reason": "the user has called"}))
}

// cancelled: a cancel must end a transfer that is in INIT, and be refused for any
// other.
func (c *Clerk) cancelled(t open, a answer) {
	switch {
	case a.unclear():
	case a.status == http.StatusOK && a.end() != nil && *a.end() == End{transfer.Failed, transfer.Cancelled}:
		c.Ledger.did(Cancels)
	case a.status == http.StatusConflict && a.Code == "TOO_LATE":
		c.Ledger.did(TooLates)
	default:
		c.Ledger.lie(0, t.ReqID, fmt.Sprintf("cancelled in %s: got %s, want it CANCELLED, or TOO_LATE", t.State, a))
	}
}

func (c *Clerk) resolve(ctx context.Context, t open) {
	op := t.State.Asks()
	if op == "" {
		return
	}
	c.resolvedAt[t.ReqID] = time.Now()
	a := c.call(ctx, http.MethodPost, "/admin/v1/transfers/"+t.ReqID+"/resolve", map[string]any{"op": op, "reason": "it stays for too long"})
	c.Note("resolve of %s of %s: %s", op, t.ReqID, a)
	c.resolved(t, op, a)
}

func (c *Clerk) resolved(t open, op transfer.Op, a answer) {
	switch {
	case a.unclear():
	case a.status == http.StatusOK:
		c.Ledger.did(Resolves + string(op))
	case a.status == http.StatusConflict && a.Code == "NOTHING_TO_RESOLVE":
	default:
		c.Ledger.lie(0, t.ReqID, fmt.Sprintf("%s resolved: got %s, want 200 or NOTHING_TO_RESOLVE", op, a))
	}
}

func (c *Clerk) why(ctx context.Context, t open) {
	c.explained(t, c.call(ctx, http.MethodGet, "/admin/v1/transfers/"+t.ReqID+"/why", nil))
}

func (c *Clerk) explained(t open, a answer) {
	switch {
	case a.unclear():
	case a.status != http.StatusOK || a.ReqID != t.ReqID:
		c.Ledger.lie(0, t.ReqID, fmt.Sprintf("asked why: got %s", a))
	default:
		c.Ledger.did(Whys)
	}
}

// check has everything checked from the beginning. It must find nothing, whatever is
// under way.
func (c *Clerk) check(ctx context.Context) {
	const within = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	status, text, err := c.Stack.Call(ctx, stack.OperatorAccount, http.MethodPost, "/admin/v1/conservation/check", map[string]any{"full": true})
	if err == nil {
		c.checked(status, text)
	}
}

func (c *Clerk) checked(status int, text []byte) {
	var report struct{ Result string }
	switch {
	case status >= 500 || json.Unmarshal(text, &report) != nil: // no verdict
	case report.Result == "standing": // it was found, and told, before
	case c.Ledger.Generation() > 0 && report.Result == "violated": // each finding is judged at the end
	case status != http.StatusOK || report.Result != "ok":
		c.Ledger.lie(0, "", fmt.Sprintf("a full check of conservation: got %d %s, want ok", status, bytes.TrimSpace(text)))
	default:
		c.Ledger.did(Checks)
	}
}
