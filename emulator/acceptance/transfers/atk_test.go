package transfers

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/fake/issuer"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// refusedBefore requires that the post is refused with this status and code before anything is stored.
func (u *user) refusedBefore(what string, body any, status int, code string) {
	u.T.Helper()
	before := u.picture()
	got := must(u.try(body))(u.T)
	if want := (answer{Status: status, Code: code}); got != want {
		u.T.Errorf("%s: got %+v, want %+v and no transfer", what, got, want)
	}
	u.Unchanged(what, before, u.picture)
}

// ATK-001: another user's funds can neither be moved nor seen.
func TestATK001AnotherUsersFunds(t *testing.T) {
	t.Parallel()
	h := setup(t)
	victim, thief := h.newUser(t, 500, 500), h.newUser(t, 1, 1)
	own := victim.post(funding, spot, "0.0001", "cid", "rent")
	victim.Want("the victim's own", own, http.StatusOK, "COMMITTED", "")
	for _, from := range []transfer.AccountType{funding, spot} {
		thief.refusedBefore("from "+string(from), body(from, other(from), "0.0001", "user_id", victim.ID), http.StatusForbidden, "FORBIDDEN")
	}
	for what, reqID := range map[string]string{"its transfer": own.ReqID, "one that nobody has": "01JGMJ2A9QPVN5C0XK6R3T8WZB"} {
		if got, want := thief.Get(reqID), (answer{Status: http.StatusNotFound, Code: "NOT_FOUND"}); got != want {
			t.Errorf("%s to another user: got %+v, want %+v", what, got, want)
		}
	}
	mine := thief.post(funding, spot, "0.000001", "cid", "rent") // each user has separate cids
	thief.Want("the same cid by another user", mine, http.StatusOK, "COMMITTED", "")
	if mine.ReqID == own.ReqID || thief.Only() != mine.ReqID {
		t.Errorf("the same cid by another user: got %+v, want a transfer of its own", mine)
	}
	thief.wantUnits("the thief", 0, 2)
	victim.wantUnits("the victim", 400, 600)
}

// ATK-002: a user_id that is not the token's.
func TestATK002TamperedUserID(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 500, 0)
	for _, id := range []int64{u.ID + 1, u.ID - 1, 0, -u.ID, 1<<63 - 1} {
		u.refusedBefore(fmt.Sprint("user_id ", id), body(funding, spot, "0.0001", "user_id", id), http.StatusForbidden, "FORBIDDEN")
	}
	a := u.post(funding, spot, "0.0001", "user_id", u.ID)
	u.Want("its own user_id", a, http.StatusOK, "COMMITTED", "")
}

// amounts requires that every amount is refused with the code, from either account.
func amounts(t *testing.T, list []string, code string) {
	t.Helper()
	u := setup(t).newUser(t, 500, 500)
	for _, amount := range list {
		for _, from := range []transfer.AccountType{funding, spot} {
			u.refusedBefore("amount "+amount, body(from, other(from), amount), http.StatusBadRequest, code)
		}
	}
}

// ATK-003: an amount below zero.
func TestATK003NegativeAmount(t *testing.T) {
	t.Parallel()
	amounts(t, []string{"-1", "-0.000001", "-18446744073709551616"}, "INVALID_AMOUNT")
}

// ATK-004: an amount of zero.
func TestATK004ZeroAmount(t *testing.T) {
	t.Parallel()
	amounts(t, []string{"0", "0.000000", "00", "-0", "000.0"}, "INVALID_AMOUNT")
}

// ATK-005: more decimals than the asset has.
func TestATK005PrecisionOverflow(t *testing.T) {
	t.Parallel()
	amounts(t, []string{"0.000000001", "1.123456789", "0.0000001", "0.000100000"}, "PRECISION_OVERFLOW")
	u := setup(t).newUser(t, 500, 0)
	for asset, amount := range map[string]string{"BTC": "0.123456789", "JPY": "1.5"} {
		u.refusedBefore(asset, body(funding, spot, amount, "asset", asset), http.StatusBadRequest, "PRECISION_OVERFLOW")
	}
}

// ATK-006: an amount that exceeds 64 bits with the safety factor of ten is refused.
func TestATK006BeyondU64(t *testing.T) {
	t.Parallel()
	amounts(t, []string{"1844674407370.955162", "18446744073709.551616", "18446744073709551615", "18446744073709551616", strings.Repeat("9", 60)}, "OVERFLOW")
	amounts(t, []string{"1844674407370.955161", "1000000000.000001"}, "AMOUNT_TOO_LARGE") // the asset's limits; 64 bits hold ten times as much
	amounts(t, []string{strings.Repeat("9", 65)}, "INVALID_AMOUNT")
}

