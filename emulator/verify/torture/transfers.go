package main

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers/rows"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/transferload"
	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/transfer"
)

// userCount is the number of users who move money; the last has no Funding account.
const userCount = 12

// snapshotEvery makes the core write snapshots during the run, and start from them.
const snapshotEvery = 500

// transferSettings let the rescue find an abandoned transfer within seconds. Some of these are
// then too old to begin.
var transferSettings = map[string]string{
	"FENCEPOST_TRANSFER_CALL_TIMEOUT": "1500ms", "FENCEPOST_TRANSFER_RESCUE_AFTER": "3s", "FENCEPOST_TRANSFER_INIT_TIMEOUT": "5s",
	"FENCEPOST_TRANSFER_RETRY_FIRST": "200ms", "FENCEPOST_TRANSFER_RETRY_MOST": "2s",
}

// transferRun is the transfer side of a run: users, cashier and operator.
type transferRun struct {
	*transferload.Load
	cashier  *transferload.Cashier
	operator *transferload.Operator
}

// startTransferRun books the opening balances. It then waits until no reorg can remove the
// contracts from the chain.
func (e *episode) startTransferRun(ctx context.Context) {
	var closed []string // addresses that take no coin
	for _, code := range [][]byte{contracts.Closed(), contracts.Ungrateful()} {
		closed = append(closed, steps.Value(e.env.Deploy(ctx, code)).String())
	}
	b := &transferRun{Load: &transferload.Load{
		Stack: e.env, Users: userCount, Rate: e.transfers, Closed: closed, Source: e.forkSource(), Ledger: new(transferload.Ledger),
	}}
	b.cashier = &transferload.Cashier{Stack: e.env, Ledger: b.Ledger, Users: userCount, Source: e.forkSource()}
	b.operator = &transferload.Operator{
		Client: client.NewClient(e.env, stack.OperatorAccount, b.Ledger.Generation), Stack: e.env, DB: e.db,
		Ledger: b.Ledger, Cashier: b.cashier, Source: e.forkSource(), Note: e.folder.event,
	}
	e.operator.Payer, e.operator.IsNeverRepeated = e.env.Payer, b.operator.IsNeverRepeated
	e.transferRun = b
	steps.OK(b.cashier.Open(ctx))
	steps.OK(e.env.Chain.WaitBlock(ctx, e.env.Chain.Head()+confirmations))
}

// startTransferClients starts the clients: some run until posting ends, all until within ends.
func (e *episode) startTransferClients(posting, within context.Context, living *sync.WaitGroup) {
	if e.transferRun == nil {
		return
	}
	revivals := e.forkSource()
	living.Go(func() { e.transferRun.Run(posting, within) })
	living.Go(func() { e.transferRun.cashier.Run(posting, within) })
	living.Go(func() { e.transferRun.operator.Run(within) })
	living.Go(func() { e.transferRun.operator.Watch(within) })
	living.Go(func() { e.world.Supervisor.Run(within, revivals) })
}

// isWaiting reports whether a user waits for an end or the trading core is down. A halt of new
// transfers is a violation; then users whose transfer was never accepted do not count.
func (e *episode) isWaiting(ctx context.Context) bool {
	if e.transferRun == nil {
		return false
	}
	t := e.transferRun.Ledger.Tally()
	waiting := t.Waiting > 0
	var halted bool
	_ = e.db.QueryRow(ctx, `select exists (select from transfer_halt where resumed_at is null)`).Scan(&halted) // an error counts as no halt
	if halted && waiting {
		waiting = t.Accepted > t.Ends["COMMITTED"]+t.Ends["FAILED"]+t.Ends["ROLLED_BACK"]
	}
	return waiting || e.env.Core.Process().Err() != nil
}

// transferFigures are the printed figures of the transfer side.
type transferFigures struct {
	Rate      float64        `json:"rate"`
	Users     map[string]int `json:"users"`
	Operators map[string]int `json:"operators"`
	Restored  map[string]int `json:"reconciledAfterRestores,omitempty"` // acts that happen only after a restore

	Posted    int            `json:"posted"`
	Accepted  int            `json:"accepted"` // by an answer
	Transfers map[string]int `json:"internal"` // by end
	Payouts   map[string]int `json:"payouts"`

	Lines    int `json:"journalLines"`   // of both ledgers
	Calls    int `json:"callsToTheCore"` // recorded by the proxy; each is repeated three times
	Restarts int `json:"coreStartedAgain"`
}

func (e *episode) countTransfers(ctx context.Context) *transferFigures {
	if e.transferRun == nil {
		return nil
	}
	t := e.transferRun.Ledger.Tally()
	f := &transferFigures{
		Rate: e.transfers, Users: e.transferRun.Ledger.Did(transferload.Habits()), Operators: e.transferRun.Ledger.Did(transferload.Acts()),
		Posted: t.Posted, Accepted: t.Accepted, Transfers: make(map[string]int), Payouts: make(map[string]int),
		Calls: len(e.env.Core.Proxy.Calls(nil)),
	}
	if e.flags.restores > 0 {
		f.Restored = e.transferRun.Ledger.Did(transferload.Reconciles())
	}
	var of transfer.Type
	var end transferload.End
	var n int
	rows.Each(ctx, e.db, []any{&of, &end.State, &end.Reason, &n}, func() {
		if of.Target() == transfer.Chain {
			f.Payouts[end.String()] = n
		} else {
			f.Transfers[end.String()] += n
		}
	}, `select transfer_type, state, coalesce(error_message, ''), count(*) from transfers_tb group by 1, 2, 3`)
	steps.OK(e.db.QueryRow(ctx, `select count(*) from transfer_operations`).Scan(&f.Lines), "count transfers")
	var failed error
	if f.Restarts, failed = e.world.Supervisor.Restarts(); failed == nil {
		line, _, err := e.env.Core.Ledger().AllBalances(ctx)
		steps.OK(err, "count transfers")
		f.Lines += int(line)
	}
	return f
}

func (e *episode) transferTable(f *transferFigures) {
	if f == nil {
		return
	}
	e.counts("users", f.Users)
	e.counts("operators of transfers", f.Operators)
	if f.Restored != nil {
		e.counts("operators of transfers, after a restore", f.Restored)
	}
	e.heading("transfers", "")
	e.row("posted", f.Posted)
	e.row("accepted", f.Accepted)
	for _, end := range slices.Sorted(maps.Keys(f.Transfers)) {
		e.row("internal "+end, f.Transfers[end])
	}
	for _, end := range slices.Sorted(maps.Keys(f.Payouts)) {
		e.row("payout "+end, f.Payouts[end])
	}
	e.row("lines of both journals", f.Lines)
	e.row("calls to the core, each made three times more", f.Calls)
	e.row("trading core started again", f.Restarts)
}
