package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/steps"
)

type scenario struct {
	name, what string
	usual      bool // measured by default
	once       bool // its counts are the same in each run
	shape      shape
	run        func(context.Context, run) (result, error)
}

func (s scenario) isNamed(name string) bool {
	group, _, _ := strings.Cut(s.name, "-")
	return name == "all" || name == s.name || name == group
}

// Names used by the tables.
const (
	baselinePG    = "baseline-pg"
	baselineChain = "baseline-chain"
	baselineTasks = "baseline-tasks"
	sequential    = "sequential"
	strict        = "strict"
	steady        = "steady"
	burst1        = "burst-1"
	burst10       = "burst-10"
	subs100       = "subs-100"
	subs1000      = "subs-1000"
	subsStrict    = "subs-1000-strict"
	fullQueue     = "full-queue"
	transfersMany = "transfers"
	webhooks10    = "webhooks-10"
	finished100k  = "finished-100000"
	finished1M    = "finished-1000000"
)

// loadedWindow is the window of the bursts, in transactions of one submitter.
const loadedWindow = 2000

// scenarios returns all scenarios in the order of their runs.
func scenarios() []scenario {
	all := []scenario{
		{name: baselinePG, what: "single-row durable inserts of the same Postgres, by pgbench", run: insertRate},
		{name: baselineChain, what: "a burst, signed beforehand and sent straight to the node", run: chainRate},
		{name: baselineTasks, what: "from the call that makes a task to its request, in the emulator of Cloud Tasks", run: dispatchTime},
		withEnvironment(sequential, "window 1, 1 confirmation; each posted when the last is CONFIRMED", shape{submitters: 1, window: 1, confirmations: 1}, oneByOne),
		withEnvironment(strict, "window 1, 1 confirmation; one submitter with 20 in its queue", shape{submitters: 1, window: 1, confirmations: 1}, posting(20, 0)),
		withEnvironment("trickle", "window 100; one submitter, 2 transactions a second for 30 s", shape{submitters: 1, window: 100}, posting(30*2, 2)),
		withEnvironment(steady, "window 100; 10 submitters, 30 transactions a second for 30 s", shape{submitters: 10, window: 100}, posting(30*30, 30)),
		withEnvironment("rate-300", "window 100; 10 submitters, 300 transactions a second for 30 s", shape{submitters: 10, window: 100}, posting(30*300, 300)),
		withEnvironment(burst1, "window 2000; a burst of one submitter", shape{submitters: 1, window: loadedWindow}, burst),
		withEnvironment(burst10, "window 2000; the same burst over ten submitters", shape{submitters: 10, window: loadedWindow}, burst),
		withEnvironment(subs100, "window 2000; the same burst over 100 submitters", shape{submitters: 100, window: loadedWindow}, burst),
		withEnvironment(subs1000, "window 2000; the same burst over 1,000 submitters", shape{submitters: 1000, window: loadedWindow}, burst),
		withEnvironment(subsStrict, "window 1; a burst of three transactions of each of 1,000 submitters", shape{submitters: 1000, window: 1}, posting(3*1000, 0)),
		withEnvironment(fullQueue, "a queue at its bound: refused creates, and those of another submitter beside them", shape{submitters: 3, window: 1}, beside),
		withEnvironment(transfersMany, "transfers from Funding to Trading by 200 users, 128 at once", shape{submitters: 1, window: 1, users: 200}, transferAll),
		withEnvironment("transfers-hot", "transfers from Funding to Trading by one user, 128 at once", shape{submitters: 1, window: 1, users: 1}, transferAll),
		withEnvironment(webhooks10, "burst-10 with ten webhook receivers, which each get every event", shape{submitters: 10, window: loadedWindow, receivers: 10}, burst),
	}
	for i := range all {
		all[i].usual = all[i].name != webhooks10
		all[i].once = all[i].name == sequential || all[i].name == strict || all[i].name == subsStrict
	}
	for _, w := range []int{1, 10, 100, 500, 1000} {
		s := withEnvironment(fmt.Sprintf("window-%d", w), fmt.Sprintf("window %d; a burst of one submitter, of at most 5 windows", w), shape{submitters: 1, window: w}, posting(5*w, 0))
		s.once = true
		all = append(all, s)
	}
	all = append(all, withEnvironment("slow-signer", "window 200; a burst of one submitter, whose Cloud KMS takes 100 ms for a signature", shape{submitters: 1, window: 200, signing: 100 * time.Millisecond}, posting(5*200, 0)))
	for _, n := range []int{100_000, 1_000_000} {
		all = append(all, withEnvironment(fmt.Sprintf("finished-%d", n), fmt.Sprintf("burst-1 beside %d finished rows of 100,000 submitters", n),
			shape{submitters: 1, window: loadedWindow, finished: n}, burst))
	}
	return all
}

