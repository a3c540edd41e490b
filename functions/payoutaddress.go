package functions

import (
	"fmt"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// maxListedAddresses is the most addresses of a user in one answer to an operator.
const maxListedAddresses = 500

type addressRequest struct {
	Asset   string `json:"asset"` // the address is on this asset's chain
	Address string `json:"address"`
}

type addressView struct {
	AddressID    int64      `json:"address_id"`
	ChainID      uint64     `json:"chain_id"`
	Address      string     `json:"address"`
	AddedAt      time.Time  `json:"added_at"`
	UsableFrom   time.Time  `json:"usable_from"`
	RemovedAt    *time.Time `json:"removed_at,omitempty"`
	RemovedBy    string     `json:"removed_by,omitempty"`
	RemoveReason string     `json:"remove_reason,omitempty"`
}

func viewOfAddress(a transfers.Address) addressView {
	v := addressView{
		AddressID: a.ID, ChainID: a.ChainID, Address: a.Address, AddedAt: a.AddedAt.UTC(), UsableFrom: a.UsableFrom.UTC(),
		RemovedBy: a.RemovedBy, RemoveReason: a.RemoveReason,
	}
	if a.RemovedAt != nil {
		at := a.RemovedAt.UTC()
		v.RemovedAt = &at
	}
	return v
}

// addAddress adds an address to the user's list. An address that is already listed is returned
// unchanged, and its waiting time does not restart.
func (a *App) addAddress(w http.ResponseWriter, r *http.Request) error {
	user, err := a.user(r)
	if err != nil {
		return err
	}
	body, err := web.Decode[addressRequest](w, r, a.MaxBodyBytes)
	if err != nil {
		return err
	}
	to, err := evm.ParseAddress(body.Address)
	if err != nil {
		return noAddressProblem()
	}
	asset, err := a.transfers.store.Asset(r.Context(), body.Asset)
	if err != nil {
		return err
	}
	if asset == nil {
		return transfer.ErrRefused{Reason: transfer.InvalidAsset}
	}
	// An address that no payout of the asset can use is refused now.
	p, err := payout.Prepare(*asset, asset.MinUnits, to.String(), a.config.Transfer.PayoutMaxGas)
	if err != nil {
		return err
	}
	added, isNew, err := a.transfers.store.AddAddress(r.Context(), user, p.ChainID, p.Address, a.transfers.terms.Addresses.Delay)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if isNew {
		status = http.StatusCreated
		a.Log.InfoContext(r.Context(), "payout address added", "userId", user, "addressId", added.ID, "chainId", added.ChainID,
			"address", added.Address, "usableFrom", added.UsableFrom.UTC())
	}
	web.Reply(w, r, status, viewOfAddress(added))
	return nil
}

type addressesResponse struct {
	Required  bool          `json:"required"` // payouts may go only to listed addresses
	Addresses []addressView `json:"addresses"`
	Block     *blockView    `json:"block,omitempty"` // shown only to operators
}

type blockView struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// listAddresses shows users their listed addresses.
func (a *App) listAddresses(w http.ResponseWriter, r *http.Request) error {
	user, err := a.user(r)
	if err != nil {
		return err
	}
	found, err := a.transfers.store.Addresses(r.Context(), user, a.transfers.terms.Addresses.Delay, 0)
	if err != nil {
		return err
	}
	web.Reply(w, r, http.StatusOK, a.addressesOf(found))
	return nil
}

func (a *App) addressesOf(found transfers.UserAddresses) addressesResponse {
	out := addressesResponse{Required: a.transfers.terms.Addresses.Required, Addresses: make([]addressView, len(found.List))}
	for i, one := range found.List {
		out.Addresses[i] = viewOfAddress(one)
	}
	return out
}

// removeAddress removes an address from the user's list at once.
func (a *App) removeAddress(w http.ResponseWriter, r *http.Request) error {
	user, err := a.user(r)
	if err != nil {
		return err
	}
	return a.replyRemoval(w, r, transfers.RemovalOfAddress{UserID: user, By: transfers.ByUser})
}

// replyRemoval removes the address in the path and answers with it.
func (a *App) replyRemoval(w http.ResponseWriter, r *http.Request, removal transfers.RemovalOfAddress) error {
	id, ok := serve.Digits(r.PathValue("address_id"))
	if !ok {
		return web.FieldProblem("address_id", "is no number of an address: want one that the list of addresses shows")
	}
	removal.ID = id
	removed, err := a.transfers.store.RemoveAddress(r.Context(), removal, a.transfers.terms.Addresses.Delay)
	if err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "payout address removed", "userId", removal.UserID, "addressId", removed.ID, "chainId", removed.ChainID,
		"address", removed.Address, "by", removal.By, "reason", removal.Reason)
	web.Reply(w, r, http.StatusOK, viewOfAddress(removed))
	return nil
}

