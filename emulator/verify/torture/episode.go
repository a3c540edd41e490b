package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/faults"
	"github.com/fencepost/fencepost/emulator/verify/torture/load"
	"github.com/fencepost/fencepost/emulator/verify/torture/plan"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
)

const (
	blockTime       = 250 * time.Millisecond
	confirmations   = 6
	sharedKeyCount  = 2               // submitters whose keys a foreign signer also uses, beside the payer's
	loadAfterFaults = 6 * time.Second // how long the load continues after the faults
	endTimeout      = 4 * time.Minute // limit for everything to end after that
	progressEvery   = 10 * time.Second
)

// settings shorten the waits: a dead lease holder is replaced after two seconds, and an unseen
// transaction is soon sent again and soon STUCK.
var settings = map[string]string{
	"FENCEPOST_LEASE_DURATION": "2s", "FENCEPOST_LEASE_RENEW_INTERVAL": "900ms", "FENCEPOST_CLOCK_SKEW_ALLOWANCE": "100ms",
	"FENCEPOST_DATABASE_LOCK_TIMEOUT": "1500ms", "FENCEPOST_DATABASE_IDLE_IN_TRANSACTION_TIMEOUT": "500ms",
	"FENCEPOST_DATABASE_STATEMENT_TIMEOUT": "1800ms", "FENCEPOST_RPC_TIMEOUT": "2s",
	"FENCEPOST_RESUBMIT_INTERVAL": "1s", "FENCEPOST_RESUBMIT_MAX_ATTEMPTS": "3", "FENCEPOST_STUCK_AFTER": "15s",
	"FENCEPOST_SWEEP_GRACE": "2s", "FENCEPOST_CONFIRMATIONS_REQUIRED": fmt.Sprint(confirmations),
	"FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "10s", "FENCEPOST_NONCE_STRICT_ENABLED": "false",
	"FENCEPOST_NONCE_PLACEHOLDER_MAX_FEE_PER_GAS": "1000000000000000",
}

// features switch the optional features on, so that each meets every fault. A transaction that
// is replaced too often is STUCK as soon as without them.
var features = map[string]string{
	"FENCEPOST_EVENTS_MODE": "mq_outbox", "FENCEPOST_FEES_HISTORY_ENABLED": "true", "FENCEPOST_MEMPOOL_DIAGNOSE_ENABLED": "true",
	"FENCEPOST_GASBUMP_ENABLED": "true", "FENCEPOST_GASBUMP_MIN_INTERVAL": "2s", "FENCEPOST_GASBUMP_MAX_ATTEMPTS": "1",
	"FENCEPOST_RPC_LEAVE_OUT": "1s",
}

func (f flags) eventsOn() bool {
	mode, given := f.set["FENCEPOST_EVENTS_MODE"]
	return !given || mode == features["FENCEPOST_EVENTS_MODE"]
}

type episode struct {
	flags
	out         *log.Logger // of whole lines, by several goroutines
	source      *rand.Rand
	folder      *folder
	env         *stack.Stack
	db          *pgxpool.Pool
	accounts    []load.Account
	world       *faults.World
	load        *load.Load
	program     *load.Program
	operator    *load.Operator
	transferRun *transferRun // nil: no transfers
	events      []plan.Event[faults.Fault]
	struck      client.Counts  // by kind of fault
	restores    restores       // the restores done in the run
	stops       []func() error // what was started is stopped by these, the last one first

	stoppedAt time.Time // when the last fault was undone, by the database's clock
	ended     bool      // everything ended within endTimeout
}

// run plays an episode and prints its verdict. A test of the verdict passes tamper, which is
// called before the checks. The error is errVerdict if the verdict is bad.
//
// It and all that it calls are [steps]: functions without an error in their results end the run by one.
func run(ctx context.Context, f flags, out io.Writer, tamper func(context.Context, *episode)) (err error) {
	e := &episode{flags: f, out: log.New(out, "", 0), source: plan.Source(f.seed)}
	if e.folder, err = newFolder(f.seed, f.verbose); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.folder.close(errors.Is(err, errVerdict))) }()
	defer func() { err = errors.Join(err, e.stop()) }()
	defer steps.Return(&err)
	e.start(ctx)
	steps.OK(e.play(ctx))
	if tamper != nil {
		tamper(ctx, e)
	}
	v, err := e.checkAll(ctx)
	steps.OK(err, "no verdict")
	return e.conclude(ctx, v)
}

// stop stops all that [episode.start] has started.
func (e *episode) stop() (err error) {
	for _, one := range slices.Backward(e.stops) {
		err = errors.Join(err, one())
	}
	return err
}

// start brings up the deployment and creates its clients.
func (e *episode) start(ctx context.Context) {
	all := e.kinds()
	e.events = plan.Draw(e.source, all, func(f faults.Fault) int { return f.Weight }, e.length(), e.every)
	e.announce(len(all))
	cluster := steps.Value(pgcluster.Start(ctx, pgcluster.Options{Fsync: true, ClockLibrary: pgcluster.FindClockLibrary()}))
	e.stops = append(e.stops, cluster.Stop)
	e.build(ctx, cluster)
	world := faults.Options{
		Stack: e.env, Cluster: cluster, Points: e.folder.points(), Keys: devchain.DevAccounts(e.submitters)[e.submitters-sharedKeyCount:],
		MaxReorgDepth: confirmations - 1, Events: e.eventsOn(), Source: e.source,
	}
	if e.transfers > 0 {
		world.Keys, world.Users = append(world.Keys, e.env.PayerAccount()), userCount
	}
	e.world = faults.NewWorld(world)
	e.load = &load.Load{Stack: e.env, Accounts: e.accounts, Rate: e.rate, Source: e.forkSource(), Ledger: new(load.Ledger)}
	e.operator = &load.Operator{
		Client: client.NewClient(e.env, stack.OperatorAccount, e.load.Ledger.Generation), Stack: e.env, DB: e.db, Foreign: e.world.Foreign,
		Ledger: e.load.Ledger, Note: e.folder.event, Source: e.forkSource(),
	}
	e.openProgram(ctx)
	if e.transfers > 0 {
		e.startTransferRun(ctx)
	}
}

