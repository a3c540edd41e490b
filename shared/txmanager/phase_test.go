package txmanager_test

import (
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// phaseConditions is when each phase holds, without regard to the other phases.
var phaseConditions = map[txmanager.Phase]func(txmanager.Tx) bool{
	txmanager.AwaitingNonce:   func(t txmanager.Tx) bool { return t.State == txmanager.Queued },
	txmanager.Ended:           func(t txmanager.Tx) bool { return t.State.Terminal() },
	txmanager.AwaitingRelease: func(t txmanager.Tx) bool { return t.State == txmanager.Protect },
	txmanager.AwaitingAction: func(t txmanager.Tx) bool {
		return t.State.HoldsOpenNonce() && t.State != txmanager.Protect && t.RequestedAction != "" && t.Receipt == nil
	},
	txmanager.AwaitingDecision: func(t txmanager.Tx) bool {
		return t.State == txmanager.Stuck && (t.RequestedAction == "" || t.Receipt != nil)
	},
	txmanager.AwaitingMark: func(t txmanager.Tx) bool {
		return t.State == txmanager.InFlight && t.RequestedAction == "" && t.Reservation != nil && t.Reservation.State != txmanager.Used
	},
	txmanager.AwaitingHandler: func(t txmanager.Tx) bool {
		return t.State == txmanager.InFlight && t.RequestedAction == "" && t.Handler != ""
	},
	txmanager.AwaitingSignature: func(t txmanager.Tx) bool {
		return t.State == txmanager.InFlight && t.RequestedAction == "" && t.Handler == "" && (t.Reservation == nil || t.Reservation.State == txmanager.Used)
	},
	txmanager.AwaitingFinality: func(t txmanager.Tx) bool { return t.State == txmanager.Tracking && t.Receipt != nil },
	txmanager.AwaitingReceipt: func(t txmanager.Tx) bool {
		return (t.State == txmanager.Submitted || t.State == txmanager.Tracking) && t.RequestedAction == "" && t.Receipt == nil
	},
}

// constructible calls f with a transaction for each combination of the stored columns that the
// constraints of the table allow.
func constructible(f func(txmanager.Tx)) {
	receipt := new(txtest.ReceiptOf(txtest.Pending(5), txtest.Block('a', 9)))
	reservations := []*txmanager.Reservation{nil, {State: txmanager.Reserved}, {State: txmanager.Recyclable}, {State: txmanager.Used}}
	actions := []txmanager.Action{"", txmanager.ActionCancel, txmanager.ActionPlaceholder, txmanager.ActionReplace, txmanager.ActionRebroadcast, txmanager.ActionWait}
	for _, state := range txmanager.States() {
		for _, sub := range []txmanager.SubState{"", txmanager.Pending, txmanager.Included} {
			if (sub != "") != (state == txmanager.Tracking) {
				continue
			}
			for _, action := range actions {
				for _, reservation := range reservations {
					for _, handler := range []string{"", "wage"} {
						for _, fills := range []bool{false, true} {
							for _, mined := range []*txmanager.Receipt{nil, receipt} {
								tx := txmanager.Tx{State: state, Sub: sub, RequestedAction: action, Reservation: reservation, Handler: handler, FillsLostNonce: fills, Receipt: mined}
								holds, signed := state.HoldsOpenNonce(), state != txmanager.Queued && state != txmanager.InFlight
								switch {
								case action != "" && !holds, reservation != nil && !holds, mined != nil && !signed:
								case reservation != nil && handler != "", fills && (handler != "" || reservation != nil):
								case (mined != nil) != (sub == txmanager.Included) && state == txmanager.Tracking, mined != nil && state == txmanager.Submitted:
								default:
									f(tx)
								}
							}
						}
					}
				}
			}
		}
	}
}

// Each transaction that can be stored waits for exactly one thing.
func TestExactlyOnePhaseHolds(t *testing.T) {
	t.Parallel()
	seen := make(map[txmanager.Phase]bool)
	constructible(func(tx txmanager.Tx) {
		seen[tx.Phase()] = true
		for phase, condition := range phaseConditions {
			if holds := condition(tx); holds != (tx.Phase() == phase) {
				t.Errorf("%s/%s, action %q, handler %q, reservation %v, receipt %v: got phase %s; that %s holds is %v",
					tx.State, tx.Sub, tx.RequestedAction, tx.Handler, tx.Reservation, tx.Receipt != nil, tx.Phase(), phase, holds)
			}
		}
	})
	check.Equal(t, "phases: reached", len(seen), len(phaseConditions))
}
