package transfers_test

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/transfer"
)

// The SQL statement and the domain's functions agree about each request. What the functions accept is
// stored as they counted it, and what they refuse is refused with the same reason.
func TestStoreAgreesWithTheDomain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Run(t, `alter table assets_tb disable trigger user`)
	b.Run(t, `alter table transfers_tb drop constraint precision_is_the_assets`)
	user := int64(1000)
	rapid.Check(t, func(r *rapid.T) {
		a := drawAsset(r)
		if err := b.PutAsset(t.Context(), a); err != nil {
			r.Fatalf("%+v: %v", a, err)
		}
		user++
		day := uint64(0)
		limits := transfer.Limits{PerDay: rapid.IntRange(0, 3).Draw(r, "perDay")}
		for n := range rapid.IntRange(1, 4).Draw(r, "requests") {
			q := drawRequest(r, a)
			q.UserID = user
			terms := transfer.Terms{SafetyFactor: rapid.SampledFrom([]uint64{1, 2, 10, ^uint64(0)}).Draw(r, "safety"), Limits: limits}
			_, units, want := q.Check(&a, terms)
			if want == "" {
				want = transfer.CheckLimits(units, a, terms.Limits, transfer.Counts{LastDay: int(value[int64](t, b, `select count(*) from transfers_tb where user_id = $1`, user)), DayUnits: day})
			}
			got, err := b.Create(t.Context(), q, terms)
			refused, _ := errors.AsType[transfer.RefusedError](err)
			if refused.Reason != want || want == "" && (err != nil || got.Units != units) {
				r.Fatalf("request %d of %+v, %s: got %d units, %v; want %d, %q", n, a, q.Amount, got.Units, err, units, want)
			}
			if want == "" {
				day += units
			}
		}
	})
}

func drawAsset(r *rapid.T) transfer.Asset {
	a := transfer.Asset{ID: 1, Name: "USDT", Precision: rapid.IntRange(0, 8).Draw(r, "precision"),
		Active: rapid.IntRange(0, 9).Draw(r, "active") > 0, Enabled: rapid.IntRange(0, 9).Draw(r, "enabled") > 0}
	a.MaxUnits = drawUnits(r, "max")
	a.MinUnits = rapid.Uint64Range(1, min(a.MaxUnits, 1000)).Draw(r, "min")
	if rapid.Bool().Draw(r, "daily") {
		a.DailyUnits = max(drawUnits(r, "a day"), a.MinUnits)
	}
	return a
}

func drawUnits(r *rapid.T, what string) uint64 {
	return max(1, rapid.OneOf(rapid.Uint64Range(1, 10_000), rapid.Uint64(), rapid.SampledFrom([]uint64{^uint64(0), 1 << 63, ^uint64(0) / 10})).Draw(r, what))
}

func drawRequest(r *rapid.T, a transfer.Asset) transfer.Request {
	kinds := rapid.SampledFrom([]transfer.AccountType{transfer.Funding, transfer.Funding, transfer.Spot, transfer.Margin, "WALLET"})
	near := rapid.SampledFrom([]uint64{a.MinUnits, a.MinUnits - 1, a.MaxUnits, a.MaxUnits + 1, a.DailyUnits, ^uint64(0) / 10, ^uint64(0)/10 + 1})
	units := max(1, rapid.OneOf(near, rapid.Uint64Range(1, 10_000), rapid.Uint64()).Draw(r, "units"))
	text := transfer.FormatUnits(units, a.Precision)
	if rapid.IntRange(0, 4).Draw(r, "odd") == 0 {
		text = fmt.Sprintf("%d.%d", rapid.Uint64().Draw(r, "whole"), rapid.Uint32().Draw(r, "fraction"))
	}
	amount, ok := transfer.ParseAmount(text)
	if !ok {
		amount, _ = transfer.ParseAmount("1")
	}
	q := request("")
	q.From, q.To, q.Amount = kinds.Draw(r, "from"), kinds.Draw(r, "to"), amount
	if rapid.Bool().Draw(r, "ordinary") {
		q.From, q.To = transfer.Funding, transfer.Spot
	}
	return q
}
