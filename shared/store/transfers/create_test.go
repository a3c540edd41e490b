package transfers_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
)

const (
	payer = "eip155:1337:0x00000000000000000000000000000000000000a1"
	token = "0x00000000000000000000000000000000000000b2"
)

// payable is usdt with payout terms.
var payable = func() transfer.Asset {
	a := usdt
	a.Payout = &transfer.PayoutTerms{Submitter: payer, ChainID: 1337, Token: token, Decimals: 18}
	return a
}()

// payout is a request of 1.5 USDT to an address, for [payable].
func payout() transfer.Request {
	r := request("")
	r.To = transfer.Chain
	r.Payout = &transfer.Payout{
		Submitter: payer, ChainID: 1337, Token: token, Address: "0x00000000000000000000000000000000000000c3",
		BaseUnits: payable.Payout.BaseUnits(1_500_000, 6), Payload: []byte(`{"to": "0x1"}`),
	}
	return r
}

// amount parses the text, which must be valid.
func amount(t testing.TB, text string) transfer.Amount {
	t.Helper()
	a, ok := transfer.ParseAmount(text)
	if !ok {
		t.Fatalf("%q is no amount", text)
	}
	return a
}

// A transfer is stored as requested, and each read returns it unchanged.
func TestCreateStoresTheRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.offer(t, payable)
	for _, r := range []transfer.Request{request("c-1"), payout()} {
		got := b.created(t, r)
		kind, _ := transfer.CheckAccounts(r.From, r.To, r.Payout != nil)
		want := transfer.Transfer{
			ReqID: r.ReqID, CID: r.CID, UserID: alice, AssetID: 1, Asset: "USDT", Precision: 6, Units: 1_500_000, Type: kind, Payout: r.Payout,
			ID: got.ID, StateAt: got.StateAt, CreatedAt: got.CreatedAt, UpdatedAt: got.UpdatedAt, Now: got.Now,
		}
		if diff := cmp.Diff(want, got); diff != "" || got.CreatedAt.IsZero() || got.Now.Before(got.CreatedAt) {
			t.Errorf("created (-want +got):\n%s", diff)
		}
		loaded, err := b.Load(t.Context(), r.ReqID)
		found, errFound := b.Find(t.Context(), r.ReqID, alice)
		loaded.Now, found.Now = got.Now, got.Now
		if err != nil || errFound != nil || !cmp.Equal(got, loaded) || !cmp.Equal(got, found) {
			t.Errorf("read back: got %+v, %v; %+v, %v; want the same", loaded, err, found, errFound)
		}
		check.Err(t, "another user's query", transfer.ErrNotFound)(b.Find(t.Context(), r.ReqID, bob))
	}
}

// A create is one round trip and one commit, and so is each of the two writes between its calls.
func TestCostOfATransfer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := telemetry.WithMeter(t.Context())
	check.OK(t)(r.Create(ctx, request("c"), terms))
	check.Equal(t, "a create", telemetry.MeterFrom(ctx).Cost(), (telemetry.Cost{SQLRoundTrips: 1, SQLStatements: 2, Commits: 1}))
	ctx = telemetry.WithMeter(t.Context())
	if got, err := r.Submit(ctx, request("d"), terms); err != nil || got.State != transfer.Committed {
		t.Fatalf("submit: got %s, %v", got.State, err)
	}
	if got := telemetry.MeterFrom(ctx).Cost(); got.SQLRoundTrips != 4 || got.Commits != 4 {
		t.Errorf("a transfer but for its ledgers: got %+v, want 4 round trips and commits", got)
	}
}

// H16: the stored transfer is returned first, whatever asset, amount, limit, halt or PROTECT would
// refuse now. Another body is a conflict.
func TestH16WhatIsStoredAnswersFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	stored := b.created(t, request("c-1"))
	for name, spoil := range map[string]string{
		"suspended":     `update assets_tb set status = 'SUSPENDED'`,
		"switched off":  `update assets_tb set internal_transfer_enabled = false`,
		"other amounts": `update assets_tb set min_transfer_amount = 100`,
		"a day's sum":   `update assets_tb set daily_transfer_amount = 100`,
		"halted":        `insert into transfer_halt (scope, evidence) values ('all', '{}')`,
		"restored":      `update database_identity set timeline_id = timeline_id + 1`,
	} {
		b.Run(t, spoil)
		again := request("c-1")
		again.Amount = amount(t, "1.500")
		got, err := b.Create(t.Context(), again, transfer.Terms{SafetyFactor: ^uint64(0), Limits: transfer.Limits{PerSecond: 1, PerDay: 1}})
		if err != nil || got.New || got.ReqID != stored.ReqID {
			t.Errorf("%s: got %+v, %v; want the stored one", name, got, err)
		}
		other := request("c-1")
		other.Amount = amount(t, "1.6")
		check.Err(t, fmt.Sprintf("%s, another amount", name), transfer.ErrCIDConflict)(b.Create(t.Context(), other, terms))
		other = request("c-1")
		other.From, other.To = "WALLET", "WALLET"
		check.Err(t, fmt.Sprintf("%s, no account type", name), transfer.ErrCIDConflict)(b.Create(t.Context(), other, terms))
	}
	check.Equal(t, "rows", value[int](t, b, `select count(*) from transfers_tb`), 1)
}