// ATK-006: a deposit that only together with the balance exceeds the limit is refused on either side
// and moves nothing. A deposit up to the last unit is accepted.
func TestATK006TheSumIsBeyondU64(t *testing.T) {
	t.Parallel()
	for _, to := range sides {
		parallel(t, string(to), func(t *testing.T) {
			const room = 5
			u := setup(t).newUser(t, 0, 0)
			u.deposit(to, math.MaxUint64-room)
			u.deposit(other(to), 100)
			a := u.post(other(to), to, "0.000006")
			u.Want("one unit too many", a, http.StatusUnprocessableEntity, "ROLLED_BACK", "OVERFLOW")
			u.wantStates("one unit too many", a.ReqID, rollback...)
			u.wantHeld("one unit too many", to, math.MaxUint64-room)
			u.wantHeld("one unit too many", other(to), 100)
			if did := u.did(a.ReqID); did[transfer.Withdraw] != 1 || did[transfer.Deposit] != 0 || did[transfer.Refund] != 1 {
				t.Errorf("one unit too many: got %v applied, want a withdrawal and its refund", did)
			}
			tooMuch := transfer.Outcome{Verdict: transfer.Refused, Reason: transfer.Overflow}
			equal(t, "one unit too many from outside", u.Outside(u.Ctx, to, transfer.OutsideDeposit, u.ID, usdt.ID, room+1), tooMuch)
			u.wantHeld("one unit too many from outside", to, math.MaxUint64-room)
			u.Want("the sum just fits", u.post(other(to), to, "0.000005"), http.StatusOK, "COMMITTED", "")
			u.wantHeld("the sum just fits", to, math.MaxUint64)
			u.wantHeld("the sum just fits", other(to), 100-room)
			u.Want("full", u.post(other(to), to, "0.000001"), http.StatusUnprocessableEntity, "ROLLED_BACK", "OVERFLOW")
			u.wantHeld("full", to, math.MaxUint64)
		})
	}
}

// ATK-007: from an account to itself.
func TestATK007SameAccount(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 500, 500)
	for _, side := range []transfer.AccountType{funding, spot} {
		u.refusedBefore(string(side), body(side, side, "0.0001"), http.StatusBadRequest, "SAME_ACCOUNT")
	}
}

// ATK-008: account types that are none, or not launched.
func TestATK008InvalidType(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 500, 500)
	for _, kind := range []transfer.AccountType{"", "spot", "WALLET", "CHAIN", "FUNDING "} {
		u.refusedBefore("from "+string(kind), body(kind, spot, "0.0001"), http.StatusBadRequest, "INVALID_ACCOUNT_TYPE")
		u.refusedBefore("to "+string(kind), body(spot, kind, "0.0001"), http.StatusBadRequest, "INVALID_ACCOUNT_TYPE")
	}
	for _, kind := range []transfer.AccountType{"FUTURE", "MARGIN"} {
		u.refusedBefore("from "+string(kind), body(kind, spot, "0.0001"), http.StatusBadRequest, "UNSUPPORTED_ACCOUNT_TYPE")
		u.refusedBefore("to "+string(kind), body(spot, kind, "0.0001"), http.StatusBadRequest, "UNSUPPORTED_ACCOUNT_TYPE")
	}
}

// ATK-009: an asset that does not exist.
func TestATK009NoSuchAsset(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 500, 500)
	for _, asset := range []string{"NONE", "", "usdt", "USDT ", "1"} {
		u.refusedBefore("asset "+asset, body(funding, spot, "0.0001", "asset", asset), http.StatusBadRequest, "INVALID_ASSET")
	}
}