// withEnvironment returns a scenario whose every run has a new environment.
func withEnvironment(name, what string, s shape, measure func(context.Context, run, *environment) result) scenario {
	return scenario{name: name, what: what, shape: s, run: func(ctx context.Context, r run) (_ result, err error) {
		defer steps.Return(&err)
		h := steps.Value(r.open(ctx, s))
		defer func() { err = errors.Join(err, h.closers.Close()) }()
		return measure(ctx, r, h), nil
	}}
}

// burst posts all transactions of the run, as fast as possible.
var burst = posting(math.MaxInt, 0)

// posting measures at most so many transactions, posted so many a second; 0: as fast as possible.
func posting(limit int, perSecond float64) func(context.Context, run, *environment) result {
	return func(ctx context.Context, r run, h *environment) result {
		return h.measure(ctx, r, min(r.transactions, limit), perSecond)
	}
}

// oneByOne posts each transaction when the previous one is final.
func oneByOne(ctx context.Context, r run, h *environment) result {
	n := min(r.transactions, 10)
	from := h.mark()
	for i := range n {
		steps.Value(h.load(fmt.Sprintf("%s-%d", measured, i), 1).post(ctx))
		h.await(ctx)
		h.drain(ctx)
	}
	figures, stored := counts(from, h.mark(), float64(n)), h.stored(ctx)
	maps.Copy(figures, stored.figures())
	return result{figures, stored.latencies}
}

// measured is the prefix of the requestIds of measured transactions.
const measured = "tx"

// measure posts n transactions and waits until all are final. perSecond 0 means as fast as possible.
func (h *environment) measure(ctx context.Context, r run, n int, perSecond float64) result {
	l := h.load(measured, n)
	l.PerSecond = perSecond
	h.resetStatements(ctx)
	from := h.mark()
	l.StartAt = nextBlock().Add(time.Duration(r.phase() * float64(time.Second)))
	done := steps.Value(l.run(ctx))
	h.await(ctx)
	busy := h.mark()
	h.printStatements(ctx, n)
	h.drain(ctx)
	sum := sumUp(n, from, busy, h.mark(), done, h.stored(ctx))
	h.addWAL(ctx, sum.figures, from, busy, n)
	return sum
}

// nextBlock returns the time of a next block: the chain mines at each full second.
func nextBlock() time.Time {
	const ahead = 500 * time.Millisecond // for the load process to start
	return time.Now().Add(ahead).Truncate(time.Second).Add(time.Second)
}

// sumUp computes the figures. CPU counts until all transactions are final, calls until no task is left.
func sumUp(n int, from, busy, to mark, done posted, s stored) result {
	all := counts(from, to, float64(n))
	maps.Copy(all, times(from, busy, float64(n)))
	maps.Copy(all, s.figures())
	all[transactions] = float64(n)
	all[acceptedPerS] = float64(n) / done.Last.Sub(done.First).Seconds()
	all[sentPerS] = float64(n) / s.sent.Sub(done.First).Seconds()
	all[confirmedPerS] = float64(n) / s.last.Sub(done.First).Seconds()
	all[cpuLoad] = done.cpu / float64(n) * 1000
	all[createP50], all[createP99] = quantile(done.Latencies, 0.5), quantile(done.Latencies, 0.99)
	return result{all, s.latencies}
}

// stored is the database's record of the measured transactions.
type stored struct {
	last, sent time.Time // confirmed_at, and the time of the last stored broadcast
	latencies  []float64 // created_at to confirmed_at, in seconds
	broadcasts []float64 // created_at to the stored broadcast
	blocks     float64   // from the first receipt's block to the last one's
}

// readStored also reports whether every transaction is CONFIRMED. A broadcast is stored when a node has
// acknowledged it. With a window of one that is recorded later, so the commit before the send counts.
const readStored = `
select bool_and(state = 'CONFIRMED' and sent is not null and block is not null), max(ended), coalesce(max(sent), max(ended)),
       array_agg(extract(epoch from ended - created_at)::float8),
       array_agg(extract(epoch from sent - created_at)::float8) filter (where sent is not null), coalesce(max(block) - min(block), 0)
  from (select m.state, m.created_at, coalesce(m.confirmed_at, m.updated_at) as ended, (m.receipt->>'blockNumber')::float8 as block,
               (select min(at) from tx_history h where h.tx_id = m.tx_id and h.state = case s.max_in_flight when 1 then 'SUBMITTED' else 'TRACKING' end) as sent
          from managed_tx m join submitter s using (submitter) where m.request_id like $1 || '-%') as measured`

func (h *environment) stored(ctx context.Context) (s stored) {
	var confirmed bool
	steps.OK(h.db.QueryRow(ctx, readStored, measured).Scan(&confirmed, &s.last, &s.sent, &s.latencies, &s.broadcasts, &s.blocks))
	if !confirmed {
		steps.Stopf("not every transaction was CONFIRMED")
	}
	return s
}

func (s stored) figures() figures {
	f := figures{
		p50: quantile(s.latencies, 0.5), p99: quantile(s.latencies, 0.99), broadcastP50: quantile(s.broadcasts, 0.5),
	}
	if s.blocks > 0 {
		f[perBlock] = float64(len(s.latencies)-1) / s.blocks
	}
	return f
}
