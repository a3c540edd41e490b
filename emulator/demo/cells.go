package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/cells"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// CellSettings let each process open few connections: several cells share one machine.
var CellSettings = map[string]string{"FENCEPOST_DATABASE_MAX_CONNS": "8"}

// ErrNotIndependent reports that the loss of one cell was felt in another, or that a second cell could sign.
var ErrNotIndependent = errors.New("the cells are not independent")

// CellOptions describe the demo of cells.
type CellOptions struct {
	Intents int // of each account in each of the two phases

	// Change is the largest relative change of the SQL round trips of a transaction that counts as none. Submitters that
	// share a round trip make the number vary.
	Change float64
}

// RunCells registers one account in two cells, runs load in all of them, and then runs the same load again while it
// kills the last one. The error is nil only if the second cell signed nothing of the account. The other cells must have
// answered no error, finished every transaction exactly once, and taken the same SQL round trips for each.
func RunCells(ctx context.Context, c *cells.Cells, o CellOptions, out io.Writer) (err error) {
	defer steps.Return(&err)
	d := &cellsDemo{cells: c, options: o, out: out}
	d.registerTwice(ctx)
	d.compareWithLoss(ctx)
	d.checkTwice()
	d.checkChain(ctx)
	if len(d.wrong) > 0 {
		for _, w := range d.wrong {
			fmt.Fprintln(out, "WRONG: "+w)
		}
		return ErrNotIndependent
	}
	fmt.Fprintln(out, "\nThe loss of one cell was not felt in the others, and one account has one signer.")
	return nil
}

type cellsDemo struct {
	cells   *cells.Cells
	options CellOptions
	out     io.Writer

	signed int // transactions that the second cell has signed for the account that is registered twice
	posted []*posted
	wrong  []string
}

func (d *cellsDemo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *cellsDemo) fail(format string, args ...any) {
	d.wrong = append(d.wrong, fmt.Sprintf(format, args...))
}

// victim returns the cell that is killed, and that the account of the first one is registered in too.
func (d *cellsDemo) victim() *cells.Cell { return d.cells.All()[len(d.cells.All())-1] }

// account returns the account that is registered in two cells.
func (d *cellsDemo) account() txmanager.Submitter { return d.cells.All()[0].Submitters()[0] }

// Run-time bounds of the demo of cells.
const (
	callWithin    = 20 * time.Second // one call of a cell that runs
	refusedWithin = 2 * time.Second  // a call of a cell that does not
	signWithin    = time.Minute      // until a cell reports that it cannot sign
	costsWithin   = 5 * time.Second  // until every invocation has reported its cost
)

// registerTwice registers the first cell's account in the last one too, past each guard that would refuse it, and
// posts an intent there.
func (d *cellsDemo) registerTwice(ctx context.Context) {
	first, second := d.cells.All()[0], d.victim()
	d.say("\n1. One account in two cells, on purpose: %s\n", d.account())
	_, err := client.NewCells(listWithTwice(d.cells.List(), second.Name, d.account()), client.Options{Token: func(context.Context) (string, error) { return "", nil }})
	if d.say("The list of cells with it is refused, here by the client and at plan by Terraform:\n  %v", err); !errors.Is(err, client.ErrTwoCells) {
		d.fail("a list with one account in two cells: got %v, want it refused", err)
	}
	operator := d.clientOf(second, stack.OperatorAccount)
	holder := first.Account(0)
	registration := client.Registration{
		Submitter: string(d.account()), Signer: first.SignerName(d.account()), Callers: []string{"email:" + stack.CallerAccount}, Unlimited: true,
	}
	if _, err := operator.RegisterSubmitter(ctx, registration); err == nil {
		d.fail("cell %s registered an account whose key it does not have", second.Name)
	} else {
		d.say("Cell %s does not register it either:\n  %v", second.Name, err)
	}
	second.KMS.Show(holder.Address.String(), holder.Key)
	_, err = operator.RegisterSubmitter(ctx, registration)
	steps.OK(err, "register an account in a second cell")
	created := steps.Value(d.clientOf(second, stack.CallerAccount).CreateTx(ctx, client.Intent{
		Submitter: string(d.account()), RequestID: "in the second cell", Payload: client.Payload{To: payee, Value: "1"},
	}))
	d.say("Cell %s is now shown the public half of the key, but not allowed to sign with it. It registers the account, and accepts an intent.", second.Name)
	d.awaitRefusal(ctx, operator, created.TxID)
}

