package payouts

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// user is a user of t alone, with separate accounts and a separate address. All its payouts are of one
// asset.
type user struct {
	*deployment
	t       *testing.T
	id      int64
	ctx     context.Context
	asset   transfer.Asset
	address txmanager.Address // the recipient of the user's payouts
}

var lastUser atomic.Int64

// newUser returns a user with units of the asset in Funding. When t ends, all the user's transfers are
// ended and checked.
func (h *deployment) newUser(t *testing.T, a transfer.Asset, units uint64) *user {
	t.Helper()
	u := h.unverified(t, a, units)
	t.Cleanup(func() {
		if !t.Failed() {
			u.end()
		}
	})
	return u
}

// unverified returns a user whose end is not checked.
func (h *deployment) unverified(t *testing.T, a transfer.Asset, units uint64) *user {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within) // longer than t's, which ends before clean-up
	t.Cleanup(cancel)
	u := &user{deployment: h, t: t, id: 1000 + lastUser.Add(1), ctx: ctx, asset: a}
	u.address = eip155.Address([20]byte{0xab, 18: byte(u.id >> 8), 19: byte(u.id)})
	if err := u.Deposit(ctx, transfer.Funding, u.id, a.ID, units); err != nil {
		t.Fatal(err)
	}
	return u
}

