package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/torture/faults"
	"github.com/fencepost/fencepost/emulator/torture/load"
	"github.com/fencepost/fencepost/emulator/torture/patience"
	"github.com/fencepost/fencepost/emulator/torture/plan"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
)

const (
	blockTime     = 250 * time.Millisecond
	confirmations = 6
	shared        = 2               // submitters whose keys somebody else uses too
	after         = 6 * time.Second // how long the load goes on once faults have stopped
	bound         = 4 * time.Minute // within which everything ends after that
	progressEvery = 10 * time.Second
)

// settings let a dead holder be waited out in two seconds, and what is unheard of
// be sent again soon and be STUCK soon.
var settings = map[string]string{
	"FENCEPOST_LEASE_DURATION": "2s", "FENCEPOST_LEASE_RENEW_INTERVAL": "900ms", "FENCEPOST_CLOCK_SKEW_ALLOWANCE": "100ms",
	"FENCEPOST_DATABASE_LOCK_TIMEOUT": "1500ms", "FENCEPOST_DATABASE_IDLE_IN_TRANSACTION_TIMEOUT": "500ms",
	"FENCEPOST_DATABASE_STATEMENT_TIMEOUT": "1800ms", "FENCEPOST_RPC_TIMEOUT": "2s",
	"FENCEPOST_RESUBMIT_INTERVAL": "1s", "FENCEPOST_RESUBMIT_MAX_ATTEMPTS": "3", "FENCEPOST_STUCK_AFTER": "15s",
	"FENCEPOST_SWEEP_GRACE": "2s", "FENCEPOST_CONFIRMATIONS_REQUIRED": fmt.Sprint(confirmations),
	"FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "10s", "FENCEPOST_NONCE_STRICT_ENABLED": "false",
	"FENCEPOST_NONCE_PLACEHOLDER_MAX_FEE_PER_GAS": "1000000000000000",
}

// powers are the optional powers, on: each meets every fault beside the others. What
// is replaced too often is STUCK soon, as without them.
var powers = map[string]string{
	"FENCEPOST_EVENTS_MODE": "mq_outbox", "FENCEPOST_FEES_HISTORY_ENABLED": "true", "FENCEPOST_MEMPOOL_DIAGNOSE_ENABLED": "true",
	"FENCEPOST_GASBUMP_ENABLED": "true", "FENCEPOST_GASBUMP_MIN_INTERVAL": "2s", "FENCEPOST_GASBUMP_MAX_ATTEMPTS": "1",
	"FENCEPOST_RPC_LEAVE_OUT": "1s",
}

// eventsOn says that events are kept, and published.
func (f flags) eventsOn() bool {
	mode, given := f.set["FENCEPOST_EVENTS_MODE"]
	return !given || mode == powers["FENCEPOST_EVENTS_MODE"]
}

// episode is one run.
type episode struct {
	flags
	out      io.Writer
	source   *rand.Rand
	kept     *folder
	house    *stack.Stack
	db       *pgxpool.Pool
	accounts []load.Account
	world    *faults.World
	load     *load.Load
	program  *load.Program
	operator *load.Operator
	bank     *bank // nil: no transfers
	storm    *storm
	restores restores // that were made

	stoppedAt time.Time // by the database's clock: the last fault was undone
	ended     bool      // everything came to its end within the bound
}

// run plays a whole episode and prints its verdict. tamper, if not nil, is called
// before the verdict, for a test of the verdict. The error is errVerdict where
// the verdict is bad.
func run(ctx context.Context, f flags, out io.Writer, tamper func(context.Context, *episode) error) (err error) {
	e := &episode{flags: f, out: &lines{to: out}, source: plan.Source(f.seed)}
	if e.kept, err = newFolder(f.seed); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.kept.close(errors.Is(err, errVerdict))) }()
	stop, err := e.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := e.play(ctx); err != nil {
		return err
	}
	if tamper != nil {
		if err := tamper(ctx, e); err != nil {
			return err
		}
	}
	v, err := e.judge(ctx)
	if err != nil {
		return fmt.Errorf("no verdict: %w", err)
	}
	return e.conclude(ctx, v)
}

