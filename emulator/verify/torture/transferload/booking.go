package transferload

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/shared/transfer"
)

// booking is a movement from or to the outside that the cashier asked a ledger for. What the accounts
// hold from outside, and what the operator settled, follow from the bookings alone.
type booking struct {
	at         Account
	op         transfer.Op
	call       transfer.Call
	came       transfer.Outcome
	when       time.Time // time of the answer
	generation int       // of the database that was asked
	settles    string    // the transfer that the operator settled by it; "": none
}

// newBooking returns a deposit of the units, or a withdrawal if they are negative.
func newBooking(at Account, id string, units int64) *booking {
	b := &booking{at: at, op: transfer.OutsideDeposit}
	if units < 0 {
		b.op, units = transfer.OutsideWithdrawal, -units
	}
	b.call = transfer.Call{ReqID: id, UserID: at.UserID, AssetID: at.AssetID, Units: uint64(units), CreatedAt: time.Now().Truncate(time.Microsecond)}
	return b
}

// change is the change of the account's balance, in units.
func (b *booking) change() int64 {
	if b.came.Verdict != transfer.Success {
		return 0
	}
	return money.Change(b.op, b.call.Units).Int64()
}

func (l *Ledger) addBooking(b *booking) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bookings = append(l.bookings, b)
}

// recordOutcome records the answer to a booking, also when it was repeated after a restore.
func (l *Ledger) recordOutcome(b *booking, came transfer.Outcome, generation int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.came, b.when, b.generation = came, time.Now(), generation
}

// outside returns the deposits less the withdrawals of each account, and the number of bookings
// without an answer.
func (l *Ledger) outside() (all map[Account]int64, unknown int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = make(map[Account]int64)
	for _, b := range l.bookings {
		all[b.at] += b.change()
		if b.came.Verdict == transfer.Unknown {
			unknown++
		}
	}
	return all, unknown
}

// Settlements returns the units booked with the outside, by the req_id of the lost half. It has 0 for
// a lost transfer of which no units are missing.
func (l *Ledger) Settlements() map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]int64)
	for _, reqID := range l.lost {
		all[reqID] = 0
	}
	for _, b := range l.bookings {
		if b.settles != "" {
			all[b.settles] += b.change()
		}
	}
	return all
}

// markLost records that the transfer is lost, even if no units are missing.
func (l *Ledger) markLost(reqID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = append(l.lost, reqID)
}

// lostBookings returns the bookings in Funding that a restore may have lost, oldest first, and the
// number of restores so far.
func (l *Ledger) lostBookings() (all []*booking, generation int) {
	generation = l.Generation()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.bookings {
		if b.at.Side == transfer.Funding && b.generation < generation && l.MayBeLost(b.generation, b.when) {
			all = append(all, b)
		}
	}
	return all, generation
}

// rebookLost repeats, by their ids, the bookings that Funding may have lost. Deposits come
// first, so that the balances cover the withdrawals.
func (t *Cashier) rebookLost(ctx context.Context) {
	for ctx.Err() == nil {
		lost, generation := t.Ledger.lostBookings()
		if len(lost) == 0 {
			return
		}
		slices.SortStableFunc(lost, func(a, b *booking) int { return cmp.Compare(a.op, b.op) }) // by name
		for _, b := range lost {
			came := t.insist(ctx, b)
			if came.Verdict == transfer.Unknown || t.Ledger.Generation() != generation {
				break
			}
			t.Ledger.recordOutcome(b, came, generation)
		}
	}
}

// Expected returns the balance that each account must have, in units. It adds up outside
// movements and COMMITTED transfers by the answers of users and cashier alone. The result
// unknown describes each missing end. If a restore may have lost a final answer, the transfer's end is the stored one;
// without one its row is lost too.
func (l *Ledger) Expected(stored map[string]End) (all map[Account]int64, unknown []string) {
	all, unanswered := l.outside()
	if unanswered > 0 {
		unknown = append(unknown, fmt.Sprintf("%d movements from and to the outside were never answered", unanswered))
	}
	for _, s := range l.Requests() {
		answers := s.Answers()
		if l.EndMayBeLost(answers) {
			end, isStored := stored[answers.ID]
			if answers.End = &end; !isStored {
				continue
			}
		}
		switch {
		case answers.End == nil && !answers.Refused:
			unknown = append(unknown, fmt.Sprintf("user %d never got the end of cid %q, transfer %q", s.UserID, s.CID, answers.ID))
		case answers.End != nil && answers.End.State == transfer.Committed:
			all[Account{Side: s.From, UserID: s.UserID, AssetID: s.Asset.ID}] -= int64(s.Units)
			if s.To != transfer.Chain {
				all[Account{Side: s.To, UserID: s.UserID, AssetID: s.Asset.ID}] += int64(s.Units)
			}
		}
	}
	return all, unknown
}