// forkSource returns a separate source of random numbers for a concurrent client, derived from
// the one seed.
func (e *episode) forkSource() *rand.Rand { return plan.Source(e.source.Uint64()) }

func (e *episode) build(ctx context.Context, cluster *pgcluster.Cluster) {
	parts := slog.New(slog.NewTextHandler(e.folder.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	slog.SetDefault(parts)
	began := time.Now()
	e.buildPrograms(ctx)
	e.env = steps.Value(stack.Start(ctx, stack.Options{
		Binary: e.server, Cluster: cluster, Processes: 4, BlockTime: blockTime, Submitters: e.submitters, Window: e.window,
		SweepEvery: -1, WireProxy: true, Nodes: e.nodes, Seed: e.seed, Settings: e.folder.settings(settings, transferSettings, programSettings, features, e.finality(), clocks, e.set), TokenSpan: 2 * clockSpread,
		Payouts: e.transfers > 0, CheckEvery: -1, Core: stack.CoreOptions{Binary: e.core, CrashPoints: e.folder.points(), SnapshotEvery: snapshotEvery, Environment: clocks},
		Output: e.folder.functions, Log: parts,
	}))
	e.stops = append(e.stops, e.env.Close)
	e.db = steps.Value(pgxpool.New(ctx, e.env.Database))
	e.stops = append(e.stops, func() error { e.db.Close(); return nil })
	e.setUpAccounts(ctx)
	e.out.Printf("Up after %s.\n\n", time.Since(began).Round(time.Millisecond))
}

// setUpAccounts gives every second submitter window 1, and every third a policy that allows exactly the load's intents.
// The stack registers all of them in the same way, and nothing is posted before.
func (e *episode) setUpAccounts(ctx context.Context) {
	operator := steps.Value(e.env.Client(stack.OperatorAccount))
	for i, s := range e.env.Submitters() {
		a := load.Account{Submitter: s, Window: e.window, Policy: i%3 == 2, Program: i < programAccounts}
		if i%2 == 0 {
			a.Window = 1
			steps.Value(e.db.Exec(ctx, `update submitter set max_in_flight = 1 where submitter = $1`, s))
		}
		if a.Policy {
			steps.Value(operator.SetPolicy(ctx, string(s), load.Policy(), "the run's load, and nothing else"))
		}
		e.accounts = append(e.accounts, a)
	}
}

// play runs the faults beside the load, and then waits until everything has ended. The error is
// that of ctx.
func (e *episode) play(ctx context.Context) error {
	within, giveUp := context.WithCancel(ctx)
	defer giveUp()
	posting, stopPosting := context.WithCancel(within)
	defer stopPosting()
	var living sync.WaitGroup
	sweeps := e.forkSource()
	living.Go(func() { e.load.Run(posting, within) })
	living.Go(func() { e.program.Run(posting, within) })
	living.Go(func() { e.operator.Run(within) })
	living.Go(func() { e.world.Sweeper.Run(within, sweeps) })
	living.Go(func() { e.report(within) })
	e.startTransferClients(posting, within, &living)
	var restoring sync.WaitGroup
	restoring.Go(func() { e.restoreAll(within) })
	e.injectAll(ctx)
	restoring.Wait()
	e.world.Disarm()
	e.operator.Drain()
	if e.transferRun != nil {
		e.transferRun.operator.Drain()
	}
	e.stoppedAt = e.now(ctx)
	if ctx.Err() == nil {
		e.out.Printf("%s faults have stopped; everything has to end within %s", e.clock(), endTimeout)
	}
	retry.Pause(ctx, loadAfterFaults)
	stopPosting()
	e.ended = e.waitForEnd(ctx)
	giveUp()
	living.Wait()
	return ctx.Err()
}

// waitForEnd waits until every caller knows its end and no work is left.
func (e *episode) waitForEnd(ctx context.Context) (ended bool) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	return retry.Await(ctx, 200*time.Millisecond, func() bool {
		return e.load.Ledger.Tally().Waiting == 0 && !e.isWaiting(ctx) && e.countUnfinished(ctx) == 0
	})
}

// countUnfinished counts transactions and transfers that are not terminal, open PROTECT
// incidents, unpublished events, held leases and rerun flags.
func (e *episode) countUnfinished(ctx context.Context) (n int) {
	err := e.db.QueryRow(ctx, `
		select (select count(*) from managed_tx where state not in ('CONFIRMED', 'FAILED'))
		     + (select count(*) from transfers_tb where open)
		     + (select count(*) from protect_incident where closed_at is null)
		     + (select count(*) from event_outbox) + (select count(*) from event_delivery_queue where pending)
		     + (select count(*) from submitter_lease where rerun_requested or owner_node <> '' and expires_at > clock_timestamp())`).Scan(&n)
	if err != nil {
		return 1
	}
	return n
}

// now is the database's time, which rows also use.
func (e *episode) now(ctx context.Context) (now time.Time) {
	retry.Await(ctx, 100*time.Millisecond, func() bool { return e.db.QueryRow(ctx, `select clock_timestamp()`).Scan(&now) == nil })
	return now
}
