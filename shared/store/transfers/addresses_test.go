package transfers_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
)

const (
	receiver = "0x00000000000000000000000000000000000000c3" // of [payout]
	day      = 24 * time.Hour
)

// listedOnly returns terms that allow payouts to listed addresses only.
func listedOnly(delay time.Duration) transfer.Terms {
	t := terms
	t.Addresses = transfer.AddressTerms{Required: true, Delay: delay}
	return t
}

// add adds an address to a user's list.
func (b bench) add(t testing.TB, user int64, chain uint64, address string) transfers.Address {
	t.Helper()
	a, isNew, err := b.AddAddress(t.Context(), user, chain, address, day)
	if err != nil || !isNew || !a.UsableFrom.Equal(a.AddedAt.Add(day)) {
		t.Fatalf("add %s: got %+v, new %t, %v; want it new, and usable a day later", address, a, isNew, err)
	}
	return a
}

// ageAddresses makes all addresses older.
func (b bench) ageAddresses(t testing.TB, by string) {
	t.Helper()
	b.RunUnguarded(t, "payout_address", `update payout_address set added_at = added_at - $1::text::interval, removed_at = removed_at - $1::text::interval`, by)
}

// refusal returns why a request under the terms is refused; the zero error: it is stored.
func (b bench) refusal(t testing.TB, r transfer.Request, terms transfer.Terms) transfer.RefusedError {
	t.Helper()
	_, err := b.Create(t.Context(), r, terms)
	refused, ok := errors.AsType[transfer.RefusedError](err)
	if err != nil && !ok {
		t.Fatalf("create: %v", err)
	}
	return refused
}

// lockUser is a session that holds alice's lock, and has run the statement in the same transaction.
func (b bench) lockUser(t *testing.T, statement string, args ...any) storetest.Session {
	t.Helper()
	s := b.Holding(t, `select pg_advisory_xact_lock(hashtextextended('limits of user ' || $1::bigint, 0))`, alice)
	s.Do(statement, args...)
	return s
}

// A payout waits while another of its user is stored, and counts it.
func TestPayoutsOfAUserAreSerialized(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bounded := payable
	bounded.PayoutDay = 2_000_000
	b.offer(t, bounded)
	p := payout()
	other := b.lockUser(t, newPayout+`($1, $2, 1, 1.5, 6, 3, 1, $3, 1337, $4, $5, $6::text::numeric, '{}')`,
		p.ReqID, alice, payer, token, receiver, p.Payout.BaseUnits)
	done := b.blocked(t, "pg_advisory_xact_lock", func() error { return second(b.Create(t.Context(), payout(), terms)) })
	other.Do("commit")
	if refused, _ := errors.AsType[transfer.RefusedError](<-done); refused.Reason != transfer.DailyPayoutExceeded || refused.Left != "0.5" {
		t.Errorf("got %+v, want %s with 0.5 left", refused, transfer.DailyPayoutExceeded)
	}
}

// An asset's daily payout limit holds to the last unit, also for concurrent payouts, and does not limit
// transfers between accounts. A payout that failed, or is a day old, does not count.
func TestPayoutsOfADayAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bounded := payable
	bounded.PayoutDay = 4_600_000
	b.offer(t, bounded)
	if got, err := b.Asset(t.Context(), "USDT"); err != nil || got.PayoutDay != bounded.PayoutDay {
		t.Fatalf("read back: got %+v, %v; want %+v", got, err, bounded)
	}
	b.created(t, request("")) // between accounts: does not count
	accepted := acceptedAtOnce(t, 12, transfer.DailyPayoutExceeded, func() error { return second(b.Create(t.Context(), payout(), terms)) })
	check.Equal(t, "accepted of 12 at once", accepted, 3)
	check.Equal(t, "beyond it", b.refusal(t, payout(), terms), (transfer.RefusedError{Reason: transfer.DailyPayoutExceeded, Left: "0.1"}))
	b.created(t, request(""))
	other := payout()
	other.UserID = bob
	b.created(t, other)

	b.Run(t, `with one as (select req_id from transfers_tb where user_id = $1 and transfer_type = 3 limit 1)
		select move_transfer(req_id, '{0,10}', null), move_transfer(req_id, '{10,-10}', 'ACCOUNT_FROZEN') from one`, alice)
	b.created(t, payout()) // instead of the one that failed
	check.Equal(t, "another", b.refusal(t, payout(), terms).Reason, transfer.DailyPayoutExceeded)
	b.RunUnguarded(t, "transfers_tb", `update transfers_tb set created_at = created_at - interval '24 hours' where user_id = $1`, alice)
	b.created(t, payout())

	bounded.PayoutDay = 1_000_000
	b.put(t, bounded)
	check.Equal(t, "left once the bound is lower", b.refusal(t, payout(), terms).Left, "0")
}

