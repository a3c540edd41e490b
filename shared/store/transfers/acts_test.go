package transfers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
)

// money is a deposit of alice's in Funding.
func money(id string, units uint64) transfer.MoneyOrder {
	return transfer.MoneyOrder{Kind: transfer.ActDeposit, RequestID: id, Ledger: transfer.Funding, UserID: alice, AssetID: usdt.ID, Units: units, By: "ann", Reason: "r"}
}

func (b bench) ordered(t testing.TB, o transfer.MoneyOrder) transfer.Act {
	t.Helper()
	return check.Value(b.OrderMoney(t.Context(), o))(t)
}

// A deposit of the service that races a lower limit of its asset is held to that limit.
func TestServiceLimitIsReadUnderALock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Run(t, `update assets_tb set daily_service_deposits = 100`)
	lower := b.Holding(t, `update assets_tb set daily_service_deposits = 1`)
	o := money("a", 2_000_000)
	o.OfService = true
	done := b.blocked(t, "order_money", func() error { return second(b.OrderMoney(t.Context(), o)) })
	lower.Do("commit")
	check.Err(t, "with the lower limit", transfer.ServiceLimitError{Left: "1"})(nil, <-done)
}

// Many acts of one kind that are due delay none of the other: they alternate, and money comes first.
func TestDueActsAlternate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for user := range int64(3) {
		check.OK(t)(b.OrderStatus(t.Context(), transfer.StatusOrder{UserID: 100 + user, AssetID: usdt.ID, Status: transfer.StatusFrozen, By: "ann", Reason: "r"}))
	}
	b.Run(t, `update account_act set next_at = clock_timestamp() - interval '1 h'`)
	for _, id := range []string{"a", "b", "c"} {
		b.ordered(t, money(id, 1))
	}
	b.Run(t, `update account_act set next_at = clock_timestamp() - interval '1 s' where kind <> 'STATUS'`)
	got, _, err := b.DueActs(t.Context(), 2)
	check.OK(t)(err)
	check.Same(t, "due", got, []int64{4, 1, 5, 2})
	got, _, err = b.DueActs(t.Context(), 9)
	check.OK(t)(err)
	check.Equal(t, "due in all", len(got), 6)
}

// The reason of a missing answer is cut to the stored length, also within a character.
func TestPostponedActs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.ordered(t, money("a", 1)).ID
	check.OK(t)(b.PostponeAct(t.Context(), id, strings.Repeat("x", 999)+strings.Repeat("é", 1000), 5*time.Minute))
	got := check.Value(b.Act(t.Context(), id))(t).Unknown
	if !strings.HasPrefix(got, strings.Repeat("x", 999)) || !utf8.ValidString(got) || len(got) > 1010 {
		t.Errorf("kept: got %d bytes, want about 1000", len(got))
	}
	check.Equal(t, "in five minutes", value[bool](t, b, `select next_at between clock_timestamp() + interval '4 min' and clock_timestamp() + interval '5 min' from account_act`), true)
}

// rejected is a proposal that was approved, and then rejected before it was carried out.
func (b bench) rejected(t testing.TB, act string, subject map[string]any) context.Context {
	t.Helper()
	p := b.Approved(t, "adjustments", act, subject)
	check.OK(t)(b.RejectProposal(t.Context(), p.ID, "cat", "r"))
	return store.WithProposal(t.Context(), p.ID)
}

// An act whose proposal was rejected since its approval calls no ledger.
func TestRejectedProposalCallsNoLedger(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	called := false
	change := transfers.AssetChange{Asset: transfer.Asset{ID: 9, Name: "EURX", Precision: 2, MinUnits: 1, MaxUnits: 9, Active: true}, By: "ann", Reason: "r",
		Announce: func(context.Context, time.Time) error { called = true; return nil }}
	if _, err := b.ChangeAsset(b.rejected(t, "asset", map[string]any{"asset": "EURX"}), change); !store.IsProposalGone(err) || called {
		t.Errorf("a new asset: got %v, the core called: %t; want the proposal gone", err, called)
	}
	check.OK(t)(b.ChangeAsset(t.Context(), change))
	check.Equal(t, "a new asset, without a proposal: the core called", called, true)
	refused := errors.New("refused")
	change.Asset.ID, change.Asset.Name, change.Announce = 10, "OTHER", func(context.Context, time.Time) error { return refused }
	check.Err(t, "an asset that the core refuses", refused)(b.ChangeAsset(t.Context(), change))

	reqID := b.created(t, request("")).ReqID
	ctx := b.rejected(t, "transfer", map[string]any{"reqId": reqID})
	if _, err := b.Record(ctx, transfer.RequestedAction{ReqID: reqID, By: "ann", Reason: "r"}, transfer.Deposit); !store.IsProposalGone(err) {
		t.Errorf("a statement: got %v, want the proposal gone", err)
	}
	check.Equal(t, "statements", value[int](t, b, `select count(*) from transfer_resolution`), 0)
}
