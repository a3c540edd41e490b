package transfers_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Each refusal has its reason, and stores nothing.
func TestCreateRefusesWithAReason(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	daily := transfer.Asset{ID: 2, Name: "BTC", Precision: 8, MinUnits: 10, MaxUnits: ^uint64(0), DailyUnits: 1_000_000_000, Active: true, Enabled: true}
	b.put(t, daily)
	b.put(t, transfer.Asset{ID: 3, Name: "OLD", Precision: 0, MinUnits: 1, MaxUnits: 9, Enabled: true})
	b.put(t, transfer.Asset{ID: 4, Name: "OFF", Precision: 0, MinUnits: 1, MaxUnits: 9, Active: true})
	for _, c := range []struct {
		asset, amount string
		to            transfer.AccountType
		want          transfer.Reason
	}{
		{"USDT", "1", transfer.Funding, transfer.SameAccount},
		{"USDT", "1", "WALLET", transfer.InvalidAccountType},
		{"USDT", "1", transfer.Margin, transfer.UnsupportedAccountType},
		{"DOGE", "1", transfer.Spot, transfer.InvalidAsset},
		{"OLD", "1", transfer.Spot, transfer.AssetSuspended},
		{"OFF", "1", transfer.Spot, transfer.TransferNotAllowed},
		{"USDT", "1.1234567", transfer.Spot, transfer.PrecisionOverflow},
		{"BTC", "1.123456789", transfer.Spot, transfer.PrecisionOverflow},
		{"BTC", "0.00000009", transfer.Spot, transfer.AmountTooSmall},
		{"USDT", "1000000.000001", transfer.Spot, transfer.AmountTooLarge},
		{"BTC", "18446744073.70955162", transfer.Spot, transfer.Overflow},
		{"BTC", "99999999999999999999999999999999999999999999", transfer.Spot, transfer.Overflow},
		{"BTC", "10.00000001", transfer.Spot, transfer.DailyAmountExceeded},
	} {
		r := request("")
		r.Asset, r.Amount, r.To = c.asset, amount(t, c.amount), c.to
		check.Equal(t, fmt.Sprintf("%s %s to %s", c.amount, c.asset, c.to), b.refusal(t, r, terms).Reason, c.want)
	}
	none := request("")
	none.Amount = transfer.Amount{}
	check.Equal(t, "no amount", b.refusal(t, none, terms).Reason, transfer.InvalidAmount)
	check.Equal(t, "rows", value[int](t, b, `select count(*) from transfers_tb`), 0)
}

