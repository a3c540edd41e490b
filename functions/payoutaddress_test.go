package functions_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// listedOnly serves with a process that pays out only to listed addresses.
func (h deployment) listedOnly() deployment {
	h.t.Helper()
	h.url = h.serve(append(h.transferSettings(), "FENCEPOST_TRANSFER_PAYOUT_ADDRESSES_REQUIRED=true")...)
	return h
}

// addresses calls as the user. The path follows that of the list.
func (h deployment) addresses(user int64, method, path string, body any) answer {
	h.t.Helper()
	return h.asUser(user, method, "/api/v1/payout_address"+path, body)
}

// add adds paidTo to the user's list, with the given changes.
func (h deployment) add(user int64, differs map[string]any) answer {
	h.t.Helper()
	return h.addresses(user, "POST", "", with(members{"asset": "USDT", "address": paidTo}, differs))
}

// agedAddresses makes all addresses a day older.
func (h deployment) agedAddresses() {
	h.t.Helper()
	h.unguarded(`update payout_address set added_at = added_at - interval '24 hours'`)
}

// If the list is required, a payout may go to an address of its user from a day after its addition
// until its removal. A refusal within the day says when the delay ends.
func TestPayoutsGoToListedAddressesAlone(t *testing.T) {
	t.Parallel()
	h := buildWithPayer(t)
	check.Equal(t, "at first", h.addresses(alice, "GET", "", nil).is("required", "addresses"), "200 false []")
	h = h.listedOnly()
	check.Equal(t, "none is listed", h.pay(alice, nil).is("code", "field"), "400 ADDRESS_NOT_LISTED address")
	added := h.add(alice, map[string]any{"address": "0x" + strings.ToUpper(paidTo[2:])})
	check.Equal(t, fmt.Sprintf("add (%v)", added.body), added.is("chain_id", "address"), "201 1337 "+paidTo)
	check.Equal(t, "again", h.add(alice, nil).is("address_id", "usable_from"), fmt.Sprint("200 ", added.body["address_id"], " ", added.body["usable_from"]))
	at, _ := time.Parse(time.RFC3339, fmt.Sprint(added.body["added_at"]))
	from, _ := time.Parse(time.RFC3339, fmt.Sprint(added.body["usable_from"]))
	check.Equal(t, "the delay", from.Sub(at), 24*time.Hour)
	early := h.pay(alice, nil)
	check.Equal(t, "too early", early.is("code", "field", "usable_from"), fmt.Sprint("400 ADDRESS_NOT_YET_USABLE address ", added.body["usable_from"]))
	h.agedAddresses()
	h.pay(alice, map[string]any{"cid": "paid"}).wants(t, 202, "a day later")
	check.Equal(t, "another address", h.pay(alice, members{"address": "0x" + strings.Repeat("1", 40)}).is("code"), "400 ADDRESS_NOT_LISTED")
	check.Equal(t, "another user", h.pay(bob, nil).is("code"), "400 ADDRESS_NOT_LISTED")
	id := fmt.Sprintf("/%v", added.body["address_id"])
	check.Equal(t, "removed by another user", h.addresses(bob, "DELETE", id, nil).is("code"), "404 NOT_FOUND")
	for range 2 {
		check.Equal(t, "remove", h.addresses(alice, "DELETE", id, nil).is("removed_by"), "200 user")
	}
	check.Equal(t, "removed", h.pay(alice, nil).is("code", "field"), "400 ADDRESS_NOT_LISTED address")
	check.Equal(t, "what is stored under the cid", h.pay(alice, members{"cid": "paid"}).is("code"), "200 DUPLICATE_REQUEST")
	h.add(alice, nil).wants(t, 201, "added anew")
	check.Equal(t, "added anew", h.pay(alice, nil).is("code", "field"), "400 ADDRESS_NOT_YET_USABLE address")
}

// An address that no payout can use is refused when it is added, with the field.
func TestWrongAddressesAreNotAdded(t *testing.T) {
	t.Parallel()
	h := build(t)
	for _, c := range []struct {
		name string
		body map[string]any
		want string
	}{
		{"no address", map[string]any{"address": "x"}, "400 INVALID_ADDRESS address"},
		{"a wrong checksum", map[string]any{"address": "0x52908400098527886E0F7030069857D2E4169Ee7"}, "400 INVALID_ADDRESS address"},
		{"the payer", map[string]any{"address": strings.TrimPrefix(payer, "eip155:1337:")}, "400 INVALID_ADDRESS address"},
		{"nobody", map[string]any{"address": "0x" + strings.Repeat("0", 40)}, "400 INVALID_ADDRESS address"},
		{"no asset", map[string]any{"asset": "?"}, "400 INVALID_ASSET asset"},
		{"no payouts", map[string]any{"asset": "HUGE"}, "400 TRANSFER_NOT_ALLOWED asset"},
		{"another member", map[string]any{"usable_from": "2020-01-01T00:00:00Z"}, "400 UNSUPPORTED_FIELD usable_from"},
	} {
		check.Equal(t, c.name, h.add(alice, c.body).is("code", "field"), c.want)
	}
	for id, want := range map[string]string{"/0": "404 NOT_FOUND", "/9": "404 NOT_FOUND", "/07": "400 INVALID_FIELD", "/x": "400 INVALID_FIELD"} {
		check.Equal(t, fmt.Sprintf("remove %s", id), h.addresses(alice, "DELETE", id, nil).is("code"), want)
	}
}

