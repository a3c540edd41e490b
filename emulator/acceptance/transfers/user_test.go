package transfers

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

const (
	funding = transfer.Funding
	spot    = transfer.Spot
)

// usdt is the asset of most tests; a unit is 10^-6 of it.
var usdt = stack.USDT

// user is a user of t alone, with separate accounts.
type user struct {
	*deployment
	t   *testing.T
	id  int64
	ctx context.Context
}

var lastUser atomic.Int64

// newUser returns a user with units of USDT on each side; none makes no account. When t ends, all the
// user's transfers are ended and checked.
func (h *deployment) newUser(t *testing.T, inFunding, inTrading uint64) *user {
	t.Helper()
	u := h.withoutAccount(t)
	u.deposit(funding, inFunding)
	u.deposit(spot, inTrading)
	return u
}

// withoutAccount returns a user without an account.
func (h *deployment) withoutAccount(t *testing.T) *user {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within) // longer than t's, which ends before clean-up
	u := &user{h, t, 1000 + lastUser.Add(1), ctx}
	t.Cleanup(func() {
		defer cancel()
		if !t.Failed() {
			u.end()
		}
	})
	return u
}

func (u *user) deposit(side transfer.AccountType, units uint64) {
	u.t.Helper()
	if units == 0 {
		return
	}
	if err := u.Deposit(u.ctx, side, u.id, usdt.ID, units); err != nil {
		u.t.Fatal(err)
	}
}

func (u *user) status(side transfer.AccountType, status string) {
	u.t.Helper()
	if err := u.SetStatus(u.ctx, side, u.id, usdt.ID, status); err != nil {
		u.t.Fatal(err)
	}
}

// answer is the API's answer to a post or a query.
type answer struct {
	Status     int    `json:"-"`
	TransferID int64  `json:"transfer_id"`
	ReqID      string `json:"req_id"`
	From       string `json:"from"`
	To         string `json:"to"`
	Asset      string `json:"asset"`
	Amount     string `json:"amount"`
	State      string `json:"state"`
	Code       string `json:"code"`
	Reason     string `json:"reason"`
}

func readAnswer(status int, text []byte, err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	var a struct {
		answer
		Status json.RawMessage `json:"status"` // of a problem: repeats the status
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return answer{}, fmt.Errorf("status %d: %s: %w", status, text, err)
	}
	a.answer.Status = status
	return a.answer, nil
}

// body returns a transfer of USDT. More are additional members, two values each.
func body(from, to transfer.AccountType, amount string, more ...any) map[string]any {
	m := map[string]any{"from": from, "to": to, "asset": usdt.Name, "amount": amount}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}

// post posts a transfer and requires an answer.
func (u *user) post(from, to transfer.AccountType, amount string, more ...any) answer {
	u.t.Helper()
	a, err := u.try(body(from, to, amount, more...))
	if err != nil {
		u.t.Fatalf("post: %v", err)
	}
	return a
}

// try posts once.
func (u *user) try(body any) (answer, error) {
	return readAnswer(u.CallAsUser(u.ctx, u.id, http.MethodPost, "/api/v1/internal_transfer", body))
}

// tryAt posts to one process, at its address.
func (u *user) tryAt(addr string, body any) (answer, error) {
	token, err := u.Users.UserToken(u.id, stack.UsersAudience)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(stack.CallWith(u.ctx, token, http.MethodPost, "http://"+addr+"/api/v1/internal_transfer", body))
}

// get queries a transfer.
func (u *user) get(reqID string) answer {
	u.t.Helper()
	a, err := readAnswer(u.CallAsUser(u.ctx, u.id, http.MethodGet, "/api/v1/internal_transfer/"+reqID, nil))
	if err != nil {
		u.t.Fatalf("get %s: %v", reqID, err)
	}
	return a
}

// want checks an answer's status, state and code.
func (u *user) want(what string, got answer, status int, state, code string) {
	u.t.Helper()
	if got.Status != status || got.State != state || got.Code != code {
		u.t.Errorf("%s: got %d %q %q, want %d %q %q (%+v)", what, got.Status, got.State, got.Code, status, state, code, got)
	}
}

// committed posts a transfer that must succeed.
func (u *user) committed(from, to transfer.AccountType, amount string) answer {
	u.t.Helper()
	a := u.post(from, to, amount)
	u.want("a transfer", a, http.StatusOK, "COMMITTED", "")
	return a
}