// addressOrder returns the calling operator and the user in the path.
func (a *App) addressOrder(r *http.Request) (operator string, user int64, err error) {
	if operator, err = a.operator(r); err != nil {
		return "", 0, err
	}
	user, ok := serve.Digits(r.PathValue("user_id"))
	if !ok || user == 0 {
		return "", 0, web.FieldProblem("user_id", "is no user id: want a whole number above 0")
	}
	return operator, user, nil
}

// addressOrderWithReason is [App.addressOrder] with the body's reason.
func (a *App) addressOrderWithReason(w http.ResponseWriter, r *http.Request) (operator string, user int64, reason string, err error) {
	if operator, user, err = a.addressOrder(r); err != nil {
		return "", 0, "", err
	}
	body, err := web.Decode[reasonRequest](w, r, a.MaxBodyBytes)
	if err != nil {
		return "", 0, "", err
	}
	reason, err = reasonOf(body.Reason)
	return operator, user, reason, err
}

// showAddresses shows operators a user's addresses, newest first, including the removed ones.
func (a *App) showAddresses(w http.ResponseWriter, r *http.Request) error {
	_, user, err := a.addressOrder(r)
	if err != nil {
		return err
	}
	return a.replyAddresses(w, r, user)
}

func (a *App) replyAddresses(w http.ResponseWriter, r *http.Request, user int64) error {
	found, err := a.transfers.store.Addresses(r.Context(), user, a.transfers.terms.Addresses.Delay, maxListedAddresses)
	if err != nil {
		return err
	}
	out := a.addressesOf(found)
	if b := found.Block; b != nil {
		out.Block = &blockView{At: b.At.UTC(), By: b.By, Reason: b.Reason}
	}
	web.Reply(w, r, http.StatusOK, out)
	return nil
}

// dropAddress removes an address from a user's list, by an operator.
func (a *App) dropAddress(w http.ResponseWriter, r *http.Request) error {
	operator, user, reason, err := a.addressOrderWithReason(w, r)
	if err != nil {
		return err
	}
	return a.replyRemoval(w, r, transfers.RemovalOfAddress{UserID: user, By: operator, Reason: reason})
}

// blockAddresses stops a user from adding addresses.
func (a *App) blockAddresses(w http.ResponseWriter, r *http.Request) error {
	operator, user, reason, err := a.addressOrderWithReason(w, r)
	if err != nil {
		return err
	}
	if err := a.transfers.store.BlockAddresses(r.Context(), user, operator, reason); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "payout addresses blocked", "userId", user, "by", operator, "reason", reason)
	return a.replyAddresses(w, r, user)
}

// unblockAddresses lets a user add addresses again.
func (a *App) unblockAddresses(w http.ResponseWriter, r *http.Request) error {
	operator, user, reason, err := a.addressOrderWithReason(w, r)
	if err != nil {
		return err
	}
	if mustPropose(r) {
		what := proposed{"unblock-addresses", idSubject("userId", user), reason, fmt.Sprintf("lets user %d add payout addresses again", user)}
		var now struct{ Block *struct{} }
		switch _, err := a.actState(r.Context(), what, &now); {
		case err != nil:
			return err
		case now.Block == nil:
			return transfers.ErrNotBlocked
		}
		return a.propose(w, r, what)
	}
	if err := a.transfers.store.LiftAddressBlock(r.Context(), user, operator, reason); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "payout addresses unblocked", "userId", user, "by", operator, "reason", reason)
	return a.replyAddresses(w, r, user)
}
