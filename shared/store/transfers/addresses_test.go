package transfers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

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
	b.run(t, `alter table payout_address disable trigger user`)
	b.run(t, `update payout_address set added_at = added_at - $1::text::interval, removed_at = removed_at - $1::text::interval`, by)
	b.run(t, `alter table payout_address enable trigger user`)
}

// refusal returns the reason for which a payout under the terms is refused; "": it is stored.
func (b bench) refusal(t testing.TB, r transfer.Request, terms transfer.Terms) transfer.RefusedError {
	t.Helper()
	_, err := b.Create(t.Context(), r, terms)
	refused, ok := errors.AsType[transfer.RefusedError](err)
	if err != nil && !ok {
		t.Fatalf("create: %v", err)
	}
	return refused
}

// lockUser opens a transaction that holds alice's lock and has run the statement.
func (b bench) lockUser(t *testing.T, statement string, args ...any) (commit func()) {
	t.Helper()
	tx, err := b.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), `select pg_advisory_xact_lock(hashtextextended('limits of user ' || $1::bigint, 0))`, alice); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A payout waits while another of its user is stored, and counts it.
func TestPayoutsOfAUserAreSerialized(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bounded := payable
	bounded.PayoutDay = 2_000_000
	b.offer(t, bounded)
	p := payout()
	commit := b.lockUser(t, newPayout+`($1, $2, 1, 1.5, 6, 3, 1, $3, 1337, $4, $5, $6::text::numeric, '{}')`,
		p.ReqID, alice, payer, token, receiver, p.Payout.BaseUnits)
	done := make(chan error, 1)
	go func() {
		_, err := b.Create(t.Context(), payout(), terms)
		done <- err
	}()
	b.awaitBlocked(t, "pg_advisory_xact_lock")
	commit()
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
	var mu sync.Mutex
	accepted := 0
	var group sync.WaitGroup
	for range 12 {
		group.Go(func() {
			_, err := b.Create(t.Context(), payout(), terms)
			refused, _ := errors.AsType[transfer.RefusedError](err)
			if err != nil && refused.Reason != transfer.DailyPayoutExceeded {
				t.Errorf("got %v, want %s", err, transfer.DailyPayoutExceeded)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				accepted++
			}
		})
	}
	group.Wait()
	if accepted != 3 {
		t.Errorf("accepted of 12 at once: got %d, want 3", accepted)
	}
	if got, want := b.refusal(t, payout(), terms), (transfer.RefusedError{Reason: transfer.DailyPayoutExceeded, Left: "0.1"}); got != want {
		t.Errorf("beyond it: got %+v, want %+v", got, want)
	}
	b.created(t, request(""))
	other := payout()
	other.UserID = bob
	b.created(t, other)

	b.run(t, `with one as (select req_id from transfers_tb where user_id = $1 and transfer_type = 3 limit 1)
		select move_transfer(req_id, '{0,10}', null), move_transfer(req_id, '{10,-10}', 'ACCOUNT_FROZEN') from one`, alice)
	b.created(t, payout()) // instead of the one that failed
	if got := b.refusal(t, payout(), terms).Reason; got != transfer.DailyPayoutExceeded {
		t.Errorf("another: got %q, want %s", got, transfer.DailyPayoutExceeded)
	}
	b.run(t, `alter table transfers_tb disable trigger user`)
	b.run(t, `update transfers_tb set created_at = created_at - interval '24 hours' where user_id = $1`, alice)
	b.run(t, `alter table transfers_tb enable trigger user`)
	b.created(t, payout())

	bounded.PayoutDay = 1_000_000
	b.put(t, bounded)
	if got := b.refusal(t, payout(), terms); got.Left != "0" {
		t.Errorf("once the bound is lower: got %+v left, want 0", got)
	}
}

