package transfers

import (
	"net/http"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

type addressRequest struct{ client.NewPayoutAddress }

// AddressView is an address without the members of a removal, while it is on the list.
type AddressView struct {
	client.PayoutAddress
	RemovedAt    *time.Time `json:"removed_at,omitempty"`
	RemovedBy    string     `json:"removed_by,omitempty"`
	RemoveReason string     `json:"remove_reason,omitempty"`
}

func viewOfAddress(a transfers.Address) AddressView {
	shown := client.PayoutAddress{AddressID: a.ID, ChainID: a.ChainID, Address: a.Address, AddedAt: a.AddedAt.UTC(), UsableFrom: a.UsableFrom.UTC()}
	v := AddressView{PayoutAddress: shown, RemovedBy: a.RemovedBy, RemoveReason: a.RemoveReason}
	if a.RemovedAt != nil {
		v.RemovedAt = new(a.RemovedAt.UTC())
	}
	return v
}

// addAddress adds an address to the user's list. An address that is already listed is returned
// unchanged, and its waiting time does not restart.
func (a *Server) addAddress(w http.ResponseWriter, r *http.Request, user int64, body addressRequest) error {
	to, err := payout.ParseAddress(a.Families, body.Address)
	if err != nil {
		return noAddressProblem()
	}
	asset, err := a.Store.Asset(r.Context(), body.Asset)
	if err != nil {
		return err
	}
	if asset == nil {
		return transfer.RefusedError{Reason: transfer.InvalidAsset}
	}
	// An address that no payout of the asset can use is refused now.
	p, err := payout.Prepare(a.Families, *asset, asset.MinUnits, to.String(), a.PayoutMaxGas)
	if err != nil {
		return err
	}
	added, isNew, err := a.Store.AddAddress(r.Context(), user, p.ChainID, p.Address, a.Terms.Addresses.Delay)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if isNew {
		status = http.StatusCreated
		a.Log.InfoContext(r.Context(), "payout address added", "userId", user, "addressId", added.ID, "chainId", added.ChainID,
			"address", added.Address, "usableFrom", added.UsableFrom.UTC())
	}
	return web.Reply(w, r, status, viewOfAddress(added))
}

type Addresses struct {
	Required  bool                 `json:"required"` // payouts may go only to listed addresses
	Addresses []AddressView        `json:"addresses"`
	Block     *client.AddressBlock `json:"block,omitempty"` // shown only to operators

	NextPageToken string `json:"nextPageToken,omitempty"` // for operators; users have one page
}

// listAddresses shows users their listed addresses.
func (a *Server) listAddresses(r *http.Request, user int64) (Addresses, error) {
	found, err := a.Store.Addresses(r.Context(), user, a.Terms.Addresses.Delay, 0, 0)
	return a.AddressesOf(found), err
}

func (a *Server) AddressesOf(found transfers.UserAddresses) Addresses {
	return Addresses{Required: a.Terms.Addresses.Required, Addresses: serve.ViewsOf(found.List, viewOfAddress)}
}

// removeAddress removes an address from the user's list at once.
func (a *Server) removeAddress(w http.ResponseWriter, r *http.Request, user int64) error {
	return a.ReplyRemoval(w, r, transfers.RemovalOfAddress{UserID: user, By: transfers.ByUser})
}

// ReplyRemoval removes the address in the path and answers with it.
func (a *Server) ReplyRemoval(w http.ResponseWriter, r *http.Request, removal transfers.RemovalOfAddress) error {
	id, ok := serve.Digits(r.PathValue("address_id"))
	if !ok {
		return web.FieldProblem("address_id", "is no number of an address: want one that the list of addresses shows")
	}
	removal.ID = id
	removed, err := a.Store.RemoveAddress(r.Context(), removal, a.Terms.Addresses.Delay)
	if err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "payout address removed", "userId", removal.UserID, "addressId", removed.ID, "chainId", removed.ChainID,
		"address", removed.Address, "by", removal.By, "reason", removal.Reason)
	return web.Reply(w, r, http.StatusOK, viewOfAddress(removed))
}
