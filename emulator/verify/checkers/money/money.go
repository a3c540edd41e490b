// Package money checks an episode of transfers against the promises about money. It reads the two
// ledgers' journals and balances and the rows and history of transfers, and adds them up itself. It
// shares with the system only the table of states and the format of the journals.
package money

import (
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/fencepost/fencepost/emulator/verify/checkers/promise"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Run describes the two ledgers from their start, when both were empty, until now.
type Run struct {
	Database string          // the database's URL, of a role that may read every table
	Core     *trading.Ledger // the trading core
	Users    []int64         // the users to check; nil: all

	// Lost lists the req_ids of transfers that lost databases had and their backups have not. Only the
	// trading core may have lines of them.
	Lost map[string]bool

	// Settled means that the faults have stopped, no work is under way, and everything should be
	// terminal.
	Settled bool
}

// Violation is one broken promise; TxID is a req_id.
type Violation = promise.Violation

// Checker checks evidence against one promise.
type Checker = promise.Checker[*Evidence]

// reporter takes a violation; reqID may be "".
type reporter func(userID int64, reqID, format string, args ...any)

// of returns a checker that keeps what check finds about the users to check.
func of(name, words string, check func(*Evidence, reporter)) Checker {
	return Checker{Name: name, Promise: words, Find: func(e *Evidence, report promise.Reporter) {
		check(e, func(userID int64, reqID, format string, args ...any) {
			if len(e.run.Users) == 0 || slices.Contains(e.run.Users, userID) {
				report(fmt.Sprint("user ", userID), reqID, format, args...)
			}
		})
	}}
}

// All lists every checker in the order in which they report.
func All() []Checker {
	return []Checker{
		of("conserved", "in the end a user's balance of each asset, in Funding and Trading together, is the deposits from outside less the withdrawals", conserved),
		of("books", "on each side a balance is the sum of the entries that the side's journal applied to it", books),
		of("once", "each operation of a req_id is answered once in both journals together", once),
		of("its-transfer", "each entry of a ledger for a transfer has the user, asset, units and side of the transfer's row", itsTransfer),
		of("credit-implies-debit", "a deposit or refund has its withdrawal, and no withdrawal has both", creditImpliesDebit),
		of("ends-as-journaled", "COMMITTED is withdrawn and deposited, ROLLED_BACK withdrawn and refunded, FAILED neither", endsAsJournaled),
		of("refusal-is-stored", "only a refusal that a ledger has stored, for that reason, fails a transfer or gives money back", refusalIsStored),
		of("legal-states", "a history begins with INIT, has legal transitions only, none after a terminal state, and ends at the recorded state", legalStates),
		of("ended", "once faults have stopped every transfer ends", ended),
	}
}

// Check runs every checker. An error means that the episode could not be read, which is no verdict.
func Check(ctx context.Context, e Run) ([]Violation, error) {
	return promise.Check(ctx, e, ReadEvidence, All())
}

// Report formats the violations for a reader: their number, then one a line.
func Report(all []Violation) string { return promise.Report(all, "transfer") }

// journaled is a journal entry with the side that wrote it.
type journaled struct {
	transfer.Entry
	side transfer.AccountType
	late bool // read after the other side
}

// Change returns the change of a balance by an operation that was applied.
func Change(op transfer.Op, units uint64) *big.Int {
	change := new(big.Int).SetUint64(units)
	if !op.Credits() {
		change.Neg(change)
	}
	return change
}

// applied returns the entries by which the operation of a req_id was applied.
func (v *Evidence) applied(reqID string, op transfer.Op) []journaled {
	return slices.DeleteFunc(slices.Clone(v.entries[reqID]), func(j journaled) bool { return j.Op != op || j.Refused != "" })
}

// refused returns the entries by which the operation of a req_id was refused.
func (v *Evidence) refused(reqID string, op transfer.Op) []journaled {
	return slices.DeleteFunc(slices.Clone(v.entries[reqID]), func(j journaled) bool { return j.Op != op || j.Refused == "" })
}

// MovesMoney reports whether the operation is one of a transfer's.
func MovesMoney(op transfer.Op) bool {
	return op == transfer.Withdraw || op == transfer.Deposit || op == transfer.Refund
}

func itsTransfer(e *Evidence, report reporter) {
	for _, j := range e.journal {
		if !MovesMoney(j.Op) {
			continue
		}
		t, known := e.rows[j.ReqID]
		if !known {
			if !j.late && !e.isLost(j) { // otherwise its row can be younger than the database's snapshot
				report(j.UserID, j.ReqID, "%s has a %s of a transfer that does not exist", j.side, j.Op)
			}
			continue
		}
		if j.UserID != t.UserID || j.AssetID != t.AssetID || j.Units != t.Units {
			report(t.UserID, j.ReqID, "%s has a %s of %d units of asset %d for user %d, and the transfer is of %d of asset %d for user %d",
				j.side, j.Op, j.Units, j.AssetID, j.UserID, t.Units, t.AssetID, t.UserID)
		}
		want := t.Type.Source()
		if j.Op == transfer.Deposit {
			want = t.Type.Target()
		}
		if j.side != want {
			report(t.UserID, j.ReqID, "%s has its %s, which is %s's", j.side, j.Op, want)
		}
	}
}

func once(e *Evidence, report reporter) {
	for reqID := range e.entries {
		for _, op := range []transfer.Op{transfer.Withdraw, transfer.Deposit, transfer.Refund, transfer.OutsideDeposit, transfer.OutsideWithdrawal} {
			if all := slices.Concat(e.applied(reqID, op), e.refused(reqID, op)); len(all) > 1 {
				report(all[0].UserID, reqID, "%d answers to its %s, the first by %s, the next by %s", len(all), op, all[0].side, all[1].side)
			}
		}
	}
}

func creditImpliesDebit(e *Evidence, report reporter) {
	for reqID := range e.entries {
		debits, deposits, refunds := e.applied(reqID, transfer.Withdraw), e.applied(reqID, transfer.Deposit), e.applied(reqID, transfer.Refund)
		for _, credits := range [][]journaled{deposits, refunds} {
			if len(credits) > 0 && len(debits) == 0 && !credits[0].late && !e.isLost(credits[0]) {
				report(credits[0].UserID, reqID, "a %s by %s without a withdrawal", credits[0].Op, credits[0].side)
			}
		}
		if len(deposits) > 0 && len(refunds) > 0 {
			report(deposits[0].UserID, reqID, "deposited by %s and refunded by %s", deposits[0].side, refunds[0].side)
		}
	}
}

// endings lists the operations that must have been applied for a transfer in each terminal state.
var endings = map[transfer.State]map[transfer.Op]bool{
	transfer.Committed:  {transfer.Withdraw: true, transfer.Deposit: true},
	transfer.RolledBack: {transfer.Withdraw: true, transfer.Refund: true},
	transfer.Failed:     {},
}

func endsAsJournaled(e *Evidence, report reporter) {
	for reqID, t := range e.rows {
		want, final := endings[t.State]
		if !final {
			continue
		}
		for _, op := range []transfer.Op{transfer.Withdraw, transfer.Deposit, transfer.Refund} {
			if op == transfer.Deposit && t.Type.Target() == transfer.Chain {
				continue // the chain has separate checkers
			}
			if got := len(e.applied(reqID, op)) > 0; got != want[op] {
				report(t.UserID, reqID, "it is %s, and %s: %t", t.State, op, got)
			}
		}
	}
}

func refusalIsStored(e *Evidence, report reporter) {
	for reqID, t := range e.rows {
		op := transfer.Deposit
		switch t.State {
		case transfer.Failed:
			op = transfer.Withdraw
		case transfer.Compensating, transfer.RolledBack:
		default:
			continue
		}
		if t.Reason == transfer.Expired || t.Reason == transfer.Cancelled || op == transfer.Deposit && t.Type.Target() == transfer.Chain {
			continue
		}
		var stored []transfer.Reason
		for _, j := range e.refused(reqID, op) {
			stored = append(stored, j.Refused)
		}
		if len(stored) == 0 || stored[0] != t.Reason {
			report(t.UserID, reqID, "it is %s for %s, and the journal's refusal of its %s is %v", t.State, t.Reason, op, stored)
		}
	}
}

func legalStates(e *Evidence, report reporter) {
	for reqID, t := range e.rows {
		last := transfer.State(-1)
		for i, h := range e.history[reqID] {
			switch {
			case i == 0 && (h.From != nil || h.State != transfer.Init):
				report(t.UserID, reqID, "its history begins with %s", h.State)
			case i == 0:
			case last.Terminal():
				report(t.UserID, reqID, "%s after it was %s, which is an end", h.State, last)
			case h.From == nil || *h.From != last:
				report(t.UserID, reqID, "%s from a state that it was not in: it was %s", h.State, last)
			case !last.MayBecome(h.State):
				report(t.UserID, reqID, "%s to %s, which no transition allows", last, h.State)
			}
			last = h.State
		}
		if last != t.State {
			report(t.UserID, reqID, "its history ends with %s, and it is %s", last, t.State)
		}
	}
}

func ended(e *Evidence, report reporter) {
	for reqID, t := range e.rows {
		if e.run.Settled && !t.State.Terminal() {
			report(t.UserID, reqID, "it is still %s", t.State)
		}
	}
}