// If the list is required a payout goes only to an address that its user has added for that chain,
// after the delay.
func TestPayoutsGoToListedAddressesAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.offer(t, payable)
	want := func(what string, r transfer.Request, terms transfer.Terms, reason transfer.Reason) {
		t.Helper()
		if got := b.refusal(t, r, terms).Reason; got != reason {
			t.Errorf("%s: got %q, want %q", what, got, reason)
		}
	}
	want("no list is required", payout(), terms, "")
	want("none is listed", payout(), listedOnly(0), transfer.AddressNotListed)
	b.add(t, bob, 1337, receiver)
	b.add(t, alice, 1, receiver)
	b.add(t, alice, 1337, "0x00000000000000000000000000000000000000c4")
	want("another user's, another chain's and another one", payout(), listedOnly(0), transfer.AddressNotListed)
	first := b.add(t, alice, 1337, receiver)
	if got, want := b.refusal(t, payout(), listedOnly(day)), (transfer.RefusedError{Reason: transfer.AddressNotYetUsable, UsableFrom: first.UsableFrom}); got != want {
		t.Errorf("a new one: got %+v, want %+v", got, want)
	}
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
	commit := b.lockUser(t, `select 1`)
	done := make(chan error, 1)
	go func() {
		_, err := b.RemoveAddress(t.Context(), transfers.RemovalOfAddress{UserID: alice, ID: a.ID, By: "carol", Reason: "stolen"}, day)
		done <- err
	}()
	b.awaitBlocked(t, "pg_advisory_xact_lock")
	commit()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	a = b.add(t, alice, 1337, receiver)

	// A payout while an address is being removed.
	commit = b.lockUser(t, `update payout_address set removed_at = clock_timestamp(), removed_by = 'user' where address_id = $1`, a.ID)
	go func() {
		_, err := b.Create(t.Context(), payout(), listedOnly(0))
		done <- err
	}()
	b.awaitBlocked(t, "pg_advisory_xact_lock")
	commit()
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
	if got := b.refusal(t, payout(), listedOnly(day)).Reason; got != "" {
		t.Fatalf("before the restore: got %s, want it stored", got)
	}
	b.run(t, `update database_identity set timeline_id = timeline_id + 1`)
	for what, err := range map[string]error{
		"list": second(b.Addresses(t.Context(), alice, day, 0)),
		"add": func() error {
			_, _, err := b.AddAddress(t.Context(), alice, 1, receiver, day)
			return err
		}(),
		"remove": second(b.RemoveAddress(t.Context(), transfers.RemovalOfAddress{UserID: alice, ID: a.ID, By: transfers.ByUser}, day)),
		"block":  b.BlockAddresses(t.Context(), alice, "carol", "stolen"),
	} {
		if !errors.Is(err, transfer.ErrForeign) {
			t.Errorf("%s in a restored database: got %v, want it refused", what, err)
		}
	}
	if err := b.AcceptDatabase(t.Context(), "carol", "reconciled"); err != nil {
		t.Fatal(err)
	}
	b.run(t, `update transfer_halt set resumed_at = clock_timestamp(), resumed_by = 'carol', resume_reason = 'r'`)
	b.run(t, `update protect_incident set closed_at = clock_timestamp(), closed_by = 'o', mode = 'resume', reason = 'r'`)
	accepted := value[time.Time](t, b, `select max(at) from identity_change`)
	if got, want := b.refusal(t, payout(), listedOnly(day)), (transfer.RefusedError{Reason: transfer.AddressNotYetUsable, UsableFrom: accepted.Add(day)}); got.Reason != want.Reason || !got.UsableFrom.Equal(want.UsableFrom) {
		t.Errorf("after the acceptance: got %+v, want %+v", got, want)
	}
	if list, err := b.Addresses(t.Context(), alice, day, 0); err != nil || len(list.List) != 1 || !list.List[0].UsableFrom.Equal(accepted.Add(day)) {
		t.Errorf("listed: got %+v, %v; want it usable from %s on", list, err, accepted.Add(day))
	}
	b.run(t, `alter table identity_change disable trigger user`)
	b.run(t, `update identity_change set at = at - interval '24 hours'`)
	if got := b.refusal(t, payout(), listedOnly(day)).Reason; got != "" {
		t.Errorf("a day after the acceptance: got %s, want it stored", got)
	}
}

func second[T any](_ T, err error) error { return err }