// start brings the house up, and everybody who will live in it.
func (e *episode) start(ctx context.Context) (stop func() error, err error) {
	all := e.kinds()
	events := plan.Draw(e.source, faults.Kinds(all), e.length(), e.every)
	e.announce(events, len(all))
	cluster, err := pgcluster.Start(ctx, pgcluster.Options{Fsync: true, ClockLibrary: pgcluster.FindClockLibrary()})
	if err != nil {
		return nil, err
	}
	if err := e.build(ctx, cluster); err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	stop = func() error {
		closed := e.closeProgram(ctx)
		e.db.Close()
		return errors.Join(closed, e.house.Close(), cluster.Stop())
	}
	e.world = faults.NewWorld(faults.Options{
		Stack: e.house, Cluster: cluster, Points: e.kept.points(), Keys: e.sharedKeys(), Deepest: confirmations - 1, Users: e.users(), Events: e.eventsOn(), Source: e.source,
	})
	e.storm = newStorm(e.world, all, events, e.kept)
	e.load = load.New(load.Options{Stack: e.house, Accounts: e.accounts, Rate: e.rate, Source: e.fork()})
	e.operator = &load.Operator{Stack: e.house, DB: e.db, Foreign: e.world.Foreign, Ledger: e.load.Ledger, Note: e.kept.event, Source: e.fork(), Windows: make(map[nonce.Submitter]int)}
	for _, a := range e.accounts {
		e.operator.Windows[a.Submitter] = a.Window
	}
	if err := e.openProgram(ctx); err != nil {
		return nil, errors.Join(err, stop())
	}
	if e.transfers > 0 {
		if err := e.openBank(ctx); err != nil {
			return nil, errors.Join(err, stop())
		}
	}
	return stop, nil
}

// sharedKeys are those that somebody else uses too: some submitters', and the payer's.
func (e *episode) sharedKeys() []devchain.Account {
	keys := devchain.DevAccounts(e.submitters)[e.submitters-shared:]
	if e.transfers > 0 {
		keys = append(keys, e.house.PayerAccount())
	}
	return keys
}

// users is how many people move money.
func (e *episode) users() int {
	if e.transfers == 0 {
		return 0
	}
	return users
}

// fork is a source of its own for somebody who lives beside the others, from the
// one seed.
func (e *episode) fork() *rand.Rand { return plan.Source(e.source.Uint64()) }

func (e *episode) build(ctx context.Context, cluster *pgcluster.Cluster) (err error) {
	log := slog.New(slog.NewTextHandler(e.kept.log(e.verbose), &slog.HandlerOptions{Level: slog.LevelInfo}))
	slog.SetDefault(log)
	began := time.Now()
	if err := e.buildPrograms(ctx); err != nil {
		return err
	}
	e.house, err = stack.Start(ctx, stack.Options{
		Binary: e.server, Cluster: cluster, Processes: 4, BlockTime: blockTime, Submitters: e.submitters, Window: e.window,
		SweepEvery: -1, WireProxy: true, Nodes: e.nodes, Seed: e.seed, Settings: e.kept.settings(settings, transferSettings, programSettings, powers, e.finality(), clocks, e.set), TokenSpan: 2 * clockSpread,
		Payouts: e.transfers > 0, CheckEvery: -1, Core: stack.CoreOptions{Binary: e.core, CrashPoints: e.kept.points(), SnapshotEvery: snapshotEvery, Environment: clocks},
		Output: e.kept.functions, Log: log,
	})
	if err != nil {
		return err
	}
	if e.db, err = pgxpool.New(ctx, e.house.Database); err == nil {
		err = e.windows(ctx)
	}
	if err == nil {
		err = e.setPolicies(ctx)
	}
	if err != nil {
		return errors.Join(err, e.house.Close())
	}
	fmt.Fprintf(e.out, "Up after %s.\n\n", time.Since(began).Round(time.Millisecond))
	return nil
}

