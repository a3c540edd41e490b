package main

import (
	"context"
	"maps"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

// processes is the number of function processes: one for each core of the reference machine.
const processes = 2

// shape is the configuration that a scenario needs.
type shape struct {
	submitters    int
	window        int
	confirmations int
	finished      int // finished rows from the past

	users     int // who make transfers; 0: the stack has none
	receivers int // webhook receivers

	signing time.Duration // duration of a signature by Cloud KMS; 0: keys in the process
}

// environment is a running stack with its measuring instruments.
type environment struct {
	*stack.Stack
	shape
	bench      *bench
	db         *pgx.Conn
	cpu        *cpu
	token      string   // of the caller
	userTokens []string // in the order of their ids
	closers    stack.Closers
}

// open starts an environment with a new database, and warms it up.
func (b *bench) open(ctx context.Context, s shape) (_ *environment, err error) {
	settings := maps.Clone(b.settings)
	settings["FENCEPOST_CONFIRMATIONS_REQUIRED"] = strconv.Itoa(s.confirmations)
	h := &environment{bench: b, shape: s}
	defer h.closers.AfterFailure(&err)
	defer steps.Return(&err)
	if s.receivers > 0 {
		maps.Copy(settings, h.startReceivers(s.receivers))
	}
	options := stack.Options{
		Binary: b.server, Cluster: b.cluster, Processes: processes, Submitters: s.submitters, Window: s.window,
		SweepEvery: -1, Settings: settings, Output: b.output, Log: b.log,
		Transfers: s.users > 0, Core: stack.CoreOptions{Binary: b.core, Direct: true}, CheckEvery: -1,
	}
	if s.signing > 0 {
		options.Signer = stack.SignerKMS
	}
	h.Stack = steps.Value(stack.Start(ctx, options))
	h.closers.OnClose(h.Stack.Close)
	if s.signing > 0 {
		h.KMS.SetDelay(s.signing)
	}
	h.db = steps.Value(pgx.Connect(ctx, h.Database))
	h.closers.OnClose(func() error { return h.db.Close(context.WithoutCancel(ctx)) })
	h.cpu = newCPU(int(h.db.PgConn().PID()))
	h.seed(ctx, s.finished)
	h.token = steps.Value(h.Issuer.Token(ctx, stack.CallerAccount, stack.PublicAudience))
	if s.users > 0 {
		h.openAccounts(ctx, s.users)
	} else {
		h.warm(ctx, max(s.submitters, min(s.submitters*s.window, 2*b.clients)))
	}
	return h, nil
}

// warm opens every connection and prepares every statement by moving n transactions. It then makes the
// database analyze its rows and write a checkpoint. The new statistics invalidate the plans, so it
// moves n transactions again.
func (h *environment) warm(ctx context.Context, n int) {
	h.move(ctx, "warm", n)
	for _, statement := range []string{"analyze", "checkpoint"} {
		steps.Value(h.db.Exec(ctx, statement))
	}
	h.move(ctx, "warmer", n)
}

func (h *environment) move(ctx context.Context, name string, n int) {
	steps.Value(h.load(name, n).run(ctx))
	h.await(ctx)
	h.drain(ctx)
}

// load returns n intents of all submitters in turn, posted as fast as possible.
func (h *environment) load(name string, n int) load {
	l := load{
		Token: h.token, Clients: min(h.bench.clients, n), Submitters: h.Submitters(), Name: name, Transactions: n, Estimate: h.bench.estimate,
		Statuses: []int{http.StatusAccepted},
	}
	for _, p := range h.Processes() {
		l.Addrs = append(l.Addrs, p.Addr())
	}
	return l
}

// unfinished uses the partial indexes, so that it costs almost nothing.
const unfinished = `
select exists (select from managed_tx where queued) or exists (select from managed_tx where open)`

// How often the environment is polled, and how long one load may take.
const (
	pollEvery = 100 * time.Millisecond
	endWithin = 10 * time.Minute
)

func (h *environment) await(ctx context.Context) {
	for deadline := time.Now().Add(endWithin); time.Now().Before(deadline); retry.Pause(ctx, pollEvery) {
		var more bool
		steps.OK(h.db.QueryRow(ctx, unfinished).Scan(&more))
		if !more {
			return
		}
	}
	steps.Stopf("not every transaction was final after %s", endWithin)
}

// drainWithin is longer than the life of a task that waits for a lease.
const drainWithin = 30 * time.Second

// drain waits until no task is left, so that every invocation is counted.
func (h *environment) drain(ctx context.Context) {
	for deadline := time.Now().Add(drainWithin); h.pending() > 0 && time.Now().Before(deadline); retry.Pause(ctx, pollEvery) {
	}
	retry.Pause(ctx, pollEvery) // the last invocation logs after its answer
	steps.OK(ctx.Err())
}

func (h *environment) pending() (tasks int) {
	for _, q := range h.Tasks.Stats() {
		tasks += q.Pending
	}
	return tasks
}

// moving are the functions that process accepted transactions.
var moving = []string{"advance", "receipt", "confirm", "resubmit", "sweep"}

// mark is the total cost up to a moment.
type mark struct {
	create, after, transfer  stack.Cost
	functions, postgres, own float64 // seconds of CPU; own: of the node, Cloud Tasks, URL map and issuer in this process
	position                 string  // in the write-ahead log
}

func (h *environment) mark() (m mark) {
	var pids []int
	for _, p := range h.Processes() {
		pids = append(pids, p.PID())
	}
	m.create, m.after, m.transfer = h.Costs.Of("create"), h.Costs.Of(moving...), h.Costs.Of("transfer")
	m.functions, m.own, m.postgres = h.cpu.readFunctions(pids), steps.Value(readProcess(os.Getpid())).CPUTime(), h.cpu.readPostgres()
	steps.OK(h.db.QueryRow(context.Background(), `select pg_current_wal_insert_lsn()::text`).Scan(&m.position))
	return m
}

// counts returns the cost of n transactions between two marks.
func counts(from, to mark, n float64) figures {
	per := func(before, after int64) float64 { return float64(after-before) / n }
	return figures{
		invocPerTx:     per(from.after.Invocations, to.after.Invocations),
		sqlPerTx:       per(from.after.SQLRoundTrips, to.after.SQLRoundTrips),
		statementPerTx: per(from.after.SQLStatements, to.after.SQLStatements),
		commitsPerTx:   per(from.after.Commits, to.after.Commits),
		rpcPerTx:       per(from.after.RPCRoundTrips, to.after.RPCRoundTrips),
		tasksPerTx:     per(from.after.Tasks, to.after.Tasks),
		createInvoc:    per(from.create.Invocations, to.create.Invocations),
		createSQL:      per(from.create.SQLRoundTrips, to.create.SQLRoundTrips),
		createCommits:  per(from.create.Commits, to.create.Commits),
		createTasks:    per(from.create.Tasks, to.create.Tasks),
	}
}

// times returns the CPU time in seconds per 1,000 of n transactions between two marks.
func times(from, to mark, n float64) figures {
	per := func(before, after float64) float64 { return (after - before) / n * 1000 }
	functions, postgres := per(from.functions, to.functions), per(from.postgres, to.postgres)
	return figures{
		cpuPer1000: functions + postgres, cpuFunctions: functions, cpuPostgres: postgres, cpuBench: per(from.own, to.own),
	}
}