// The numbers of a user's addresses, and of those added in a day, are limited. A block refuses all new
// ones until it is lifted. Another user's addresses are not visible.
func TestAddressesAreLimitedAndBlocked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.add(t, alice, 1337, receiver)
	if _, err := b.RemoveAddress(t.Context(), transfers.RemovalOfAddress{UserID: bob, ID: first.ID, By: transfers.ByUser}, day); !errors.Is(err, transfers.ErrNoAddress) {
		t.Errorf("by another user: got %v, want no such address", err)
	}
	if err := b.LiftAddressBlock(t.Context(), alice, "carol", "r"); !errors.Is(err, transfers.ErrNotBlocked) {
		t.Errorf("lift what is not there: got %v", err)
	}
	for range 2 {
		if err := b.BlockAddresses(t.Context(), alice, "carol", "a stolen token"); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := b.AddAddress(t.Context(), alice, 1, receiver, day); !errors.Is(err, transfers.ErrAddressesBlocked) {
		t.Errorf("while blocked: got %v, want it refused", err)
	}
	if got, isNew, err := b.AddAddress(t.Context(), alice, 1337, receiver, day); err != nil || isNew || got.ID != first.ID {
		t.Errorf("what is listed, while blocked: got %+v, %t, %v; want it", got, isNew, err)
	}
	b.add(t, bob, 1, receiver)
	removed, err := b.RemoveAddress(t.Context(), transfers.RemovalOfAddress{UserID: alice, ID: first.ID, By: "carol", Reason: "not hers"}, day)
	if err != nil || removed.RemovedBy != "carol" || removed.RemoveReason != "not hers" {
		t.Errorf("by an operator: got %+v, %v", removed, err)
	}
	all, err := b.Addresses(t.Context(), alice, day, 10)
	if err != nil || len(all.List) != 1 || all.List[0].RemovedBy != "carol" || all.Block == nil || all.Block.By != "carol" || all.Block.Reason != "a stolen token" {
		t.Errorf("to an operator: got %+v, %v; want the removed one, and the block", all, err)
	}
	if list, err := b.Addresses(t.Context(), alice, day, 0); err != nil || len(list.List) != 0 {
		t.Errorf("to the user: got %+v, %v; want none", list, err)
	}
	if err := b.LiftAddressBlock(t.Context(), alice, "carol", "a new token"); err != nil {
		t.Fatal(err)
	}
	for n := range 99 {
		b.add(t, alice, 1337, fmt.Sprintf("0x%040x", n+1000))
	}
	another := func() error {
		_, _, err := b.AddAddress(t.Context(), alice, 1337, receiver, day)
		return err
	}
	if err := another(); !errors.Is(err, transfers.ErrTooManyAddresses) {
		t.Errorf("99 listed and one removed of today: got %v, want too many", err)
	}
	b.ageAddresses(t, "24 hours")
	if err := another(); err != nil {
		t.Errorf("a day later: got %v, want it added", err)
	}
	if _, _, err := b.AddAddress(t.Context(), alice, 1, receiver, day); !errors.Is(err, transfers.ErrTooManyAddresses) {
		t.Errorf("100 listed: got %v, want too many", err)
	}
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
		if err := act(ctx); err != nil {
			t.Fatal(err)
		}
		return telemetry.MeterFrom(ctx).Cost()
	}
	var a transfers.Address
	if got := cost(func(ctx context.Context) (err error) {
		a, _, err = b.AddAddress(ctx, alice, 1337, receiver, day)
		return err
	}); got.SQLRoundTrips != 1 || got.Commits != 1 {
		t.Errorf("an addition: got %+v, want one round trip and commit", got)
	}
	want := telemetry.Cost{SQLRoundTrips: 1, SQLStatements: 3, Commits: 1}
	if got := cost(func(ctx context.Context) error { return second(b.Create(ctx, payout(), listedOnly(0))) }); got != want {
		t.Errorf("a payout within the bounds: got %+v, want %+v", got, want)
	}
	if got := cost(func(ctx context.Context) error {
		return second(b.RemoveAddress(ctx, transfers.RemovalOfAddress{UserID: alice, ID: a.ID, By: transfers.ByUser}, day))
	}); got.SQLRoundTrips != 1 || got.Commits != 1 {
		t.Errorf("a removal: got %+v, want one round trip and commit", got)
	}
}