// windows gives every second submitter window 1, before anything is posted: the
// house registers all alike.
func (e *episode) windows(ctx context.Context) error {
	for i, s := range e.house.Submitters() {
		a := load.Account{Submitter: s, Window: e.window, Program: i < programAccounts}
		if i%2 == 0 {
			a.Window = 1
			if _, err := e.db.Exec(ctx, `update submitter set max_in_flight = 1 where submitter = $1`, s); err != nil {
				return err
			}
		}
		e.accounts = append(e.accounts, a)
	}
	return nil
}

// play lets the storm pass over the load, and then waits for the end of
// everything. The error is that of ctx.
func (e *episode) play(ctx context.Context) error {
	within, giveUp := context.WithCancel(ctx)
	defer giveUp()
	posting, stopPosting := context.WithCancel(within)
	defer stopPosting()
	var living sync.WaitGroup
	sweeps := e.fork()
	living.Go(func() { e.load.Run(posting, within) })
	living.Go(func() { e.program.Run(posting, within) })
	living.Go(func() { e.operator.Run(within) })
	living.Go(func() { e.world.Sweeper.Run(within, sweeps) })
	living.Go(func() { e.report(within) })
	e.openFor(posting, within, &living)
	var restoring sync.WaitGroup
	restoring.Go(func() { e.restoreAll(within) })
	e.storm.pass(ctx)
	restoring.Wait()
	e.world.Calm()
	e.operator.Calm()
	if e.bank != nil {
		e.bank.clerk.Calm()
	}
	e.stoppedAt = e.now(ctx)
	if ctx.Err() == nil {
		fmt.Fprintf(e.out, "%s faults have stopped; everything has to end within %s\n", e.clock(), bound)
	}
	patience.Pause(ctx, after)
	stopPosting()
	e.ended = e.end(ctx)
	giveUp()
	living.Wait()
	e.load.Wait()
	e.program.Wait()
	if e.bank != nil {
		e.bank.Wait()
	}
	return ctx.Err()
}

// end waits until every caller knows its end and nothing is left to do.
func (e *episode) end(ctx context.Context) (ended bool) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for ctx.Err() == nil {
		if t := e.load.Ledger.Tally(); t.Waiting == 0 && !e.waiting(ctx) && e.left(ctx) == 0 {
			return true
		}
		patience.Pause(ctx, 200*time.Millisecond)
	}
	return false
}

// left counts what is not at rest: transactions and transfers that have not ended,
// episodes of PROTECT, events that were not told, leases held and wake marks.
func (e *episode) left(ctx context.Context) (n int) {
	err := e.db.QueryRow(ctx, `
		select (select count(*) from managed_tx where state not in ('CONFIRMED', 'FAILED'))
		     + (select count(*) from transfers_tb where open)
		     + (select count(*) from protect_episode where closed_at is null)
		     + (select count(*) from event_outbox) + (select count(*) from event_stream where pending)
		     + (select count(*) from submitter_lease where wake or owner_node <> '' and expires_at > clock_timestamp())`).Scan(&n)
	if err != nil {
		return 1
	}
	return n
}

func (e *episode) halted(ctx context.Context) (halted bool) {
	_ = e.db.QueryRow(ctx, `select exists (select from transfer_halt where resumed_at is null)`).Scan(&halted) // unknown is no halt
	return halted
}

// now is the database's time; nothing else tells the time of rows.
func (e *episode) now(ctx context.Context) (now time.Time) {
	for ctx.Err() == nil {
		if err := e.db.QueryRow(ctx, `select clock_timestamp()`).Scan(&now); err == nil {
			break
		}
		patience.Pause(ctx, 100*time.Millisecond)
	}
	return now
}
