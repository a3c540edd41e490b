package attacks

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/transfer"
)

const (
	ownAddress   = "0x00000000000000000000000000000000000a11ce"
	thiefAddress = "0x000000000000000000000000000000000007417e"
)

// bearer is a client with the user's token, such as a thief's.
func (h deployment) bearer(t *testing.T, user int64) *client.Client {
	t.Helper()
	return must(h.UserClient(user))(t)
}

// rich gives the user 1 ETH in Funding, which is paid out as the asset says.
func (h deployment) rich(t *testing.T, user int64) {
	t.Helper()
	check(t, h.Deposit(h.ctx, transfer.Funding, user, stack.ETH.ID, 100_000_000))
}

// payTo asks for a payout and returns the code that refuses it; "": it is accepted.
func (h deployment) payTo(t *testing.T, c *client.Client, address, amount, cid string) string {
	t.Helper()
	_, err := c.CreatePayout(h.ctx, client.PayoutRequest{Asset: stack.ETH.Name, Amount: amount, Address: address, CID: cid})
	if err != nil && client.CodeOf(err) == "" {
		t.Fatalf("pay %s: %v", address, err)
	}
	return client.CodeOf(err)
}

// agedByADay makes all addresses a day older.
func (h deployment) agedByADay(t *testing.T) {
	t.Helper()
	for _, statement := range []string{
		`alter table payout_address disable trigger user`,
		`update payout_address set added_at = added_at - interval '24 hours'`,
		`alter table payout_address enable trigger user`,
	} {
		must(h.DB.Exec(h.ctx, statement))(t)
	}
}

// A thief with a user's token gets no payout to an address that was not listed a day before,
// in any order of adding, removing and paying. The user, or an operator, has that day to take
// the address off.
func TestAStolenUserTokenPaysNoNewAddress(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Processes: 2, Transfers: true, Payouts: true, Settings: map[string]string{"FENCEPOST_TRANSFER_PAYOUT_ADDRESSES_REQUIRED": "true"}})
	const user = 7
	h.rich(t, user)
	token := h.bearer(t, user)
	add := func(address string) client.PayoutAddress {
		t.Helper()
		return must(token.AddPayoutAddress(h.ctx, client.NewPayoutAddress{Asset: stack.ETH.Name, Address: address}))(t)
	}
	add(ownAddress)
	h.agedByADay(t)
	equal(t, "the user pays the own address, accepted", h.payTo(t, token, ownAddress, "0.01", "own"), "")
	refused := func(what, cid, want string) {
		t.Helper()
		equal(t, what, h.payTo(t, token, thiefAddress, "0.9", cid), want)
	}
	refused("an address that is not listed", "", "ADDRESS_NOT_LISTED")
	refused("under the cid of a payout of before", "own", "CID_CONFLICT")
	first := add(thiefAddress)
	refused("an address of this moment", "", "ADDRESS_NOT_YET_USABLE")
	must(token.RemovePayoutAddress(h.ctx, first.AddressID))(t)
	second := add(thiefAddress)
	refused("removed and added again", "", "ADDRESS_NOT_YET_USABLE")
	status, text, err := h.CallAsUser(h.ctx, user, http.MethodPost, fmt.Sprintf("/admin/v1/users/%d/payout_addresses/unblock", user), map[string]any{"reason": "r"})
	if err != nil || status != http.StatusUnauthorized {
		t.Errorf("an operator's call by the user's token: got %d %s, %v; want 401", status, text, err)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			_, err := token.CreatePayout(h.ctx, client.PayoutRequest{Asset: stack.ETH.Name, Amount: "0.1", Address: thiefAddress})
			if client.CodeOf(err) != "ADDRESS_NOT_YET_USABLE" {
				t.Errorf("many at once: got %v, want ADDRESS_NOT_YET_USABLE", err)
			}
		})
	}
	group.Wait()

	// The user finds it on the list.
	must(token.RemovePayoutAddress(h.ctx, second.AddressID))(t)
	h.agedByADay(t)
	refused("a day later, when it was removed", "", "ADDRESS_NOT_LISTED")
	must(h.operator(t).BlockPayoutAddresses(h.ctx, user, "the token was stolen"))(t)
	equal(t, "added while an operator blocks it", code(token.AddPayoutAddress(h.ctx, client.NewPayoutAddress{Asset: stack.ETH.Name, Address: thiefAddress})), "ADDRESSES_BLOCKED")
	h.wantCount(t, "payouts to other addresses", 0, `select count(*) from transfers_tb where payout_address <> $1`, ownAddress)
	equal(t, "the user pays the own address after all that, accepted", h.payTo(t, token, ownAddress, "0.01", ""), "")
}

// A thief with a user's token gets no more paid out in a day than the asset allows. Many
// requests at once in several processes, and transfers back and forth, change nothing.
func TestAStolenUserTokenPaysNoMoreThanADay(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Processes: 2, Transfers: true, Payouts: true})
	bounded := stack.ETH
	bounded.PayoutDay = 25_000_000
	check(t, h.AddAsset(h.ctx, h.PaidOut(bounded)))
	const user = 8
	h.rich(t, user)
	token := h.bearer(t, user)
	var group sync.WaitGroup
	for range 12 {
		group.Go(func() {
			_, err := token.CreatePayout(h.ctx, client.PayoutRequest{Asset: bounded.Name, Amount: "0.1", Address: thiefAddress})
			if code := client.CodeOf(err); err != nil && code != "DAILY_PAYOUT_EXCEEDED" {
				t.Errorf("many at once: got %v, want DAILY_PAYOUT_EXCEEDED", err)
			}
		})
	}
	group.Wait()
	h.wantCount(t, "payouts of 0.1 with 0.25 a day", 2, `select count(*) from transfers_tb where user_id = $1 and transfer_type = 3`, user)
	for _, way := range [][2]string{{"FUNDING", "SPOT"}, {"SPOT", "FUNDING"}} {
		must(token.CreateTransfer(h.ctx, client.TransferRequest{From: way[0], To: way[1], Asset: bounded.Name, Amount: "0.5"}))(t)
	}
	equal(t, "beyond what is left", h.payTo(t, token, thiefAddress, "0.06", ""), "DAILY_PAYOUT_EXCEEDED")
	equal(t, "what is left, accepted", h.payTo(t, token, thiefAddress, "0.05", ""), "")
}