// If the list is required a payout goes only to an address that its user has added for that chain,
// after the delay.
func TestPayoutsGoToListedAddressesAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.offer(t, payable)
	want := func(what string, r transfer.Request, terms transfer.Terms, reason transfer.Reason) {
		t.Helper()
		check.Equal(t, what, b.refusal(t, r, terms).Reason, reason)
	}
	want("no list is required", payout(), terms, "")
	want("none is listed", payout(), listedOnly(0), transfer.AddressNotListed)
	b.add(t, bob, 1337, receiver)
	b.add(t, alice, 1, receiver)
	b.add(t, alice, 1337, "0x00000000000000000000000000000000000000c4")
	want("another user's, another chain's and another one", payout(), listedOnly(0), transfer.AddressNotListed)
	first := b.add(t, alice, 1337, receiver)
	check.Equal(t, "a new one", b.refusal(t, payout(), listedOnly(day)), (transfer.RefusedError{Reason: transfer.AddressNotYetUsable, UsableFrom: first.UsableFrom}))
	want("without a delay", payout(), listedOnly(0), "")
	b.ageAddresses(t, "23 hours 59 minutes")
	want("a minute too early", payout(), listedOnly(day), transfer.AddressNotYetUsable)
	b.ageAddresses(t, "1 minute")
	want("after the delay", payout(), listedOnly(day), "")
	if again, isNew, err := b.AddAddress(t.Context(), alice, 1337, receiver, day); err != nil || isNew || again.ID != first.ID {
		t.Errorf("added again: got %+v, new %t, %v; want the first", again, isNew, err)
	}
	want("added again, which changes nothing", payout(), listedOnly(day), "")
	want("between accounts", request(""), listedOnly(day), "")
	stored := payout()
	stored.CID = "before"
	b.created(t, stored)
	for range 2 {
		removed, err := b.RemoveAddress(t.Context(), transfers.RemovalOfAddress{UserID: alice, ID: first.ID, By: transfers.ByUser}, day)
		if err != nil || removed.RemovedAt == nil || removed.RemovedBy != transfers.ByUser {
			t.Fatalf("remove: got %+v, %v; want it removed", removed, err)
		}
	}
	want("removed", payout(), listedOnly(0), transfer.AddressNotListed)
	want("what is stored under the cid", stored, listedOnly(day), "")
	b.add(t, alice, 1337, receiver)
	want("added anew", payout(), listedOnly(day), transfer.AddressNotYetUsable)
}

// A removal waits for a payout that is being stored, and a later payout waits for the removal. After
// the removal no payout to the address is stored.
func TestRemovalAndPayoutGoOneByOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.offer(t, payable)
	a := b.add(t, alice, 1337, receiver)
	// A payout that is being stored holds the lock.
	other := b.lockUser(t, `select 1`)
	done := b.blocked(t, "pg_advisory_xact_lock", func() error {
		return second(b.RemoveAddress(t.Context(), transfers.RemovalOfAddress{UserID: alice, ID: a.ID, By: "carol", Reason: "stolen"}, day))
	})
	other.Do("commit")
	check.OK(t)(<-done)
	a = b.add(t, alice, 1337, receiver)

	// A payout while an address is being removed.
	other = b.lockUser(t, `update payout_address set removed_at = clock_timestamp(), removed_by = 'user' where address_id = $1`, a.ID)
	done = b.blocked(t, "pg_advisory_xact_lock", func() error { return second(b.Create(t.Context(), payout(), listedOnly(0))) })
	other.Do("commit")
	if refused, _ := errors.AsType[transfer.RefusedError](<-done); refused.Reason != transfer.AddressNotListed {
		t.Errorf("a payout beside the removal: got %q, want %s", refused.Reason, transfer.AddressNotListed)
	}
}

