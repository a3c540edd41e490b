package transferload

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/shared/transfer"
)

// booking is a movement from or to the outside that the cashier booked in Funding.
type booking struct {
	at         Account
	op         transfer.Op
	call       transfer.Call
	came       transfer.Outcome
	when       time.Time // time of the answer
	generation int       // of the database that was asked
	settles    string    // the transfer that the operator settled by it; "": none
}

func (l *Ledger) addBooking(b *booking) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.booked = append(l.booked, b)
}

// lostBookings returns the bookings that a restore may have lost, oldest first, and the
// number of restores so far.
func (l *Ledger) lostBookings() (all []*booking, generation int) {
	l.mu.Lock()
	booked := l.booked
	l.mu.Unlock()
	generation = l.Generation()
	for _, b := range booked {
		if b.generation < generation && l.MayBeLost(b.generation, b.when) {
			all = append(all, b)
		}
	}
	return all, generation
}

// recordRebooking records the new answer of Funding to a booking that it may have lost.
func (l *Ledger) recordRebooking(b *booking, came transfer.Outcome, generation int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change := signed(b.op, b.call.Units, came) - signed(b.op, b.call.Units, b.came)
	if l.outside[b.at] += change; b.settles != "" {
		l.settledUnits[b.settles] += change
	}
	b.came, b.when, b.generation = came, time.Now(), generation
}

// signed is the change of the account's balance, in units.
func signed(op transfer.Op, units uint64, came transfer.Outcome) int64 {
	switch {
	case came.Verdict != transfer.Success:
		return 0
	case op.Credits():
		return int64(units)
	}
	return -int64(units)
}

// IsRebooked reports whether the cashier has repeated all bookings that the last restore may
// have lost.
func (l *Ledger) IsRebooked() bool {
	generation := l.Generation()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.again == generation
}

// rebookLost repeats, by their ids, the bookings that Funding may have lost. Deposits come
// first, so that the balances cover the withdrawals.
func (t *Cashier) rebookLost(ctx context.Context) {
	for ctx.Err() == nil && !t.Ledger.IsRebooked() {
		lost, generation := t.Ledger.lostBookings()
		for _, op := range []transfer.Op{transfer.OutsideDeposit, transfer.OutsideWithdrawal} {
			for _, b := range lost {
				if b.op != op {
					continue
				}
				came := t.insist(ctx, b.at.Side, b.op, b.call)
				if came.Verdict == transfer.Unknown || t.Ledger.Generation() != generation {
					break
				}
				t.Ledger.recordRebooking(b, came, generation)
			}
		}
		t.Ledger.markRebooked(generation)
	}
}

// markRebooked marks the generation as rebooked, unless another restore came meanwhile.
func (l *Ledger) markRebooked(generation int) {
	if generation == l.Generation() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.again = generation
	}
}