// A halt stops exactly its scope, until the operator resumes that halt. Transfers that have begun
// continue.
func TestHaltStopsNewTransfersOfItsScope(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.put(t, transfer.Asset{ID: 2, Name: "BTC", Precision: 8, MinUnits: 1, MaxUnits: 1 << 60, Active: true, Enabled: true})
	begun := r.created(t, request("before"))
	ask := func(user int64, asset string) string {
		q := request("")
		q.UserID, q.Asset = user, asset
		_, err := r.Create(t.Context(), q, terms)
		if err != nil && !errors.Is(err, transfer.ErrHalted) {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s %t", user, asset, err == nil)
	}
	for _, c := range []struct {
		halt transfers.Halt
		want []string
	}{
		{transfers.Halt{Scope: conservation.UserAsset, UserID: alice, AssetID: 1}, []string{"7 USDT false", "7 BTC true", "8 USDT true"}},
		{transfers.Halt{Scope: conservation.Asset, AssetID: 1}, []string{"7 USDT false", "7 BTC true", "8 USDT false"}},
		{transfers.Halt{Scope: conservation.All}, []string{"7 USDT false", "7 BTC false", "8 USDT false"}},
	} {
		c.halt.Evidence = []byte(`{"lost": 1}`)
		second := c.halt
		second.Evidence = []byte(`{"lost": 2}`)
		for _, h := range []transfers.Halt{c.halt, second} {
			check.OK(t)(r.OpenHalt(t.Context(), h))
		}
		check.Same(t, string(c.halt.Scope), []string{ask(alice, "USDT"), ask(alice, "BTC"), ask(bob, "USDT")}, c.want)
		open, all, err := r.OpenHalts(t.Context(), 1)
		if err != nil || all != 2 || len(open) != 1 || string(open[0].Evidence) != `{"lost": 2}` || open[0].Scope != c.halt.Scope || open[0].Since.IsZero() {
			t.Fatalf("open: got %+v of %d, %v; want the newer of two", open, all, err)
		}
		check.OK(t)(r.Resume(t.Context(), open[0].ID, "carol", "counted again", false))
		check.Equal(t, fmt.Sprintf("%s, one of two resumed", c.halt.Scope), ask(alice, "USDT"), "7 USDT false")
		if open, all, err = r.OpenHalts(t.Context(), 9); err != nil || all != 1 || len(open) != 1 || string(open[0].Evidence) != `{"lost": 1}` {
			t.Fatalf("open: got %+v of %d, %v; want the other", open, all, err)
		}
		check.Equal(t, "without a reason", storetest.Violated(r.Resume(t.Context(), open[0].ID, "carol", "", false)), "resumed_by_an_operator")
		for _, want := range []error{nil, transfers.ErrNotHalted} {
			check.Err(t, "resume", want)(r.Resume(t.Context(), open[0].ID, "carol", "counted again", false))
		}
	}
	for range 3 {
		check.OK(t)(r.OpenHalt(t.Context(), transfers.Halt{Scope: conservation.All, Evidence: []byte(`{}`)}))
	}
	open, _, err := r.OpenHalts(t.Context(), 3)
	check.OK(t)(err)
	check.OK(t)(r.Resume(t.Context(), open[1].ID, "carol", "all that I have seen", true))
	if left, all, err := r.OpenHalts(t.Context(), 3); err != nil || all != 1 || left[0].ID != open[0].ID {
		t.Errorf("after the one in the middle and all earlier: got %+v of %d, %v; want the newest", left, all, err)
	}
	check.OK(t)(r.Resume(t.Context(), open[0].ID, "carol", "and this", false))
	check.Equal(t, "after the last resume", ask(alice, "USDT"), "7 USDT true")
	check.OK(t)(r.OpenHalt(t.Context(), transfers.Halt{Scope: conservation.All, Evidence: []byte(`{}`)}))
	r.drive(t, begun.ReqID, transfer.Committed)
}

// H8: in a restored database nothing is accepted, called or moved, and "not found" proves nothing.
// After the acceptance it stays halted until an operator resumes.
func TestH08RestoredDatabase(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	x := r.created(t, request("kept"))
	r.age(t, x.ReqID, "1 hour")
	pending := r.at(t, transfer.SourcePending)
	r.Run(t, `update database_identity set timeline_id = timeline_id + 1`)
	check.Err(t, "a new request", transfer.ErrForeign)(r.Submit(t.Context(), request("new"), terms))
	check.Equal(t, "what is stored", check.Value(r.Submit(t.Context(), request("kept"), terms))(t).ReqID, x.ReqID)
	for _, y := range []transfer.Transfer{x, pending} {
		if got, err := r.Drive(t.Context(), y.ReqID); !errors.Is(err, transfer.ErrForeign) || r.asked != 0 {
			t.Errorf("drive: got %s, %v, %d calls; want a foreign database, none", got.State, err, r.asked)
		}
	}
	order := transfer.RequestedAction{ReqID: x.ReqID, By: "carol", Reason: "r"}
	check.Err(t, "cancel", transfer.ErrForeign)(r.Coordinator.Cancel(t.Context(), order))
	if m, err := r.Move(t.Context(), transfer.Transition{ReqID: pending.ReqID, Path: []transfer.State{10, 20, 30}}); err != nil || m.Done || m.Now.State != transfer.SourcePending {
		t.Errorf("move: got %+v, %v; want nothing moved", m, err)
	}
	if m, err := r.Start(t.Context(), x.ReqID, 24*time.Hour); err != nil || m.Done || m.Now.State != transfer.Init {
		t.Errorf("start: got %+v, %v; want it not begun", m, err)
	}
	check.Err(t, "what may be lost", transfer.ErrForeign)(r.Find(t.Context(), request("").ReqID, alice))
	due := func() int {
		found, _, err := r.Due(t.Context(), 0, 10, time.Time{})
		check.OK(t)(err)
		return len(found)
	}
	check.Equal(t, "due for the sweep", due(), 0)
	check.OK(t)(r.AcceptDatabase(t.Context(), "carol", "reconciled"))
	check.Equal(t, "due once accepted", due(), 2)
	r.drive(t, pending.ReqID, transfer.Committed)
	check.Err(t, "a new request, the database accepted", transfer.ErrHalted)(r.Submit(t.Context(), request("new"), terms))

	// Only the ledgers know whether x continued after the backup: it fails neither by its age nor by an
	// operator's cancel.
	check.Err(t, "cancel, the database accepted", transfer.ErrRestored)(r.Coordinator.Cancel(t.Context(), order))
	r.drive(t, x.ReqID, transfer.Committed)

	r.Run(t, `update transfer_halt set resumed_at = clock_timestamp(), resumed_by = 'carol', resume_reason = 'r'`)
	order.ReqID = r.created(t, request("")).ReqID
	check.Equal(t, "cancel of a transfer made since", check.Value(r.Coordinator.Cancel(t.Context(), order))(t).Reason, transfer.Cancelled)
}

// H8: a database that a worker finds to be a restored one moves nothing, and the worker reports it.
func TestH08RestoredUnderAWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	x := r.created(t, request(""))
	r.before = func(transfer.Op) { r.Run(t, `update database_identity set timeline_id = timeline_id + 1`) }
	if got, err := r.Drive(t.Context(), x.ReqID); !errors.Is(err, transfer.ErrForeign) || got.State != transfer.SourcePending || r.asked != 1 {
		t.Errorf("got %s, %v, %d calls; want a foreign database, nothing moved", got.State, err, r.asked)
	}
}

