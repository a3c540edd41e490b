package payouts

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// user is a user of a test alone, with separate accounts and a separate address. All its payouts are of
// one asset.
type user struct {
	*deployment
	acceptancetest.User
	asset   transfer.Asset
	address txmanager.Address // the recipient of the user's payouts
}

// newUser returns a user with units of the asset in Funding. When t ends, all the user's transfers are
// ended and checked.
func (h *deployment) newUser(t *testing.T, a transfer.Asset, units uint64) *user {
	t.Helper()
	u := h.unverified(t, a, units)
	acceptancetest.AtEnd(t, u.end)
	return u
}

// unverified returns a user whose end is not checked.
func (h *deployment) unverified(t *testing.T, a transfer.Asset, units uint64) *user {
	t.Helper()
	u := &user{deployment: h, User: h.NewUser(t), asset: a}
	u.address = eip155.Address([20]byte{0xab, 18: byte(u.ID >> 8), 19: byte(u.ID)})
	check(t, u.Deposit(u.Ctx, transfer.Funding, u.ID, a.ID, units))
	return u
}

type answer = acceptancetest.Answer

// body returns a payout to the user's address. More are changed members, two values each.
func (u *user) body(units uint64, more ...any) map[string]any {
	m := map[string]any{
		"asset": u.asset.Name, "amount": transfer.FormatUnits(units, u.asset.Precision), "address": u.address.String(),
	}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}

const path = "/api/v1/payout"

// pay posts a payout and requires an answer.
func (u *user) pay(units uint64, more ...any) answer {
	u.T.Helper()
	return must(u.Post(path, u.body(units, more...)))(u.T)
}

// wantGivenUp requires that the payout is refunded, or is being refunded.
func (u *user) wantGivenUp(what string, a answer) {
	u.T.Helper()
	if a.Status != http.StatusOK || a.State != "COMPENSATING" {
		u.Want(what, a, http.StatusOK, "ROLLED_BACK", "")
	}
}

// accepted posts a payout that is open when it is answered.
func (u *user) accepted(units uint64) (reqID string) {
	u.T.Helper()
	a := u.pay(units)
	u.Want("a payout", a, http.StatusAccepted, "PENDING", "")
	return a.ReqID
}

// payAt posts to one process, at its address.
func (u *user) payAt(addr string, units uint64, more ...any) (answer, error) {
	return u.PostAt(addr, path, u.body(units, more...))
}

// resolve gives a payout up as an operator.
func (u *user) resolve(reqID string) answer {
	u.T.Helper()
	return must(u.resolveAt(u.URLMap.PublicURL(), reqID))(u.T)
}

func (u *user) resolveAt(url, reqID string) (answer, error) {
	token, err := u.Issuer.Token(u.Ctx, stack.OperatorAccount, stack.PublicAudience)
	if err != nil {
		return answer{}, err
	}
	body := map[string]string{"op": "deposit", "reason": "the user has asked"}
	return acceptancetest.ReadAnswer(stack.CallWith(u.Ctx, token, http.MethodPost, url+"/admin/v1/transfers/"+reqID+"/resolve", body))
}

// why returns what an operator reads about the payout.
func (u *user) why(reqID string) client.Why {
	u.T.Helper()
	return must(must(u.Client(stack.OperatorAccount))(u.T).WhyTransfer(u.Ctx, reqID))(u.T)
}

// only returns the user's only stored payout.
func (u *user) only() transfer.Transfer {
	u.T.Helper()
	return u.Load(u.Only())
}

// The histories of payouts.
var (
	happy    = acceptancetest.Happy
	rollback = acceptancetest.Rollback
	never    = []transfer.State{transfer.Init, transfer.Failed}
)

// ends waits for the end and requires this history.
func (u *user) ends(reqID string, want []transfer.State) transfer.Transfer {
	u.T.Helper()
	x := u.AwaitState(reqID, want[len(want)-1])
	same(u.T, "states of payout "+reqID, u.States(reqID), want)
	return x
}

// managed returns the state of the payout's transaction, as "FAILED/CANCELLED", or "".
func (u *user) managed(reqID string) (state string) {
	u.T.Helper()
	err := u.DB.QueryRow(u.Ctx, `
select coalesce(string_agg(concat_ws('/', state, sub_state), ' and '), '') from managed_tx where request_id = $1`, reqID).Scan(&state)
	check(u.T, err)
	return state
}

func (u *user) awaitManaged(reqID, want string) {
	u.T.Helper()
	poll(u.T, fmt.Sprintf("the transaction of %s is %s", reqID, want), func() bool { return u.managed(reqID) == want })
}
