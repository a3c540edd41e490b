package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

func (e *episode) announce(kinds int) {
	e.out.Printf("Torture with seed %d: %v of faults, %d events of %d kinds, on %d submitters (windows 1 and %d;",
		e.seed, e.length(), len(e.events), kinds, e.submitters, e.window)
	e.out.Printf("a foreign signer also has the keys of two of them), %v intents a second, %v blocks, confirmations.required=%d.",
		e.rate, blockTime, confirmations)
	if e.transfers > 0 {
		e.out.Printf("%d users move money between two ledgers and out to the chain, %v times a second; the foreign signer also has the payer's key.", userCount, e.transfers)
	}
	e.out.Printf("The chain has %d nodes; unless --set says otherwise, events, gas bump, fee history and mempool diagnosis are on.", e.nodes)
	e.out.Printf("The same again:\n  %s", e.command())
	if e.length() < e.forEachKind() {
		e.out.Println("The run is too short for every kind: an absent kind is no failure.")
	}
}

func (e *episode) clock() string {
	s := int(time.Since(e.folder.began).Seconds())
	return fmt.Sprintf("[%2d:%02d]", s/60, s%60)
}

// report prints a line of progress every ten seconds.
func (e *episode) report(ctx context.Context) {
	for retry.Pause(ctx, progressEvery); ctx.Err() == nil; retry.Pause(ctx, progressEvery) {
		t := e.load.Ledger.Tally()
		_, faults := e.injected()
		e.out.Printf("%s accepted %d, confirmed %d, failed %d, unfinished %d, refused %d; faults so far %d",
			e.clock(), t.Accepted, t.Ends["CONFIRMED"], t.Ends["FAILED"], t.Waiting, t.Refused, faults)
		if e.transferRun != nil {
			m := e.transferRun.Ledger.Tally()
			e.out.Printf("        transfers accepted %d, committed %d, failed %d, rolled back %d, unfinished %d",
				m.Accepted, m.Ends["COMMITTED"], m.Ends["FAILED"], m.Ends["ROLLED_BACK"], m.Waiting)
		}
	}
}

// conclude prints the table, dumps the tables of a failed run, and returns errVerdict if the
// verdict is bad.
func (e *episode) conclude(ctx context.Context, v verdict) error {
	_, faults := e.injected()
	good := v.violations() == 0 && len(v.missing) == 0 && e.ended
	e.table(v)
	e.writeJSON(v, good)
	if good {
		e.out.Printf("\nPASSED: seed %d, %d faults, 0 violations, everything ended.", e.seed, faults)
		return nil
	}
	e.details(v)
	if len(v.missing) > 0 {
		e.out.Printf("  never injected, in a run long enough for it: %s", strings.Join(v.missing, "; "))
	}
	if !e.ended {
		e.out.Printf("  not everything ended within %s after the faults", endTimeout)
	}
	if err := e.folder.dump(ctx, e.db); err != nil {
		e.out.Printf("  the database could not be dumped: %v", err)
	}
	e.out.Printf("\nFAILED: seed %d, %d violations. Logs and tables are kept in\n  %s\nRepeat with\n  %s", e.seed, v.violations(), e.folder.path, e.command())
	return errVerdict
}

// shown bounds the printed violations of one checker; the log has all.
const shown = 10

func (e *episode) details(v verdict) {
	e.out.Println()
	for _, c := range v.checks {
		for i, one := range c.Violations {
			line := strings.TrimSpace(strings.SplitN(checkers.Report([]checkers.Violation{one}), "\n", 2)[1])
			e.folder.event("violation of %s", line)
			if i < shown {
				e.out.Println(" ", line)
			}
		}
		if more := len(c.Violations) - shown; more > 0 {
			e.out.Printf("  %s: and %d more, in torture.log", c.Name, more)
		}
	}
}

func (e *episode) table(v verdict) {
	f := v.figures
	e.counts("fault", f.Faults)
	never := slices.DeleteFunc(slices.Sorted(maps.Keys(f.CrashPoints)), func(p string) bool { return f.CrashPoints[p] > 0 })
	e.row("crash points passed by a dying or stopped process", fmt.Sprintf("%d/%d", len(f.CrashPoints)-len(never), len(f.CrashPoints)))
	if len(never) > 0 {
		e.out.Printf("  not: %s", strings.Join(never, ", "))
	}
	e.counts("callers", f.Callers)
	e.counts("operators", f.Operators)
	e.counts("powers", f.Features)
	e.heading("intents", "")
	e.row("posted", f.Posted)
	e.row("refused, in PROTECT", f.Refused)
	e.row("accepted", f.Accepted)
	e.row("stored, with payouts and nonces that a resync gave up", f.Stored)
	e.row("CONFIRMED", f.Confirmed)
	for _, sub := range slices.Sorted(maps.Keys(f.Failed)) {
		e.row("FAILED/"+sub, f.Failed[sub])
	}
	e.row("PROTECT incidents", f.Protect)
	e.row("longest accept to final, accepted after the faults", fmt.Sprintf("%.1f s", f.LongestCalm))
	e.row("last end of what was unfinished, after the faults", fmt.Sprintf("%.1f s", f.LastLeftovers))
	e.row("the whole run", fmt.Sprintf("%.1f s", f.TookSeconds))
	e.transferTable(f.Transfers)
	e.heading("checker", "violations")
	for _, c := range v.checks {
		e.row(c.Name, len(c.Violations))
	}
}

func (e *episode) heading(name, column string) {
	e.out.Printf("\n%-56s %12s", strings.ToUpper(name), column)
}

func (e *episode) row(name string, value any) { e.out.Printf("%-56s %12v", name, value) }

// counts prints the counts, the largest first.
func (e *episode) counts(heading string, all map[string]int) {
	e.heading(heading, "times")
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a, b))
	})
	for _, name := range names {
		e.row(name, all[name])
	}
}

func (e *episode) writeJSON(v verdict, good bool) {
	if e.json == "" {
		return
	}
	text := steps.Value(json.MarshalIndent(struct {
		figures
		Checks  []check  `json:"checks"`
		Missing []string `json:"neverInjected"`
		Ended   bool     `json:"everythingEnded"`
		Passed  bool     `json:"passed"`
	}{v.figures, v.checks, v.missing, e.ended, good}, "", "  "))
	steps.OK(os.WriteFile(e.json, append(text, '\n'), 0o644))
}