// A payout is stored only with its asset's terms. After an unknown result the caller asks again.
func TestPayoutsHaveTheAssetsTerms(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.offer(t, payable)
	b.Register(t, secondPayer, 1, store.PayoutCaller)
	for name, change := range map[string]func(*transfer.Payout){
		"payer":  func(p *transfer.Payout) { p.Submitter = secondPayer },
		"chain":  func(p *transfer.Payout) { p.ChainID = 1 },
		"token":  func(p *transfer.Payout) { p.Token = "" },
		"amount": func(p *transfer.Payout) { p.BaseUnits = "1500001" },
	} {
		r := payout()
		change(r.Payout)
		check.Err(t, fmt.Sprintf("another %s", name), transfer.ErrMoved)(b.Create(t.Context(), r, terms))
	}
	b.put(t, usdt)
	check.Equal(t, "an asset without terms of payout", b.refusal(t, payout(), terms).Reason, transfer.TransferNotAllowed)
}

// A payout is stored only while its payer can pay: a payout that can never be sent would keep the
// user's money until an operator acts.
func TestPayoutsNeedAPayingPayer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, payable)
	refused := func(why string) {
		t.Helper()
		check.Err(t, fmt.Sprintf("the payer %s", why), transfer.ErrProtected)(b.Create(t.Context(), payout(), terms))
	}
	refused("is not registered")
	b.Register(t, payer, 1, store.PayoutCaller)
	b.created(t, payout())
	b.Run(t, `update submitter set callers = '{*}' where submitter = $1`, payer)
	refused("is everyone's")
	b.Run(t, `update submitter set callers = '{transfer}', status = 'SUSPENDED' where submitter = $1`, payer)
	refused("is suspended")
	b.Run(t, `update submitter set status = 'ACTIVE' where submitter = $1`, payer)
	b.Run(t, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`, payer)
	refused("is in PROTECT")
	b.created(t, request(""))
	b.Run(t, `update protect_incident set closed_at = clock_timestamp(), closed_by = 'o', mode = 'resume', reason = 'r'`)
	b.created(t, payout())
}

// A payout that races a change of its payer is refused for that change: the payer was replaced, and the payout can be sent again, or it was
// retired. An asset that names a retired payer is refused for that reason too.
func TestPayoutsRaceChangesOfTheirPayer(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]struct{ payout, asset error }{
		"ACTIVE": {transfer.ErrMoved, nil}, "RETIRED": {transfer.ErrRetired, transfer.ErrRetired},
	} {
		b := newBench(t)
		b.offer(t, payable)
		check.Err(t, "retire the payer of an asset", store.OpenWorkError{Work: "an asset that names it as its payer"})(nil,
			b.Bundle.Store.Retire(t.Context(), store.Retirement{Submitter: payer, By: "ann", Reason: "r"}))
		change := b.Holding(t, `update assets_tb set payout_submitter = null, chain_id = null, token_contract = null, chain_decimals = null
			where asset = $1`, payable.Name)
		change.Do(`update submitter set status = $2 where submitter = $1`, payer, status)
		done := b.blocked(t, "insert into transfers_tb", func() error { return second(b.Create(t.Context(), payout(), terms)) })
		change.Do("commit")
		check.Err(t, status+": a payout that races the change", want.payout)(nil, <-done)
		check.Err(t, status+": an asset of the payer", want.asset)(nil, b.PutAsset(t.Context(), payable))
	}
}

// acceptedAtOnce makes n creates at once, and returns how many were accepted. The others must be refused for the reason.
func acceptedAtOnce(t *testing.T, n int, reason transfer.Reason, create func() error) int {
	t.Helper()
	var accepted atomic.Int64
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			err := create()
			if refused, _ := errors.AsType[transfer.RefusedError](err); err == nil {
				accepted.Add(1)
			} else if refused.Reason != reason {
				t.Errorf("got %v, want %s", err, reason)
			}
		})
	}
	group.Wait()
	return int(accepted.Load())
}

// The limits hold exactly, also for concurrent requests. Failed and refunded transfers do not count
// against the amount.
func TestLimitsHoldForConcurrentRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, transfer.Asset{ID: 2, Name: "BTC", Precision: 8, MinUnits: 1, MaxUnits: 1 << 60, DailyUnits: 450_000_000, Active: true, Enabled: true})
	for name, c := range map[string]struct {
		asset  string
		limits transfer.Limits
		want   int
		reason transfer.Reason
	}{
		"a second": {"USDT", transfer.Limits{PerSecond: 3}, 3, transfer.RateLimitExceeded},
		"a day":    {"USDT", transfer.Limits{PerDay: 5}, 5, transfer.DailyLimitExceeded},
		"amount":   {"BTC", transfer.Limits{}, 3, transfer.DailyAmountExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			user := int64(len(name)) + 100
			accepted := acceptedAtOnce(t, 12, c.reason, func() error {
				r := request("")
				r.UserID, r.Asset = user, c.asset
				return second(b.Create(t.Context(), r, transfer.Terms{SafetyFactor: 10, Limits: c.limits}))
			})
			check.Equal(t, "accepted of 12 at once", accepted, c.want)
		})
	}
	b.Run(t, `with one as (select req_id from transfers_tb where asset_id = 2 limit 1) select move_transfer(req_id, '{0,10}', null), move_transfer(req_id, '{10,-10}', 'ACCOUNT_FROZEN') from one`)
	r := request("")
	r.UserID, r.Asset = int64(len("amount"))+100, "BTC"
	b.created(t, r)
}