// H16: many concurrent creates with one cid all get the one transfer, also those that waited for
// another's commit.
func TestH16ConcurrentDuplicates(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := make([]string, 8)
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			got, err := b.Create(t.Context(), request("c-1"), terms)
			if err != nil {
				t.Error(err)
			}
			ids[i] = got.ReqID
		})
	}
	group.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Fatalf("got %v, want one req_id", ids)
		}
	}
	t.Run("behind a commit", func(t *testing.T) {
		first := request("c-2")
		other := b.Holding(t, `insert into transfers_tb (req_id, cid, user_id, asset_id, amount, precision, transfer_type, source_type)
			values ($1, 'c-2', $2, 1, 1.5, 6, 1, 1)`, first.ReqID, alice)
		creating := storetest.Blocked(t, b.Bundle, "insert into transfers_tb", func() (transfer.Created, error) {
			return b.Create(t.Context(), request("c-2"), terms)
		})
		other.Do("commit")
		if got := <-creating; got.Err != nil || got.Got.ReqID != first.ReqID || got.Got.New {
			t.Errorf("got %+v, want the one that was committed", got)
		}
	})
}

// A create whose answer was lost finds its own transfer, which is new to its caller.
func TestCreateFindsItsLostTransfer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, cid := range []string{"", "c-1"} {
		r := request(cid)
		b.created(t, r)
		b.created(t, r)
	}
	check.Equal(t, "rows", value[int](t, b, `select count(*) from transfers_tb`), 2)
}

// Two users can use the same cid.
func TestCIDsAreTheUsersOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	mine, theirs := request("c-1"), request("c-1")
	theirs.UserID = bob
	if b.created(t, mine).ID == b.created(t, theirs).ID {
		t.Error("two users' transfers with one cid: got one, want two")
	}
}

// An asset's name and scale never change. Its terms can change, and are read back as written.
func TestAssetsKeepTheirScale(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	check.Same(t, "an asset", check.Value(b.Asset(t.Context(), "USDT"))(t), &usdt)
	b.put(t, payable)
	check.Same(t, "changed", check.Value(b.AssetPage(t.Context(), 0, 10))(t), []transfer.Asset{payable})
	finer := usdt
	finer.Precision = 8
	check.Equal(t, "another precision", storetest.Violated(b.PutAsset(t.Context(), finer)), "scale_never_changes")
	check.Equal(t, "no such asset", check.Value(b.Asset(t.Context(), "DOGE"))(t), nil)
	if _, err := b.Load(t.Context(), "none"); !errors.Is(err, transfer.ErrNotFound) || errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("no such transfer: got %v, want not found", err)
	}
}

// H7: a key that prevents a second effect holds permanently, over all rows of an ordinary table: the
// same cid around midnight, or years later, is the same transfer.
func TestH07KeysWithAPromiseLiveForEver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ShowUniqueForEver(t, "transfers_tb", "cid", "user_id")
	b.ShowUniqueForEver(t, "transfers_tb", "req_id")
	b.ShowUniqueForEver(t, "transfers_tb", "transfer_id")
	stored := request("c-1")
	const insert = `insert into transfers_tb (req_id, cid, user_id, asset_id, amount, precision, transfer_type, source_type, created_at, updated_at, state_at)
		values ($1, 'c-1', 7, 1, 1.5, 6, 1, 1, $2::text::timestamptz, $2::text::timestamptz, $2::text::timestamptz)`
	b.Run(t, insert, stored.ReqID, "2026-06-30 23:59:59+00")
	for _, at := range []string{"2026-06-30 23:59:59+00", "2026-07-01 00:00:01+00", "2056-06-30 00:00:00+00", "infinity"} {
		check.Equal(t, fmt.Sprintf("the same cid at %s", at), storetest.Violated(b.DB.Exec(t.Context(), insert, request("").ReqID, at)), "one_transfer_per_cid")
		if _, err := b.DB.Exec(t.Context(), insert, stored.ReqID, at); storetest.Violated(err) == "none (error <nil>)" {
			t.Errorf("the same req_id at %s: got it stored", at)
		}
	}
	if again, err := b.Create(t.Context(), request("c-1"), terms); err != nil || again.New || again.ReqID != stored.ReqID {
		t.Errorf("asked again today: got %+v, %v; want the stored %s", again, err, stored.ReqID)
	}
	other := request("c-1")
	other.Amount = amount(t, "2")
	check.Err(t, "another body", transfer.ErrCIDConflict)(b.Create(t.Context(), other, terms))
}
