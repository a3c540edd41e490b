package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/chain/nodes"
	"github.com/fencepost/fencepost/shared/client"
)

// ErrNotProven reports that the chain does not have every intent exactly once, without a gap.
var ErrNotProven = errors.New("the chain does not confirm every intent exactly once")

// Run posts the intents to the running stack, kills one function process halfway, waits until every
// intent is final, and prints the chain's content. The error is nil only if the chain has every intent
// exactly once and no nonce is missing.
func Run(ctx context.Context, s *stack.Stack, intents []Intent, out io.Writer) (err error) {
	defer steps.Return(&err)
	submitters := make(map[string]bool)
	for _, in := range intents {
		submitters[string(in.account)] = true
	}
	fmt.Fprintf(out, "\nPosting %d intents for %d submitters (confirmations.required=1, window 1, 1 s blocks).\n", len(intents), len(submitters))
	began := time.Now()
	caller := steps.Value(s.Client(stack.CallerAccount))
	all := postAll(ctx, caller, intents)
	fmt.Fprintf(out, "Accepted %d in %s. Each waits its turn: a submitter's next nonce is used once the last is final.\n\n",
		len(all), time.Since(began).Round(time.Millisecond))
	await(ctx, s, caller, all, out)
	fmt.Fprintf(out, "All ended after %s. Asking the chain itself:\n\n", time.Since(began).Round(100*time.Millisecond))
	chains := []string{s.Chain.URL()}
	if s.Second != nil {
		chains = append(chains, s.Second.URL())
	}
	ok := printVerdict(out, compare(all, readChains(ctx, chains...)), all)
	printCosts(out, s, len(all))
	if !ok {
		return ErrNotProven
	}
	return nil
}

const refreshEvery = 500 * time.Millisecond

// await shows the progress, and kills one process when half is done.
func await(ctx context.Context, s *stack.Stack, caller *client.Client, all []*posted, out io.Writer) {
	refreshed := func() (done int, ended bool) {
		done = refresh(ctx, caller, all)
		return done, done == len(all)
	}
	watch(ctx, out, len(all), refreshEvery, refreshed, act{len(all) / 2, func(bar *bar) {
		killFunction(s, bar)
		if len(s.Nodes) > 1 {
			s.Nodes[0].SetFaults(rpcproxy.Faults{Hang: 1})
			bar.say("Stopped the answers of the first of the chain's %d nodes; the others are queried instead.", len(s.Nodes))
		}
	}})
	steps.OK(ctx.Err())
}

func printVerdict(out io.Writer, verdict []account, all []*posted) bool {
	fmt.Fprintf(out, "%-58s %7s %5s %5s %5s %10s %6s\n", "submitter", "intents", "first", "last", "gaps", "duplicates", "failed")
	ok, proven := true, 0
	for _, a := range verdict {
		fmt.Fprintf(out, "%-58s %7d %5d %5d %5d %10d %6d\n", a.submitter, a.intents, a.first, a.last, a.gaps, a.duplicates, a.failed+a.missing)
		ok = ok && a.ok()
		proven += a.intents - a.missing
	}
	for _, p := range all {
		if p.state != client.Confirmed {
			ok = false
			fmt.Fprintf(out, "  %s (%s) ended %s %s\n", p.RequestID, p.txID, p.state, p.subState)
		}
	}
	word := "exactly once, no gap"
	if !ok {
		word = "NOT proven"
	}
	fmt.Fprintf(out, "\n%d of %d: %s.\n", proven, len(all), word)
	return ok
}

// printCosts prints the cost table of one transaction as counted in this run.
func printCosts(out io.Writer, s *stack.Stack, n int) {
	c, writes := s.Costs, "<= 7"
	if s.SignedElsewhere() { // the nonce is bound before the call of the signer, and the bytes are stored after it
		writes = "<= 8"
	}
	trips := "<= 4"
	if n := len(s.Nodes); n > 1 { // each gets the bytes, and a quorum of them is queried for the end
		trips = fmt.Sprintf("<= %d", 4+(n-1)+max(nodes.DefaultQuorum(n)-1, 1))
	}
	create, after := c.Of("create"), c.Of("advance", "receipt", "confirm", "resubmit")
	per := func(total int64) string { return fmt.Sprintf("%.2f", float64(total)/float64(n)) }
	fmt.Fprintf(out, "\nCost of one transaction, counted in this run (a killed invocation writes no count):\n\n")
	fmt.Fprintf(out, "%-38s %8s %26s\n", "", "create", "accepted to CONFIRMED")
	for _, row := range []struct {
		name          string
		create, after int64
		budget        string
	}{
		{"function invocations", create.Invocations, after.Invocations, "<= 3"},
		{"SQL round trips", create.SQLRoundTrips, after.SQLRoundTrips, writes},
		{"SQL statements", create.SQLStatements, after.SQLStatements, ""},
		{"commits to Postgres", create.Commits, after.Commits, writes},
		{"HTTP round trips to the chain's nodes", create.RPCRoundTrips, after.RPCRoundTrips, trips},
		{"tasks asked for", create.Tasks, after.Tasks, ""},
	} {
		fmt.Fprintf(out, "%-38s %8s %12s %13s\n", row.name, per(row.create), per(row.after), row.budget)
	}
}
