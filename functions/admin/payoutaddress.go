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

// addressOrder returns the calling operator and the user in the path.
func (a *TransferServer) addressOrder(r *http.Request) (operator string, user int64, err error) {
	if operator, err = a.operator(r); err != nil {
		return "", 0, err
	}
	user, ok := serve.Digits(r.PathValue("user_id"))
	if !ok || user == 0 {
		return "", 0, web.FieldProblem("user_id", "is no user id: want a whole number above 0")
	}
	return operator, user, nil
}

// addressOrderWithReason is [TransferServer.addressOrder] with the body's reason.
func (a *TransferServer) addressOrderWithReason(w http.ResponseWriter, r *http.Request) (operator string, user int64, reason string, err error) {
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
func (a *TransferServer) showAddresses(w http.ResponseWriter, r *http.Request) error {
	_, user, err := a.addressOrder(r)
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
func (a *TransferServer) dropAddress(w http.ResponseWriter, r *http.Request) error {
	operator, user, reason, err := a.addressOrderWithReason(w, r)
	if err != nil {
		return err
	}
	return a.Transfers.ReplyRemoval(w, r, transfers.RemovalOfAddress{UserID: user, By: operator, Reason: reason})
}

// blockAddresses stops a user from adding addresses.
func (a *TransferServer) blockAddresses(w http.ResponseWriter, r *http.Request) error {
	operator, user, reason, err := a.addressOrderWithReason(w, r)
	if err != nil {
		return err
	}
	if err := a.Transfers.Store.BlockAddresses(r.Context(), user, operator, reason); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "payout addresses blocked", "userId", user, "by", operator, "reason", reason)
	return a.replyAddresses(w, r, user)
}

// unblockAddresses lets a user add addresses again.
func (a *TransferServer) unblockAddresses(w http.ResponseWriter, r *http.Request) error {
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
	if err := a.Transfers.Store.LiftAddressBlock(r.Context(), user, operator, reason); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "payout addresses unblocked", "userId", user, "by", operator, "reason", reason)
	return a.replyAddresses(w, r, user)
}
