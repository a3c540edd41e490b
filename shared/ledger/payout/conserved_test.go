package payout_test

import (
	"errors"
	"log/slog"
	"slices"
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
		Book: book.New(h.db.DB), Funding: h.funding, Trading: funding.New(storetest.New(h.t).DB),
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

// Conservation is violated: a check halts, and the asset is suspended. No new payout is accepted,
// and one that was stored before does not begin. Nothing leaves on the chain.
func TestHaltStopsPayouts(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	x := h.stored(coin)
	m := h.onChain(1000)
	h.run(`update balances_tb set available = available + 5 where user_id = $1`, user) // money from nothing
	h.wantWrong("money from nothing", m, "BALANCE_DIFFERS")
	stays := func(what string) {
		t.Helper()
		h.drive(x.ReqID, transfer.Init)
		h.serve()
		h.mine(confirmations)
		if h.managed(x.ReqID) != "" || h.paid() != "0" {
			t.Errorf("%s: got transaction %q, %s paid on the chain; want none", what, h.managed(x.ReqID), h.paid())
		}
		h.has(coin, "15")
	}
	check.Err(t, "a new payout under the halt", transfer.ErrHalted)(h.Create(t.Context(), h.request(coin), terms))
	stays("halted")
	h.resume()
	h.run(`update assets_tb set status = 'SUSPENDED' where asset_id = 1`)
	_, err := h.Create(t.Context(), h.request(coin), terms)
	if refused, ok := errors.AsType[transfer.RefusedError](err); !ok || refused.Reason != transfer.AssetSuspended {
		t.Errorf("a new payout of a suspended asset: got %v, want ASSET_SUSPENDED", err)
	}
	stays("suspended")
	check.Equal(t, "transfers", value[int](h, `select count(*) from transfers_tb`), 1)
}

// A deposit from outside does not repair a balance that differs from its journal. It changes both,
// and either kind of check still has the finding.
func TestOutsideDepositKeepsTheFinding(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	m := h.monitor()
	h.run(`update balances_tb set available = available - 0.00000001 where user_id = $1`, user)
	h.wantWrong("after the theft", m, "BALANCE_DIFFERS")
	succeeds(t, h.funding.OutsideDeposit(t.Context(), transfer.Call{ReqID: "correction", UserID: user, AssetID: coin.ID, Units: 1}))
	for _, full := range []bool{false, true} {
		report, err := m.Check(t.Context(), full)
		if err != nil || report.Result() != conservation.ResultStanding || len(report.Found) != 1 {
			t.Fatalf("full %t: got %+v, %v; want one finding", full, report, err)
		}
		f := report.Found[0]
		if f.Kind != conservation.BalanceDiffers || !slices.Equal([]string{f.Expected, f.Got}, []string{"1000000001", "1000000000"}) {
			t.Errorf("full %t: got %s, want the difference as it was", full, f)
		}
	}
}