// ATK-010: the same cid twice gets the first result, even if circumstances have changed. Another
// request under it is a conflict.
func TestATK010SameCIDTwice(t *testing.T) {
	t.Parallel()
	h := setup(t)
	passing := transfer.Asset{ID: 10, Name: "PASSING", Precision: 6, MinUnits: 1, MaxUnits: 1000, Active: true, Enabled: true}
	check(t, h.AddAsset(t.Context(), passing))
	u := h.newUser(t, 0, 500)
	check(t, u.Deposit(u.Ctx, funding, u.ID, passing.ID, 100))
	first := u.post(funding, spot, "0.00004", "cid", "one", "asset", passing.Name)
	u.Want("first", first, http.StatusOK, "COMMITTED", "")
	failed := u.post(spot, funding, "1", "cid", "two")
	u.Want("first, failed", failed, http.StatusUnprocessableEntity, "FAILED", "INSUFFICIENT_BALANCE")
	passing.Active = false
	check(t, h.AddAsset(t.Context(), passing))
	u.refusedBefore("suspended", body(funding, spot, "0.00004", "cid", "three", "asset", passing.Name), http.StatusBadRequest, "ASSET_SUSPENDED")
	u.deposit(spot, 1_000_000) // now the failed transfer could succeed
	before := u.picture()
	again := u.post(funding, spot, "0.000040", "cid", "one", "asset", passing.Name)
	u.Want("again", again, http.StatusOK, "COMMITTED", "DUPLICATE_REQUEST")
	failedAgain := u.post(spot, funding, "1", "cid", "two")
	u.Want("again, failed", failedAgain, http.StatusOK, "FAILED", "DUPLICATE_REQUEST")
	if again.ReqID != first.ReqID || failedAgain.ReqID != failed.ReqID || again.TransferID != first.TransferID {
		t.Errorf("again: got %s and %s, want %s and %s", again.ReqID, failedAgain.ReqID, first.ReqID, failed.ReqID)
	}
	u.refusedBefore("another amount", body(spot, funding, "2", "cid", "two"), http.StatusConflict, "CID_CONFLICT")
	u.refusedBefore("the other way", body(funding, spot, "1", "cid", "two"), http.StatusConflict, "CID_CONFLICT")
	u.refusedBefore("another asset", body(spot, funding, "1", "cid", "two", "asset", passing.Name), http.StatusConflict, "CID_CONFLICT")
	u.Unchanged("the second time", before, u.picture)
}

// unauthorized requires that the token belongs to no user, on both paths.
func (u *user) unauthorized(what, token string) {
	u.T.Helper()
	before := u.picture()
	for method, path := range map[string]string{http.MethodPost: "/api/v1/internal_transfer", http.MethodGet: "/api/v1/internal_transfer/01JGMJ2A9QPVN5C0XK6R3T8WZB"} {
		var content any
		if method == http.MethodPost {
			content = body(funding, spot, "0.0001")
		}
		got, err := acceptancetest.ReadAnswer(stack.CallWith(u.Ctx, token, method, u.URLMap.PublicURL()+path, content))
		if want := (answer{Status: http.StatusUnauthorized, Code: "UNAUTHORIZED"}); err != nil || got != want {
			u.T.Errorf("%s %s, %s: got %+v, %v; want %+v", method, path, what, got, err, want)
		}
	}
	u.Unchanged(what, before, u.picture)
}

func (u *user) flawed(flaw issuer.Flaw) string {
	u.T.Helper()
	return must(u.Users.FlawedUserToken(u.ID, stack.UsersAudience, flaw))(u.T)
}

// ATK-011: no token.
func TestATK011NoToken(t *testing.T) {
	t.Parallel()
	setup(t).newUser(t, 500, 0).unauthorized("no token", "")
}

// ATK-012: a token whose time is over, or has not come.
func TestATK012ExpiredToken(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 500, 0)
	for what, flaw := range map[string]issuer.Flaw{
		"expired": issuer.Expired, "from the future": issuer.FromTheFuture, "not before later": issuer.NotBeforeLater, "no expiry": issuer.NoExpiry,
	} {
		u.unauthorized(what, u.flawed(flaw))
	}
}

// ATK-013: a token that the users' issuer did not issue, that is for another service, or that names no
// user.
func TestATK013ForgedToken(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 500, 0)
	for what, flaw := range map[string]issuer.Flaw{
		"another key": issuer.OtherKey, "an unknown key": issuer.UnknownKey, "unsigned": issuer.Unsigned, "HMAC": issuer.HMACWithPublicKey,
		"tampered": issuer.Tampered, "another issuer": issuer.WrongIssuer, "no audience": issuer.NoAudience, "no subject": issuer.NoSubject,
	} {
		u.unauthorized(what, u.flawed(flaw))
	}
	elsewhere := must(u.Users.UserToken(u.ID, stack.PublicAudience))(t)
	u.unauthorized("another audience", elsewhere)
	nobody := must(u.Users.UserToken(-u.ID, stack.UsersAudience))(t)
	u.unauthorized("no user's id", nobody)
	operator := must(u.Issuer.Token(t.Context(), stack.OperatorAccount, stack.PublicAudience))(t)
	u.unauthorized("an operator's", operator)
	u.unauthorized("no token at all", "not.a.token")
}
