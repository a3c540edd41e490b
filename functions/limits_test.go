package functions_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

// shift moves the times of the user's earlier posts.
func (h deployment) shift(user int64, by string) {
	h.t.Helper()
	h.run(`alter table transfers_tb disable trigger user`)
	h.run(`update transfers_tb set created_at = created_at + $2::text::interval where user_id = $1`, user, by)
	h.run(`alter table transfers_tb enable trigger user`)
}

// rich gives the user units of the asset in Funding.
func (h deployment) rich(user int64, asset int32, units uint64) {
	h.t.Helper()
	name := fmt.Sprintf("funds-of-%d-in-%d", user, asset)
	h.must(h.funding.OutsideDeposit(h.t.Context(), transfer.Call{ReqID: name, UserID: user, AssetID: asset, Units: units}))
}

// limited posts for the user and requires the answer. A refusal by a limit is 429 with the seconds
// until there can be room, and stores nothing.
func (h deployment) limited(what string, user int64, differs map[string]any, want string) {
	h.t.Helper()
	stored := func() string { return h.one(`select count(*) from transfers_tb where user_id = $1`, user) }
	before := stored()
	a := h.post(user, differs)
	check.Equal(h.t, what, a.is("code")+" "+a.header.Get("Retry-After"), want)
	if a.status == 429 && (stored() != before || a.body["req_id"] != nil || a.body["state"] != nil) {
		h.t.Errorf("%s: got %v, want nothing stored", what, a.body)
	}
}

const (
	passes      = "200 <nil> "
	tooFast     = "429 RATE_LIMIT_EXCEEDED 1"
	tooOften    = "429 DAILY_LIMIT_EXCEEDED 3600"
	tooMuchADay = "429 DAILY_AMOUNT_EXCEEDED 3600"
)

// The tenth post in a second passes and the eleventh does not, until the second is over. The limit is
// per user. A stored transfer is answered nevertheless.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	h := build(t, "FENCEPOST_TRANSFER_LIMITS_PER_SECOND=10", "FENCEPOST_TRANSFER_LIMITS_PER_DAY=100")
	for range 9 {
		h.limited("one of nine", alice, nil, passes)
		h.shift(alice, "1 hour") // so that all posts count in one second, even on a slow machine
	}
	h.limited("the tenth", alice, map[string]any{"cid": "tenth"}, passes)
	h.shift(alice, "1 hour")
	h.limited("the eleventh", alice, nil, tooFast)
	h.limited("the tenth again", alice, map[string]any{"cid": "tenth"}, "200 DUPLICATE_REQUEST ")
	h.limited("wrong before too many", alice, map[string]any{"asset": "?"}, "400 INVALID_ASSET ")
	h.limited("another user", bob, nil, passes)
	h.shift(alice, "-12 hours")
	h.limited("when the second is over", alice, nil, passes)
}

// The allowed number of posts in a day passes and the next does not, until the first is a day old.
func TestDailyLimit(t *testing.T) {
	t.Parallel()
	h := build(t, "FENCEPOST_TRANSFER_LIMITS_PER_SECOND=4", "FENCEPOST_TRANSFER_LIMITS_PER_DAY=3")
	h.limited("the first", alice, nil, passes)
	h.shift(alice, "-23 hours")
	h.limited("the second", alice, nil, passes)
	h.limited("the third", alice, nil, passes)
	h.limited("the fourth", alice, nil, tooOften)
	h.limited("another user", bob, nil, passes)
	h.shift(alice, "-61 minutes")
	h.limited("when the first is a day old", alice, nil, passes)
	h.limited("and no more", alice, nil, tooOften)
}

// An asset's daily amount can be used to its last unit, both directions together. Failed transfers,
// those older than a day, and those of another asset or user do not count.
func TestDailyAmount(t *testing.T) {
	t.Parallel()
	h := build(t)
	capped := transfer.Asset{ID: 9, Name: "CAPPED", Precision: 6, MinUnits: 1, MaxUnits: 1_000_000_000, DailyUnits: 5_000_000, Active: true, Enabled: true}
	check.OK(t)(h.table.PutAsset(t.Context(), capped))
	h.must(h.trading.AddAsset(t.Context(), "asset-"+capped.Name, capped.ID, uint8(capped.Precision), time.Now()))
	h.rich(alice, capped.ID, 4_500_000)
	h.rich(bob, capped.ID, 5_000_000)
	of := func(amount string, differs members) members {
		return with(members{"asset": capped.Name, "amount": amount}, differs)
	}
	h.limited("more than a day's at once", alice, of("5.000001", nil), tooMuchADay)
	check.Equal(t, "more than there is", h.post(alice, of("4.6", nil)).is("code"), "422 INSUFFICIENT_BALANCE")
	h.limited("the most of it", alice, of("3", members{"cid": "c"}), passes)
	h.limited("one unit too many", alice, of("2.000001", nil), tooMuchADay)
	h.limited("the same again", alice, of("3", members{"cid": "c"}), "200 DUPLICATE_REQUEST ")
	h.limited("back, which counts too", alice, of("1.5", members{"from": "SPOT", "to": "FUNDING"}), passes)
	h.limited("the rest, and a unit", alice, of("0.500001", nil), tooMuchADay)
	h.limited("the rest", alice, of("0.5", nil), passes)
	h.limited("one unit more", alice, of("0.000001", nil), tooMuchADay)
	h.limited("another asset", alice, nil, passes)
	h.limited("another user", bob, of("5", nil), passes)
	h.shift(alice, "-24 hours")
	h.limited("a day later", alice, of("1", nil), passes)
}
