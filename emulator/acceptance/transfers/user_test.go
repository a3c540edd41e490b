package transfers

import (
	"math"
	"net/http"
	"strconv"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

const (
	funding = transfer.Funding
	spot    = transfer.Spot
)

// usdt is the asset of most tests; a unit is 10^-6 of it.
var usdt = stack.USDT

// user is a user of a test alone, with separate accounts.
type user struct {
	*deployment
	acceptancetest.User
}

// newUser returns a user with units of USDT on each side; none makes no account. When t ends, all the
// user's transfers are ended and checked.
func (h *deployment) newUser(t *testing.T, inFunding, inTrading uint64) *user {
	t.Helper()
	u := h.unverified(t)
	acceptancetest.AtEnd(t, u.end)
	u.deposit(funding, inFunding)
	u.deposit(spot, inTrading)
	return u
}

// unverified returns a user without an account, whose end is not checked.
func (h *deployment) unverified(t *testing.T) *user { return &user{h, h.NewUser(t)} }

func (u *user) deposit(side transfer.AccountType, units uint64) {
	u.T.Helper()
	if units == 0 {
		return
	}
	check(u.T, u.Deposit(u.Ctx, side, u.ID, usdt.ID, units))
}

func (u *user) status(side transfer.AccountType, status string) {
	u.T.Helper()
	check(u.T, u.SetStatus(u.Ctx, side, u.ID, usdt.ID, status))
}

type answer = acceptancetest.Answer

// body returns a transfer of USDT. More are additional members, two values each.
func body(from, to transfer.AccountType, amount string, more ...any) map[string]any {
	m := map[string]any{"from": from, "to": to, "asset": usdt.Name, "amount": amount}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}

const path = "/api/v1/internal_transfer"

// post posts a transfer and requires an answer.
func (u *user) post(from, to transfer.AccountType, amount string, more ...any) answer {
	u.T.Helper()
	return must(u.try(body(from, to, amount, more...)))(u.T)
}

// try posts once, and tryAt to one process at its address.
func (u *user) try(body any) (answer, error)                { return u.Post(path, body) }
func (u *user) tryAt(addr string, body any) (answer, error) { return u.PostAt(addr, path, body) }

// committed posts a transfer that must succeed.
func (u *user) committed(from, to transfer.AccountType, amount string) answer {
	u.T.Helper()
	a := u.post(from, to, amount)
	u.Want("a transfer", a, http.StatusOK, "COMMITTED", "")
	return a
}

// held returns the balance on a side, and whether there is an account.
func (u *user) held(side transfer.AccountType) (units uint64, exists bool) {
	u.T.Helper()
	if side == spot {
		b, exists, err := u.Core.Ledger().Balance(u.Ctx, u.ID, usdt.ID)
		if err != nil {
			u.T.Fatalf("balance of user %d in %s: %v", u.ID, side, err)
		}
		return b.Units, exists
	}
	var text string
	err := u.DB.QueryRow(u.Ctx, `
select coalesce((select trim_scale(available * 10::numeric ^ precision)::text from balances_tb where user_id = $1 and asset_id = $2), '')`, u.ID, usdt.ID).Scan(&text)
	if err == nil && text != "" {
		exists = true
		units, err = strconv.ParseUint(text, 10, 64)
	}
	if err != nil {
		u.T.Fatalf("balance of user %d in %s: %v", u.ID, side, err)
	}
	return units, exists
}

// wantHeld checks an account's balance, which can exceed a signed integer.
func (u *user) wantHeld(what string, side transfer.AccountType, want uint64) {
	u.T.Helper()
	if got, exists := u.held(side); got != want || !exists {
		u.T.Errorf("%s: got %d in %s, an account: %t; want %d", what, got, side, exists, want)
	}
}

// units returns the balance on a side, or -1 without an account.
func (u *user) units(side transfer.AccountType) int64 {
	u.T.Helper()
	n, exists := u.held(side)
	if !exists {
		return -1
	}
	if n > math.MaxInt64 {
		u.T.Fatalf("balance of user %d in %s: got %d, more than is compared here", u.ID, side, n)
	}
	return int64(n)
}

func (u *user) wantUnits(what string, inFunding, inTrading int64) {
	u.T.Helper()
	if f, s := u.units(funding), u.units(spot); f != inFunding || s != inTrading {
		u.T.Errorf("%s: got %d in Funding and %d in Trading, want %d and %d", what, f, s, inFunding, inTrading)
	}
}

// wantMoved checks that both sides have together as much as before, and the lower of them this much.
func (u *user) wantMoved(what string, together, lower int64) {
	u.T.Helper()
	if f, s := u.units(funding), u.units(spot); f+s != together || min(f, s) != lower {
		u.T.Errorf("%s: got %d and %d, want %d in all and %d on one side", what, f, s, together, lower)
	}
}

func (u *user) wantStates(what, reqID string, want ...transfer.State) {
	u.T.Helper()
	same(u.T, what+": states", u.States(reqID), want)
}

// The histories that the specification knows.
var (
	happy    = acceptancetest.Happy
	refused  = []transfer.State{transfer.Init, transfer.SourcePending, transfer.Failed}
	rollback = acceptancetest.Rollback
)