// clientOf returns a client of one cell for the account.
func (d *cellsDemo) clientOf(cell *cells.Cell, account string) *client.Client {
	return steps.Value(steps.Value(d.cells.ClientOf(account, callWithin)).Named(cell.Name))
}

// payee gets the wei of the demo's intents.
const payee = "0x00000000000000000000000000000000000cafe0"

// listWithTwice returns the list of cells with the account in one more cell.
func listWithTwice(list []byte, name string, account txmanager.Submitter) []byte {
	var cells map[string]map[string]any
	_ = json.Unmarshal(list, &cells) // rendered by the emulator
	accounts, _ := cells[name]["accounts"].([]any)
	cells[name]["accounts"] = append(accounts, account)
	changed, _ := json.Marshal(cells)
	return changed
}

// awaitRefusal waits until the second cell has tried to sign.
func (d *cellsDemo) awaitRefusal(ctx context.Context, operator *client.Client, txID string) {
	limited, cancel := context.WithTimeout(ctx, signWithin)
	defer cancel()
	var tx client.Tx
	var err error
	if !retry.Await(limited, refreshEvery, func() bool {
		tx, err = operator.Tx(ctx, txID)
		return err == nil && (tx.LastError != "" || tx.State.Final())
	}) {
		steps.OK(errors.Join(fmt.Errorf("no cell reported that it cannot sign within %s", signWithin), err, ctx.Err()))
	}
	if tx.LastError == "" {
		steps.Stopf("the transaction in the second cell: got %s, want it to wait for a signature", tx.State)
	}
	d.say("It cannot sign: the transaction is %s, %q.", tx.State, tx.LastError)
}

// checkTwice prints what the second cell has signed for the account, which must be 0.
func (d *cellsDemo) checkTwice() {
	d.say("\n3. The account in two cells\n")
	d.say("Signed by cell %s for it until its end: %d.", d.victim().Name, d.signed)
	if d.signed != 0 {
		d.fail("cell %s signed %d transactions of an account of cell %s", d.victim().Name, d.signed, d.cells.All()[0].Name)
	}
}

// phase is what one cell did in one phase.
type phase struct {
	confirmed      int
	answers        []time.Duration // from a post to its answer
	ends           []time.Duration // from accepted to CONFIRMED
	made, watched  stack.Cost      // until it is sent, and from then on
	failed, called int64           // at the front
}

// watches is the number of invocations that see a transaction to its end: its receipt, and its confirmation.
const watches = 2

// tripsPerTx returns the SQL round trips of a transaction. How often it is polled depends on the machine, and how
// much a poll costs does not. So of its invocations by a receipt or confirm it counts two, as without a late block.
func (p phase) tripsPerTx() float64 {
	made := float64(p.made.SQLRoundTrips) / float64(max(p.confirmed, 1))
	return made + watches*float64(p.watched.SQLRoundTrips)/float64(max(p.watched.Invocations, 1))
}

// compareWithLoss runs the load twice, the second time with the loss of a cell, and prints the difference.
func (d *cellsDemo) compareWithLoss(ctx context.Context) {
	d.say("\n2. Load in %d cells: %d transactions of each of %d accounts, one after the other\n", len(d.cells.All()), d.options.Intents, len(d.cells.All()[0].Submitters()))
	d.say("All cells run:")
	before := d.runPhase(ctx, "before", nil)
	d.signed = steps.Value(d.victim().CountSigned(ctx, d.account())) // while that cell is alive
	d.say("The same again, and cell %s is lost after a quarter:", d.victim().Name)
	after := d.runPhase(ctx, "after", d.victim())
	d.printPhases(before, after)
}

// runPhase posts the phase's intents in every cell, and kills the victim after a quarter.
func (d *cellsDemo) runPhase(ctx context.Context, name string, victim *cells.Cell) map[string]phase {
	ctx, fail := context.WithCancelCause(ctx)
	all, expected := make(map[string]*load), 0
	var done atomic.Int64
	for _, cell := range d.cells.All() {
		within := callWithin
		if cell == victim {
			within = refusedWithin
		}
		l := &load{
			cell: cell, callers: steps.Value(d.cells.ClientOf(stack.CallerAccount, within)), lists: d.intents(cell, name),
			done: &done, fail: fail, counted: cell != victim, before: d.count(cell),
		}
		all[cell.Name] = l
		if l.counted {
			expected += len(cell.Submitters()) * d.options.Intents
		}
	}
	var running sync.WaitGroup
	for _, l := range all {
		running.Go(func() { l.run(ctx) })
	}
	defer func() { fail(nil); running.Wait() }() // also if the watch ends the demo
	progress := func() (shown int, ended bool) {
		shown = int(done.Load())
		return shown, shown == expected
	}
	var loss []act
	if victim != nil {
		loss = []act{{expected / 4, func(bar *bar) {
			steps.OK(victim.Kill(ctx))
			bar.say("Killed cell %s: its Postgres and every function process.", victim.Name)
		}}}
	}
	watch(ctx, d.out, expected, showEvery, progress, loss...)
	running.Wait()
	steps.OK(context.Cause(ctx))
	phases := make(map[string]phase)
	for name, l := range all {
		if l.counted {
			l.awaitCosts(ctx)
		}
		if l.cell != d.victim() {
			d.posted = append(d.posted, l.posted...)
		}
		phases[name] = l.phase(d.count(l.cell))
	}
	return phases
}

