package payout_test

import (
	"log/slog"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	book "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// monitor is the check of conservation with the journal of payouts. No test here moves money to
// Spot, whose journal is in another database.
func (h *env) monitor() conservation.Monitor {
	h.t.Helper()
	return conservation.Monitor{
		Book: book.New(h.db.DB), Funding: h.funding.Journal(), Trading: funding.New(storetest.New(h.t).DB).Journal(),
		Payouts: payout.NewJournal(families, h.db.Store), Mode: conservation.HaltAll, Page: 2,
		Log: slog.New(slog.DiscardHandler), Critical: telemetry.LevelCritical,
	}
}

// found returns the kinds of the findings that a check reports for the first time.
func found(t testing.TB, m conservation.Monitor, full bool) (kinds []conservation.Kind) {
	t.Helper()
	report := check.Value(m.Check(t.Context(), full))(t)
	for _, f := range report.Fresh {
		kinds = append(kinds, f.Kind)
	}
	return kinds
}

// The check has no finding at any step of payouts with every result, nor in a full run after
// everything was archived. It finds a payout that was paid and refunded.
func TestCheckHasNoFindingAtAnyStepOfPayouts(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	h.deploy(contracts.Liar())
	m := h.monitor()
	silent := func(when string, full bool) {
		t.Helper()
		if got := found(t, m, full); len(got) != 0 {
			t.Fatalf("%s: got %v, want nothing", when, got)
		}
	}
	silent("before", false)
	for range 2 {
		made, given, unproven := h.due(coin), h.due(coin), h.due(token)
		for _, x := range []transfer.Transfer{made, unproven} {
			h.drive(x.ReqID, transfer.TargetPending)
		}
		silent("pending", false)
		h.mineUntil(made.ReqID, "CONFIRMED")
		silent("confirmed, and not yet committed", false)
		h.drive(made.ReqID, transfer.Committed)
		h.giveUp(given.ReqID)
		h.mineUntil(unproven.ReqID, "CONFIRMED")
		h.drive(unproven.ReqID, transfer.TargetPending)
		silent("ended", false)
	}
	h.archive()
	silent("archived", true)

	x := h.due(coin)
	h.confirm(x)
	succeeds(t, h.funding.Refund(t.Context(), x.Call()))
	check.Same(t, "paid and given back", found(t, m, false), []conservation.Kind{conservation.CreditAndRefund})
	if _, err := h.Create(t.Context(), h.request(coin), terms); err == nil {
		t.Error("a new payout: got it accepted, want it halted")
	}
}