// A restored database lists addresses that were removed after its backup: the delay of each starts
// again at the acceptance. Before that nothing is listed, added or removed.
func TestRestoredAddressesWaitAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.offer(t, payable)
	a := b.add(t, alice, 1337, receiver)
	b.ageAddresses(t, "72 hours")
	b.created(t, payout())
	check.Equal(t, "before the restore", b.refusal(t, payout(), listedOnly(day)).Reason, "")
	b.Run(t, `update database_identity set timeline_id = timeline_id + 1`)
	for what, err := range map[string]error{
		"list": second(b.Addresses(t.Context(), alice, day, 0, 0)),
		"add": func() error {
			_, _, err := b.AddAddress(t.Context(), alice, 1, receiver, day)
			return err
		}(),
		"remove": second(b.RemoveAddress(t.Context(), transfers.RemovalOfAddress{UserID: alice, ID: a.ID, By: transfers.ByUser}, day)),
		"block":  b.BlockAddresses(t.Context(), alice, "carol", "stolen"),
	} {
		check.Err(t, fmt.Sprintf("%s in a restored database", what), transfer.ErrForeign)(err)
	}
	check.OK(t)(b.AcceptDatabase(t.Context(), "carol", "reconciled"))
	b.Run(t, `update transfer_halt set resumed_at = clock_timestamp(), resumed_by = 'carol', resume_reason = 'r'`)
	b.Run(t, `update protect_incident set closed_at = clock_timestamp(), closed_by = 'o', mode = 'resume', reason = 'r'`)
	accepted := value[time.Time](t, b, `select max(at) from identity_change`)
	if got, want := b.refusal(t, payout(), listedOnly(day)), (transfer.RefusedError{Reason: transfer.AddressNotYetUsable, UsableFrom: accepted.Add(day)}); got.Reason != want.Reason || !got.UsableFrom.Equal(want.UsableFrom) {
		t.Errorf("after the acceptance: got %+v, want %+v", got, want)
	}
	if list, err := b.Addresses(t.Context(), alice, day, 0, 0); err != nil || len(list.List) != 1 || !list.List[0].UsableFrom.Equal(accepted.Add(day)) {
		t.Errorf("listed: got %+v, %v; want it usable from %s on", list, err, accepted.Add(day))
	}
	b.Run(t, `alter table identity_change disable trigger user`)
	b.Run(t, `update identity_change set at = at - interval '24 hours'`)
	check.Equal(t, "a day after the acceptance", b.refusal(t, payout(), listedOnly(day)).Reason, "")
}