// count returns what the cell and the front have counted so far.
func (d *cellsDemo) count(cell *cells.Cell) (p phase) {
	p.made, p.watched = cell.Costs.Of(makers...), cell.Costs.Of(watchers...)
	p.called, p.failed = cell.Answers()
	return p
}

// intents returns each account's intents of the phase.
func (d *cellsDemo) intents(cell *cells.Cell, phase string) (lists [][]Intent) {
	for _, s := range cell.Submitters() {
		list := make([]Intent, d.options.Intents)
		for i := range list {
			line := fmt.Sprintf(`{"submitter": %q, "requestId": "%s-%d", "payload": {"to": %q, "value": "%d"}}`, s, phase, i, payee, 1+i)
			list[i] = steps.Value(readIntent([]byte(line), cell.Submitters()))
		}
		lists = append(lists, list)
	}
	return lists
}

// printPhases prints both phases of each cell that stays, and compares them.
func (d *cellsDemo) printPhases(before, after map[string]phase) {
	d.say("%-22s %9s %7s %7s %22s %20s %20s", "", "CONFIRMED", "calls", "errors", "SQL round trips a tx", "p50, p99 of a create", "p50, p99 to the end")
	for _, cell := range d.cells.All() {
		for _, row := range []struct {
			name string
			of   phase
		}{{"before", before[cell.Name]}, {"after", after[cell.Name]}} {
			p, trips := row.of, fmt.Sprintf("%.2f", row.of.tripsPerTx())
			if cell.Dead() && row.name == "after" {
				trips = "-" // a killed process counts nothing
			}
			d.say("cell %s, %-14s %9d %7d %7d %22s %20s %20s", cell.Name, row.name, p.confirmed, p.called, p.failed, trips, quantiles(p.answers), quantiles(p.ends))
		}
		if !cell.Dead() {
			d.compareCell(cell, before[cell.Name], after[cell.Name])
		}
	}
	d.say("\nSQL round trips count creates and the functions up to CONFIRMED, without further polls of a late block. Times are of this machine, which runs everything.")
}

func (d *cellsDemo) compareCell(cell *cells.Cell, before, after phase) {
	want := len(cell.Submitters()) * d.options.Intents
	if before.failed+after.failed > 0 {
		d.fail("cell %s answered %d errors before the loss and %d after it, want none", cell.Name, before.failed, after.failed)
	}
	if before.confirmed != want || after.confirmed != want {
		d.fail("cell %s confirmed %d and %d transactions, want %d and %d", cell.Name, before.confirmed, after.confirmed, want, want)
	}
	if change := after.tripsPerTx()/before.tripsPerTx() - 1; math.Abs(change) > d.options.Change {
		d.fail("cell %s took %.2f SQL round trips a transaction before the loss and %.2f after it", cell.Name, before.tripsPerTx(), after.tripsPerTx())
	}
}

// quantiles returns the median and the 99th percentile as text.
func quantiles(times []time.Duration) string {
	if len(times) == 0 {
		return "-"
	}
	sorted := slices.Sorted(slices.Values(times))
	at := func(q float64) time.Duration {
		return sorted[int(math.Ceil(q*float64(len(sorted))))-1].Round(time.Millisecond)
	}
	return fmt.Sprintf("%s, %s", at(0.5), at(0.99))
}

// checkChain compares the chain with what the cells that stay have accepted. Of the account that is registered in two cells,
// a transaction that the other cell had signed would be one too many.
func (d *cellsDemo) checkChain(ctx context.Context) {
	d.say("\n4. What the chain itself has of the accounts of the cells that stay\n")
	if !printVerdict(d.out, compare(d.posted, readChains(ctx, d.cells.Chain.URL())), d.posted) {
		d.fail("the chain does not have every intent exactly once")
	}
}