// answer is the API's answer to a post or a query.
type answer struct {
	Status     int    `json:"-"`
	TransferID int64  `json:"transfer_id"`
	ReqID      string `json:"req_id"`
	From       string `json:"from"`
	To         string `json:"to"`
	Address    string `json:"address"`
	Asset      string `json:"asset"`
	Amount     string `json:"amount"`
	State      string `json:"state"`
	Message    string `json:"message"`
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

// body returns a payout of units to the user's address. More are additional or changed members, two
// values each.
func (u *user) body(units uint64, more ...any) map[string]any {
	m := map[string]any{
		"asset": u.asset.Name, "amount": transfer.FormatUnits(units, u.asset.Precision), "address": u.address.String(),
	}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}

// pay posts a payout and requires an answer.
func (u *user) pay(units uint64, more ...any) answer {
	u.t.Helper()
	a, err := readAnswer(u.CallAsUser(u.ctx, u.id, http.MethodPost, "/api/v1/payout", u.body(units, more...)))
	if err != nil {
		u.t.Fatalf("post a payout: %v", err)
	}
	return a
}

// wantGivenUp requires an answer about a given-up payout: it is refunded, or on a slow machine being
// refunded.
func (u *user) wantGivenUp(what string, a answer) {
	u.t.Helper()
	if a.Status != http.StatusOK || a.State != "COMPENSATING" {
		u.want(what, a, http.StatusOK, "ROLLED_BACK", "")
	}
}

// accepted posts a payout that is open when it is answered.
func (u *user) accepted(units uint64) (reqID string) {
	u.t.Helper()
	a := u.pay(units)
	u.want("a payout", a, http.StatusAccepted, "PENDING", "")
	return a.ReqID
}

// payAt posts to one process, at its address.
func (u *user) payAt(addr string, units uint64, more ...any) (answer, error) {
	token, err := u.Users.UserToken(u.id, stack.UsersAudience)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(stack.CallWith(u.ctx, token, http.MethodPost, "http://"+addr+"/api/v1/payout", u.body(units, more...)))
}

// get queries a payout.
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

// resolve gives a payout up as an operator.
func (u *user) resolve(reqID string) answer {
	u.t.Helper()
	a, err := u.resolveAt(u.URLMap.PublicURL(), reqID)
	if err != nil {
		u.t.Fatalf("resolve %s: %v", reqID, err)
	}
	return a
}

func (u *user) resolveAt(url, reqID string) (answer, error) {
	token, err := u.Issuer.Token(u.ctx, stack.OperatorAccount, stack.PublicAudience)
	if err != nil {
		return answer{}, err
	}
	body := map[string]string{"op": "deposit", "reason": "the user has asked"}
	return readAnswer(stack.CallWith(u.ctx, token, http.MethodPost, url+"/admin/v1/transfers/"+reqID+"/resolve", body))
}

// why returns what an operator reads about the payout.
func (u *user) why(reqID string) (w struct {
	State        string
	Where        string
	LastEvidence string `json:"last_evidence"`
	NextTryAt    string `json:"next_try_at"`
	WouldUnblock string `json:"would_unblock"`
	Payout       struct {
		Submitter, Address, Token string
		BaseUnits                 string `json:"base_units"`
	}
}) {
	u.t.Helper()
	status, text, err := u.Call(u.ctx, stack.OperatorAccount, http.MethodGet, "/admin/v1/transfers/"+reqID+"/why", nil)
	if err != nil || status != http.StatusOK || json.Unmarshal(text, &w) != nil {
		u.t.Fatalf("why %s: got %d %s, %v; want 200", reqID, status, text, err)
	}
	return w
}

// load returns the payout's row.
func (u *user) load(reqID string) transfer.Transfer {
	u.t.Helper()
	x, err := u.Transfers.Load(u.ctx, reqID)
	if err != nil {
		u.t.Fatal(err)
	}
	return x
}

// only returns the user's only stored payout.
func (u *user) only() (x transfer.Transfer) {
	u.t.Helper()
	var reqID string
	var n int
	err := u.DB.QueryRow(u.ctx, `select count(*), coalesce(max(req_id), '') from transfers_tb where user_id = $1`, u.id).Scan(&n, &reqID)
	if err != nil || n != 1 {
		u.t.Fatalf("transfers of user %d: got %d, %v; want one", u.id, n, err)
	}
	return u.load(reqID)
}

// awaitState waits until the payout is there.
func (u *user) awaitState(reqID string, want transfer.State) transfer.Transfer {
	u.t.Helper()
	poll(u.t, fmt.Sprintf("payout %s is %s", reqID, want), func() bool {
		x, err := u.Transfers.Load(u.ctx, reqID)
		return err == nil && x.State == want
	})
	return u.load(reqID)
}

// The histories of payouts.
var (
	happy    = []transfer.State{transfer.Init, transfer.SourcePending, transfer.SourceDone, transfer.TargetPending, transfer.Committed}
	rollback = []transfer.State{transfer.Init, transfer.SourcePending, transfer.SourceDone, transfer.TargetPending, transfer.Compensating, transfer.RolledBack}
	never    = []transfer.State{transfer.Init, transfer.Failed}
)

// ends waits for the end and requires this history.
func (u *user) ends(reqID string, want []transfer.State) transfer.Transfer {
	u.t.Helper()
	x := u.awaitState(reqID, want[len(want)-1])
	story, err := u.Transfers.Why(u.ctx, reqID)
	if err != nil {
		u.t.Fatal(err)
	}
	var got []transfer.State
	for _, h := range story.History {
		got = append(got, h.State)
	}
	if !slices.Equal(got, want) {
		u.t.Errorf("payout %s: got the states %v, want %v", reqID, got, want)
	}
	return x
}

// managed returns the state of the payout's transaction, as "FAILED/CANCELLED"; "" if there is none,
// and both if there are two.
func (u *user) managed(reqID string) (state string) {
	u.t.Helper()
	err := u.DB.QueryRow(u.ctx, `
select coalesce(string_agg(concat_ws('/', state, sub_state), ' and '), '') from managed_tx where request_id = $1`, reqID).Scan(&state)
	if err != nil {
		u.t.Fatal(err)
	}
	return state
}

func (u *user) awaitManaged(reqID, want string) {
	u.t.Helper()
	poll(u.t, fmt.Sprintf("the transaction of %s is %s", reqID, want), func() bool { return u.managed(reqID) == want })
}