// held returns the balance on a side, and whether there is an account.
func (u *user) held(side transfer.AccountType) (units uint64, exists bool) {
	u.t.Helper()
	if side == spot {
		b, exists, err := u.Core.Ledger().Balance(u.ctx, u.id, usdt.ID)
		if err != nil {
			u.t.Fatalf("balance of user %d in %s: %v", u.id, side, err)
		}
		return b.Units, exists
	}
	var text string
	err := u.DB.QueryRow(u.ctx, `
select coalesce((select trim_scale(available * 10::numeric ^ precision)::text from balances_tb where user_id = $1 and asset_id = $2), '')`, u.id, usdt.ID).Scan(&text)
	if err == nil && text != "" {
		exists = true
		units, err = strconv.ParseUint(text, 10, 64)
	}
	if err != nil {
		u.t.Fatalf("balance of user %d in %s: %v", u.id, side, err)
	}
	return units, exists
}

// wantHeld checks an account's balance, which can exceed a signed integer.
func (u *user) wantHeld(what string, side transfer.AccountType, want uint64) {
	u.t.Helper()
	if got, exists := u.held(side); got != want || !exists {
		u.t.Errorf("%s: got %d in %s, an account: %t; want %d", what, got, side, exists, want)
	}
}

// units returns the balance on a side, or -1 without an account.
func (u *user) units(side transfer.AccountType) int64 {
	u.t.Helper()
	n, exists := u.held(side)
	if !exists {
		return -1
	}
	if n > math.MaxInt64 {
		u.t.Fatalf("balance of user %d in %s: got %d, more than is compared here", u.id, side, n)
	}
	return int64(n)
}

func (u *user) wantUnits(what string, inFunding, inTrading int64) {
	u.t.Helper()
	if f, s := u.units(funding), u.units(spot); f != inFunding || s != inTrading {
		u.t.Errorf("%s: got %d in Funding and %d in Trading, want %d and %d", what, f, s, inFunding, inTrading)
	}
}

// transfers returns the req_ids of the user's stored transfers, in order.
func (u *user) transfers() (all []string) {
	u.t.Helper()
	rows, err := u.DB.Query(u.ctx, `select req_id from transfers_tb where user_id = $1 order by transfer_id`, u.id)
	if err != nil {
		u.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var reqID string
		if err := rows.Scan(&reqID); err != nil {
			u.t.Fatal(err)
		}
		all = append(all, reqID)
	}
	if err := rows.Err(); err != nil {
		u.t.Fatal(err)
	}
	return all
}

// only returns the user's only stored transfer.
func (u *user) only() string {
	u.t.Helper()
	all := u.transfers()
	if len(all) != 1 {
		u.t.Fatalf("transfers of user %d: got %v, want one", u.id, all)
	}
	return all[0]
}

// load returns the transfer's row.
func (u *user) load(reqID string) transfer.Transfer {
	u.t.Helper()
	x, err := u.Transfers.Load(u.ctx, reqID)
	if err != nil {
		u.t.Fatal(err)
	}
	return x
}

// states is the history of the transfer.
func (u *user) states(reqID string) (all []transfer.State) {
	u.t.Helper()
	story, err := u.Transfers.Why(u.ctx, reqID)
	if err != nil {
		u.t.Fatal(err)
	}
	for _, h := range story.History {
		all = append(all, h.State)
	}
	return all
}

func (u *user) wantStates(what, reqID string, want ...transfer.State) {
	u.t.Helper()
	if got := u.states(reqID); !slices.Equal(got, want) {
		u.t.Errorf("%s: got the states %v, want %v", what, got, want)
	}
}

// The histories that the specification knows.
var (
	happy    = []transfer.State{transfer.Init, transfer.SourcePending, transfer.SourceDone, transfer.TargetPending, transfer.Committed}
	refused  = []transfer.State{transfer.Init, transfer.SourcePending, transfer.Failed}
	rollback = []transfer.State{transfer.Init, transfer.SourcePending, transfer.SourceDone, transfer.TargetPending, transfer.Compensating, transfer.RolledBack}
)

// awaitState waits until the transfer is there.
func (u *user) awaitState(reqID string, want transfer.State) {
	u.t.Helper()
	poll(u.t, fmt.Sprintf("transfer %s is %s", reqID, want), func() bool {
		x, err := u.Transfers.Load(u.ctx, reqID)
		return err == nil && x.State == want
	})
}