// The numbers of a user's addresses, and of those added in a day, are limited. A block refuses all new
// ones until it is lifted. Another user's addresses are not visible.
func TestAddressesAreLimitedAndBlocked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.add(t, alice, 1337, receiver)
	check.Err(t, "by another user", transfers.ErrNoAddress)(b.RemoveAddress(t.Context(), transfers.RemovalOfAddress{UserID: bob, ID: first.ID, By: transfers.ByUser}, day))
	check.Err(t, "lift what is not there", transfers.ErrNotBlocked)(b.LiftAddressBlock(t.Context(), alice, "carol", "r"))
	for range 2 {
		check.OK(t)(b.BlockAddresses(t.Context(), alice, "carol", "a stolen token"))
	}
	check.Err(t, "while blocked", transfers.ErrAddressesBlocked)(b.AddAddress(t.Context(), alice, 1, receiver, day))
	if got, isNew, err := b.AddAddress(t.Context(), alice, 1337, receiver, day); err != nil || isNew || got.ID != first.ID {
		t.Errorf("what is listed, while blocked: got %+v, %t, %v; want it", got, isNew, err)
	}
	b.add(t, bob, 1, receiver)
	removed, err := b.RemoveAddress(t.Context(), transfers.RemovalOfAddress{UserID: alice, ID: first.ID, By: "carol", Reason: "not hers"}, day)
	if err != nil || removed.RemovedBy != "carol" || removed.RemoveReason != "not hers" {
		t.Errorf("by an operator: got %+v, %v", removed, err)
	}
	all, err := b.Addresses(t.Context(), alice, day, 10, math.MaxInt64)
	if err != nil || len(all.List) != 1 || all.List[0].RemovedBy != "carol" || all.Block == nil || all.Block.By != "carol" || all.Block.Reason != "a stolen token" {
		t.Errorf("to an operator: got %+v, %v; want the removed one, and the block", all, err)
	}
	check.Equal(t, "to the user", len(check.Value(b.Addresses(t.Context(), alice, day, 0, 0))(t).List), 0)
	check.OK(t)(b.LiftAddressBlock(t.Context(), alice, "carol", "a new token"))
	for n := range 99 {
		b.add(t, alice, 1337, fmt.Sprintf("0x%040x", n+1000))
	}
	another := func() error {
		_, _, err := b.AddAddress(t.Context(), alice, 1337, receiver, day)
		return err
	}
	check.Err(t, "99 listed and one removed of today", transfers.ErrTooManyAddresses)(another())
	b.ageAddresses(t, "24 hours")
	check.Err(t, "a day later", nil)(another())
	check.Err(t, "100 listed", transfers.ErrTooManyAddresses)(b.AddAddress(t.Context(), alice, 1, receiver, day))
}

// A payout's limits are evaluated in the round trip that stores it. An address is added or removed in
// one round trip.
func TestPayoutLimitsTakeOneRoundTrip(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bounded := payable
	bounded.PayoutDay = 2_000_000
	b.offer(t, bounded)
	cost := func(act func(context.Context) error) telemetry.Cost {
		t.Helper()
		ctx := telemetry.WithMeter(t.Context())
		check.OK(t)(act(ctx))
		return telemetry.MeterFrom(ctx).Cost()
	}
	var a transfers.Address
	if got := cost(func(ctx context.Context) (err error) {
		a, _, err = b.AddAddress(ctx, alice, 1337, receiver, day)
		return err
	}); got.SQLRoundTrips != 1 || got.Commits != 1 {
		t.Errorf("an addition: got %+v, want one round trip and commit", got)
	}
	want := telemetry.Cost{SQLRoundTrips: 1, SQLStatements: 2, Commits: 1}
	check.Equal(t, "a payout within the bounds", cost(func(ctx context.Context) error { return second(b.Create(ctx, payout(), listedOnly(0))) }), want)
	if got := cost(func(ctx context.Context) error {
		return second(b.RemoveAddress(ctx, transfers.RemovalOfAddress{UserID: alice, ID: a.ID, By: transfers.ByUser}, day))
	}); got.SQLRoundTrips != 1 || got.Commits != 1 {
		t.Errorf("a removal: got %+v, want one round trip and commit", got)
	}
}

