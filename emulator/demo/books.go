package demo

import (
	"context"
	"fmt"
	"io"
	"math/big"
	"strings"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/emulator/verify/checkers/promise"
	"github.com/fencepost/fencepost/shared/transfer"
)

// printBooks prints the ends of the transfers and the sums of both journals, and returns the sums as
// text. It ends the demo with [ErrNotBalanced] if a unit is missing or superfluous, or a promise is broken.
func printBooks(ctx context.Context, s *stack.Stack, all []*wanted, out io.Writer) (books string) {
	episode := money.Run{Database: s.Database, Core: s.Core.Ledger(), Settled: true}
	evidence := steps.Value(money.ReadEvidence(ctx, episode))
	ends := evidence.Ends()
	answered := make(map[string]bool)
	for _, w := range all {
		answered[w.reqID] = true
	}
	fmt.Fprintf(out, "%d transfers asked for, %d on record: %d COMMITTED, %d FAILED (the source refused), %d ROLLED_BACK (the target refused).\n\n",
		len(all), len(answered), ends[transfer.Committed], ends[transfer.Failed], ends[transfer.RolledBack])
	books, balanced := tables(evidence)
	fmt.Fprint(out, books)
	found := promise.CheckAll(money.All(), evidence)
	fmt.Fprintf(out, "\nPromises checked, one transfer and one account at a time: %d. %s", len(money.All()), money.Report(found))
	if !balanced || len(found) > 0 || len(answered) != len(all) || ends[transfer.Committed]+ends[transfer.Failed]+ends[transfer.RolledBack] != len(all) {
		fmt.Fprintln(out, "\nThe books do NOT balance.")
		steps.OK(ErrNotBalanced)
	}
	fmt.Fprintln(out, "\nThe books balance to the unit.")
	return books
}

// tables returns the sum of each side's journal in units, and of both together.
func tables(evidence *money.Evidence) (text string, balanced bool) {
	var b strings.Builder
	balanced = true
	totals := evidence.Totals()
	fmt.Fprintf(&b, "%-6s %-8s %6s %14s %14s %14s %14s %16s %16s\n", "asset", "journal", "lines", "from outside", "withdrawn", "deposited", "refunded", "balance should", "balance is")
	for _, t := range totals {
		fmt.Fprintf(&b, "%-6s %-8s %6d %14s %14s %14s %14s %16s %16s\n", assetName(t.AssetID), t.Side, t.Lines,
			units(t, transfer.OutsideDeposit), units(t, transfer.Withdraw), units(t, transfer.Deposit), units(t, transfer.Refund), t.Expected(), t.Balance)
		balanced = balanced && t.Expected().Cmp(t.Balance) == 0
	}
	fmt.Fprintf(&b, "\n%-6s %20s %20s %20s %12s\n", "asset", "came from outside", "Funding + Trading", "in flight", "difference")
	for _, asset := range assets {
		outside, is, flight := new(big.Int), new(big.Int), new(big.Int)
		for _, t := range totals {
			if t.AssetID != asset.ID {
				continue
			}
			outside.Add(outside, units(t, transfer.OutsideDeposit)).Sub(outside, units(t, transfer.OutsideWithdrawal))
			is.Add(is, t.Balance)
			flight.Add(flight, units(t, transfer.Withdraw)).Sub(flight, units(t, transfer.Deposit)).Sub(flight, units(t, transfer.Refund))
		}
		difference := new(big.Int).Add(is, flight)
		difference.Sub(difference, outside)
		fmt.Fprintf(&b, "%-6s %20s %20s %20s %12s\n", asset.Name, outside, is, flight, difference)
		balanced = balanced && difference.Sign() == 0 && flight.Sign() == 0 && outside.Sign() > 0
	}
	return b.String(), balanced
}

// units returns the sum that the side's journal shows for op.
func units(t money.Total, op transfer.Op) *big.Int {
	if sum := t.Applied[op]; sum != nil {
		return sum
	}
	return new(big.Int)
}

func assetName(id int32) string {
	for _, a := range assets {
		if a.ID == id {
			return a.Name
		}
	}
	return fmt.Sprint(id)
}

// repeatAll repeats every call that the core ever got, and checks that the sums stay the same.
func repeatAll(ctx context.Context, s *stack.Stack, before string, out io.Writer) {
	calls := s.Core.Proxy.Calls(nil)
	for _, c := range calls {
		_, _, err := s.Core.Proxy.Replay(ctx, c, s.Core.Secret)
		steps.OK(err)
	}
	after, _ := tables(steps.Value(money.ReadEvidence(ctx, money.Run{Database: s.Database, Core: s.Core.Ledger(), Settled: true})))
	if after != before {
		fmt.Fprintf(out, "Every one of the core's %d calls came once more, late, and the books changed:\n\n%s", len(calls), after)
		steps.OK(ErrNotBalanced)
	}
	fmt.Fprintf(out, "Every one of the %d calls to the core came once more, late: not a line was added.\n", len(calls))
}