// An asset's daily amount bounds its payouts, and the answer says how much is left.
func TestPayoutsOfADay(t *testing.T) {
	t.Parallel()
	h := buildWithPayer(t)
	h.run(`update assets_tb set daily_payout_amount = 2 where asset_id = 1`)
	h.post(alice, map[string]any{"amount": "2.5"}).wants(t, 200, "between accounts")
	h.pay(alice, nil).wants(t, 202, "the first")
	over := h.pay(alice, map[string]any{"amount": "0.500001"})
	check.Equal(t, "one unit too many", over.is("code", "field", "left")+" "+over.header.Get("Retry-After"), "429 DAILY_PAYOUT_EXCEEDED amount 0.5 3600")
	h.pay(alice, map[string]any{"amount": "0.5"}).wants(t, 202, "what is left")
	h.shift(alice, "-24 hours")
	h.pay(alice, nil).wants(t, 202, "a day later")
}

// Users manage their addresses with the client, and operators act on them; each operator act is
// stored.
func TestClientOfPayoutAddresses(t *testing.T) {
	t.Parallel()
	h := buildWithPayer(t)
	h = h.listedOnly()
	user, ann, shop := h.clientOf(h.userToken(alice)), h.clientOf(h.callerToken("ann")), h.clientOf(h.callerToken("shop"))
	added, err := user.AddPayoutAddress(t.Context(), client.NewPayoutAddress{Asset: "USDT", Address: paidTo})
	if err != nil || added.Address != paidTo || added.ChainID != 1337 {
		t.Fatalf("add: got %+v, %v", added, err)
	}
	_, err = user.CreatePayout(t.Context(), client.PayoutRequest{Asset: "USDT", Amount: "1", Address: paidTo})
	var p *client.Problem
	if !errors.As(err, &p) || p.Code != "ADDRESS_NOT_YET_USABLE" || p.UsableFrom == nil || !p.UsableFrom.Equal(added.UsableFrom) {
		t.Errorf("too early: got %v, want usable_from %s", err, added.UsableFrom)
	}
	refused(t, "to a caller", "FORBIDDEN")(shop.ShowPayoutAddresses(t.Context(), alice))
	refused(t, "blocked by the user", "UNAUTHORIZED")(user.BlockPayoutAddresses(t.Context(), alice, "mine"))
	if got, err := ann.BlockPayoutAddresses(t.Context(), alice, "a stolen token"); err != nil || got.Block == nil || got.Block.Reason != "a stolen token" || !strings.Contains(got.Block.By, "ann") {
		t.Errorf("block: got %+v, %v", got, err)
	}
	refused(t, "add while blocked", "ADDRESSES_BLOCKED")(user.AddPayoutAddress(t.Context(), client.NewPayoutAddress{Asset: "USDT", Address: "0x" + strings.Repeat("1", 40)}))
	if got, err := ann.ShowPayoutAddresses(t.Context(), alice); err != nil || got.Block == nil || len(got.Addresses) != 1 || got.Addresses[0].RemovedAt != nil {
		t.Errorf("list: got %+v, %v; want the block, and one address", got, err)
	}
	h.unguarded(fmt.Sprintf(`insert into payout_address (user_id, chain_id, address, removed_at, removed_by)
		select %d, 1337, '%s', now(), 'user' from generate_series(1, 1200)`, alice, paidTo))
	if got, err := ann.ShowPayoutAddresses(t.Context(), alice); err != nil || len(got.Addresses) != 1201 || got.Addresses[1200].AddressID != added.AddressID || got.Block == nil {
		t.Errorf("list of 1,201: got %d, %v", len(got.Addresses), err)
	}
	path := fmt.Sprint("/admin/v1/users/", alice, "/payout_addresses")
	check.Equal(t, "on two pages", len(h.allRows("addresses", path, "", 1000)), 1201)
	h.unguarded(fmt.Sprintf(`delete from payout_address where user_id = %d and address_id <> %d`, alice, added.AddressID))
	if got, err := ann.DropPayoutAddress(t.Context(), alice, added.AddressID, "not hers"); err != nil || !strings.Contains(got.RemovedBy, "ann") || got.RemoveReason != "not hers" {
		t.Errorf("remove: got %+v, %v", got, err)
	}
	refused(t, "remove what is not there", "NOT_FOUND")(ann.DropPayoutAddress(t.Context(), alice, added.AddressID+1, "not hers"))
	refused(t, "block user 0", "INVALID_FIELD")(ann.BlockPayoutAddresses(t.Context(), 0, "r"))
	refused(t, "unblock without a reason", "INVALID_FIELD")(ann.UnblockPayoutAddresses(t.Context(), alice, " "))
	if got, err := ann.UnblockPayoutAddresses(t.Context(), alice, "a new token"); err != nil || got.Block != nil || len(got.Addresses) != 1 || got.Addresses[0].RemovedAt == nil {
		t.Errorf("unblock: got %+v, %v; want no block, and the removed address", got, err)
	}
	refused(t, "unblock again", "TOO_LATE")(ann.UnblockPayoutAddresses(t.Context(), alice, "again"))
	own := check.Value(user.ListPayoutAddresses(t.Context()))(t)
	check.Equal(t, "to the user", fmt.Sprintln(own.Required, len(own.Addresses)), "true 0\n")
	again := check.Value(user.AddPayoutAddress(t.Context(), client.NewPayoutAddress{Asset: "USDT", Address: paidTo}))(t)
	check.Equal(t, "anew under the old number", again.AddressID == added.AddressID, false)
	check.Equal(t, "removed by the user", check.Value(user.RemovePayoutAddress(t.Context(), again.AddressID))(t).RemovedBy, "user")
}