// A payout in INIT does not begin while a halt is open for it, or its asset is suspended. It expires
// there, or begins once that is over. Transfers between ledgers, and payouts that the halt does not
// concern, continue.
func TestAHaltHoldsAPayoutThatHasNotBegun(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ halt, resume string }{
		"all":        {`insert into transfer_halt (scope, evidence) values ('all', '{}')`, resumeAll},
		"asset":      {`insert into transfer_halt (scope, asset_id, evidence) values ('asset', 1, '{}')`, resumeAll},
		"user_asset": {`insert into transfer_halt (scope, user_id, asset_id, evidence) values ('user_asset', 7, 1, '{}')`, resumeAll},
		"suspended":  {`update assets_tb set status = 'SUSPENDED' where asset_id = 1`, `update assets_tb set status = 'ACTIVE'`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.offer(t, payable)
			waits, late, inside := r.created(t, payout()), r.created(t, payout()), r.created(t, request(""))
			r.Run(t, x.halt)
			r.wantsNotBegun(t, waits.ReqID, late.ReqID, "a halt is open")
			r.drive(t, inside.ReqID, transfer.Committed)
			r.Run(t, x.resume)
			r.drive(t, waits.ReqID, transfer.Committed)
		})
	}
}

// wantsNotBegun drives two payouts in INIT. The one stays as it is, and a line of the log says why. The other expires.
func (r rig) wantsNotBegun(t *testing.T, waits, late, why string) {
	t.Helper()
	r.age(t, late, "16 minutes")
	for range 3 {
		if got := r.drive(t, waits, transfer.Init); got.NextAttemptAt != nil || got.RetryCount != 0 {
			t.Errorf("%s: got %+v, want it as it was", why, got)
		}
	}
	check.Equal(t, "too old", r.drive(t, late, transfer.Failed).Reason, transfer.Expired)
	if r.asked != 0 || r.states(t, waits) != "0" || !strings.Contains(r.log.String(), why) {
		t.Errorf("%s: got %d calls, states %s; want none, 0, and a line that says why", why, r.asked, r.states(t, waits))
	}
}

const resumeAll = `update transfer_halt set resumed_at = clock_timestamp(), resumed_by = 'o', resume_reason = 'r'`

// A halt of another user's money, or of another asset, stops nothing else.
func TestHaltStopsOnlyItsScope(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.offer(t, payable)
	goes := r.created(t, payout())
	check.OK(t)(r.OpenHalt(t.Context(), transfers.Halt{Scope: conservation.UserAsset, UserID: goes.UserID + 1, AssetID: goes.AssetID, Evidence: []byte("{}")}))
	r.drive(t, goes.ReqID, transfer.Committed)
}

const secondPayer = "eip155:1337:0x00000000000000000000000000000000000000a2"

// H1a: a payout in INIT does not begin while its payer is in PROTECT, however often and by whom it is
// driven. It expires there, or begins once the payer is released. Other transfers, and other payers'
// payouts, begin.
func TestH01NoPayoutBeginsInProtect(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.offer(t, payable)
	waits, late := r.created(t, payout()), r.created(t, payout())
	other := payable
	other.ID, other.Name, other.Payout = 2, "ETH", &transfer.PayoutTerms{Submitter: secondPayer, ChainID: 1337, Decimals: 18}
	r.offer(t, other)
	fromOther := payout()
	fromOther.Asset, fromOther.Payout.Submitter, fromOther.Payout.Token = "ETH", secondPayer, ""
	begins, inside := r.created(t, fromOther), r.created(t, request(""))
	r.Run(t, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`, payer)
	r.wantsNotBegun(t, waits.ReqID, late.ReqID, "in PROTECT")
	r.drive(t, begins.ReqID, transfer.Committed)
	r.drive(t, inside.ReqID, transfer.Committed)
	r.old(t, waits.ReqID, "2 minutes")
	if found, _ := r.due(t, 10, time.Time{}); !slices.Equal(found, []string{waits.ReqID}) {
		t.Errorf("due: got %v, want the one that waits", found)
	}
	r.Run(t, `update protect_incident set closed_at = clock_timestamp(), closed_by = 'o', mode = 'resume', reason = 'r'`)
	r.drive(t, waits.ReqID, transfer.Committed)
}

// age makes a transfer older than it is.
func (r rig) age(t testing.TB, reqID, by string) {
	t.Helper()
	r.RunUnguarded(t, "transfers_tb", `update transfers_tb set created_at = created_at - $2::text::interval where req_id = $1`, reqID, by)
}
