package main

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/torture/movers"
	"github.com/fencepost/fencepost/emulator/torture/patience"
	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/transfer"
)

// users move money; the last of them has no Funding account.
const users = 12

// snapshotEvery lets the core write a snapshot now and then, and start from it.
const snapshotEvery = 500

// transferSettings let a lost worker's transfer be found within seconds, and some of
// them be too old by then to begin.
var transferSettings = map[string]string{
	"FENCEPOST_TRANSFER_CALL_TIMEOUT": "1500ms", "FENCEPOST_TRANSFER_RESCUE_AFTER": "3s", "FENCEPOST_TRANSFER_INIT_TIMEOUT": "5s",
	"FENCEPOST_TRANSFER_RETRY_FIRST": "200ms", "FENCEPOST_TRANSFER_RETRY_MOST": "2s",
}

// bank is the second system's side of a run: who moves money in it.
type bank struct {
	*movers.Load
	teller *movers.Teller
	clerk  *movers.Clerk
	closed []string // addresses that take no coin
}

// openBank has everybody begin with some money, on a chain that no reorg shortens to
// where the contracts were put on it.
func (e *episode) openBank(ctx context.Context) error {
	b := &bank{}
	for _, code := range [][]byte{contracts.Closed(), contracts.Ungrateful()} {
		at, err := e.house.Deploy(ctx, code)
		if err != nil {
			return err
		}
		b.closed = append(b.closed, at.String())
	}
	b.Load = movers.New(movers.Options{Stack: e.house, Users: users, Rate: e.transfers, Closed: b.closed, Source: e.fork()})
	b.teller = &movers.Teller{Stack: e.house, Ledger: b.Ledger, Users: users, Source: e.fork()}
	b.clerk = &movers.Clerk{Stack: e.house, DB: e.db, Ledger: b.Ledger, Teller: b.teller, Source: e.fork(), Note: e.kept.event}
	e.operator.Payer, e.operator.NobodyRepeats = e.house.Payer, b.clerk.NobodyRepeats
	e.bank = b
	if err := b.teller.Open(ctx); err != nil {
		return err
	}
	for safe := e.house.Chain.Head() + confirmations; e.house.Chain.Head() < safe && ctx.Err() == nil; {
		patience.Pause(ctx, blockTime)
	}
	return ctx.Err()
}

// openFor has everybody live: some until posting ends, all until within ends.
func (e *episode) openFor(posting, within context.Context, living *sync.WaitGroup) {
	if e.bank == nil {
		return
	}
	revivals := e.fork()
	living.Go(func() { e.bank.Run(posting, within) })
	living.Go(func() { e.bank.teller.Run(posting, within) })
	living.Go(func() { e.bank.clerk.Run(within) })
	living.Go(func() { e.bank.clerk.Watch(within) })
	living.Go(func() { e.world.Keeper.Run(within, revivals) })
}

// waiting says whether anybody waits for money, or the trading core is away. Where new
// transfers are halted, which is a violation, nobody waits for what was never accepted.
func (e *episode) waiting(ctx context.Context) bool {
	if e.bank == nil {
		return false
	}
	t := e.bank.Ledger.Tally()
	waiting := t.Waiting > 0
	if waiting && e.halted(ctx) {
		waiting = t.Accepted > t.Committed+t.Failed+t.Returned
	}
	return waiting || e.house.Core.Process().Err() != nil
}

// bankFigures are what the second system's part of a run is told by.
type bankFigures struct {
	Rate      float64        `json:"rate"`
	Users     map[string]int `json:"users"`
	Operators map[string]int `json:"operators"`
	Restored  map[string]int `json:"reconciledAfterRestores,omitempty"` // what they do only then

	Posted    int            `json:"posted"`
	Accepted  int            `json:"accepted"` // by an answer
	Transfers map[string]int `json:"internal"` // by where they ended
	Payouts   map[string]int `json:"payouts"`

	Lines    int `json:"journalLines"`   // of both ledgers
	Calls    int `json:"callsToTheCore"` // that the proxy saw, each replayed three times
	Restarts int `json:"coreStartedAgain"`
}

func (e *episode) countBank(ctx context.Context) (*bankFigures, error) {
	if e.bank == nil {
		return nil, nil
	}
	t := e.bank.Ledger.Tally()
	f := &bankFigures{
		Rate: e.transfers, Users: e.bank.Ledger.Did(movers.Habits()), Operators: e.bank.Ledger.Did(movers.Acts()),
		Posted: t.Posted, Accepted: t.Accepted, Transfers: make(map[string]int), Payouts: make(map[string]int),
		Calls: len(e.house.Core.Proxy.Calls(nil)), Restarts: e.world.Keeper.Restarts(),
	}
	if e.flags.restores > 0 {
		f.Restored = e.bank.Ledger.Did(movers.Reconciles())
	}
	rows, err := e.db.Query(ctx, `select transfer_type, state, coalesce(error_message, ''), count(*) from transfers_tb group by 1, 2, 3`)
	if err != nil {
		return nil, err
	}
	var of transfer.Type
	var end movers.End
	var n int
	_, err = pgx.ForEachRow(rows, []any{&of, &end.State, &end.Reason, &n}, func() error {
		if of.Target() == transfer.Chain {
			f.Payouts[end.String()] = n
		} else {
			f.Transfers[end.String()] += n
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := e.db.QueryRow(ctx, `select count(*) from transfer_operations`).Scan(&f.Lines); err != nil {
		return nil, err
	}
	if e.world.Keeper.Failed() == nil {
		line, _, err := e.house.Core.Ledger().AllBalances(ctx)
		if err != nil {
			return nil, err
		}
		f.Lines += int(line)
	}
	return f, nil
}

// bankTable prints the second system's part of the table.
func (e *episode) bankTable(f *bankFigures) {
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
