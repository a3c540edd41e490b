package admin

import (
	"fmt"
	"net/http"

	"github.com/fencepost/fencepost/functions/serve"
	usertransfers "github.com/fencepost/fencepost/functions/transfers"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/web"
)

// maxListedAddresses is the most addresses of a user in one answer to an operator.
const maxListedAddresses = 500

// pathUser returns the user in the path.
func pathUser(r *http.Request) (int64, error) {
	user, ok := serve.Digits(r.PathValue("user_id"))
	if !ok || user == 0 {
		return 0, web.FieldProblem("user_id", "is no user id: want a whole number above 0")
	}
	return user, nil
}

// showAddresses shows operators a user's addresses, newest first, including the removed ones.
func (a *TransferServer) showAddresses(w http.ResponseWriter, r *http.Request) error {
	user, err := pathUser(r)
	if err != nil {
		return err
	}
	return a.replyAddresses(w, r, user)
}

func (a *TransferServer) replyAddresses(w http.ResponseWriter, r *http.Request, user int64) error {
	found, err := a.Transfers.Store.Addresses(r.Context(), user, a.Transfers.Terms.Addresses.Delay, maxListedAddresses)
	if err != nil {
		return err
	}
	out := a.Transfers.AddressesOf(found)
	if b := found.Block; b != nil {
		out.Block = &usertransfers.BlockView{At: b.At.UTC(), By: b.By, Reason: b.Reason}
	}
	web.Reply(w, r, http.StatusOK, out)
	return nil
}

// dropAddress removes an address from a user's list, by an operator.
func (a *TransferServer) dropAddress(w http.ResponseWriter, r *http.Request, c call[int64, reasonRequest]) error {
	return a.Transfers.ReplyRemoval(w, r, transfers.RemovalOfAddress{UserID: c.on, By: c.by, Reason: c.reason})
}

// blockAddresses stops a user from adding addresses.
func (a *TransferServer) blockAddresses(w http.ResponseWriter, r *http.Request, c call[int64, reasonRequest]) error {
	if err := a.Transfers.Store.BlockAddresses(r.Context(), c.on, c.by, c.reason); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "payout addresses blocked", "userId", c.on, "by", c.by, "reason", c.reason)
	return a.replyAddresses(w, r, c.on)
}

// unblockAddresses lets a user add addresses again.
func (a *TransferServer) unblockAddresses(w http.ResponseWriter, r *http.Request, c call[int64, reasonRequest]) error {
	if mustPropose(r) {
		what := proposed{"unblock-addresses", idSubject("userId", c.on), c.reason, fmt.Sprintf("lets user %d add payout addresses again", c.on)}
		return proposeIf(a.Desk, w, r, what, func(now struct{ Block *struct{} }, _ bool) error {
			if now.Block == nil {
				return transfers.ErrNotBlocked
			}
			return nil
		})
	}
	if err := a.Transfers.Store.LiftAddressBlock(r.Context(), c.on, c.by, c.reason); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "payout addresses unblocked", "userId", c.on, "by", c.by, "reason", c.reason)
	return a.replyAddresses(w, r, c.on)
}
