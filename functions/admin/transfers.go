package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	usertransfers "github.com/fencepost/fencepost/functions/transfers"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

type transferCall[B any] = call[string, B] // about the transfer of a req_id

// listTransfers lists the transfers and payouts of all users, newest first.
func (a *TransferServer) listTransfers(r *http.Request, q map[string]string) (out serve.List, err error) {
	query, err := transferQuery(q)
	if err != nil {
		return out, err
	}
	page, next, err := a.Transfers.Store.ListAll(r.Context(), query)
	if errors.Is(err, transfers.ErrNoIndex) {
		return out, web.FieldProblem("asset", "no index has it alone: give user too, or a state other than COMMITTED")
	}
	listed := serve.ViewsOf(page, func(t transfer.Transfer) client.OperatorsTransfer {
		return client.OperatorsTransfer{Transfer: usertransfers.ViewOf(t), UserID: t.UserID, RetryCount: t.RetryCount}
	})
	return serve.List{Name: "transfers", Rows: listed, Next: serve.PageToken(next, serve.TransferPlace)}, err
}

func transferQuery(q map[string]string) (query transfers.ListQuery, err error) {
	query.Asset = q["asset"]
	if query.State, err = usertransfers.StateOf(q["state"]); err != nil {
		return query, err
	}
	if text := q["user"]; text != "" {
		user, ok := serve.Digits(text)
		if !ok || user == 0 {
			return query, web.FieldProblem("user", "is %.40q: want a user id, a whole number above 0", text)
		}
		query.UserID = user
	}
	if query.Before, err = timeOf("before", q["before"]); err != nil {
		return query, err
	}
	query.Size, query.After, err = serve.PageOf(q, serve.TransferPlace)
	return query, err
}

// cancelTransfer cancels a transfer that has not begun.
func (a *TransferServer) cancelTransfer(w http.ResponseWriter, r *http.Request, c transferCall[reasonRequest]) error {
	order := transfer.RequestedAction{ReqID: c.on, By: c.by, Reason: c.reason}
	t, err := a.Transfers.Coordinator.Cancel(r.Context(), order)
	if err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "transfer cancelled by an operator", "reqId", t.ReqID, "by", order.By, "reason", order.Reason)
	return web.Reply(w, r, http.StatusOK, usertransfers.ViewOf(t))
}

type resolveRequest struct {
	reasonRequest
	Op      transfer.Op    `json:"op"`
	Outcome serve.Optional `json:"outcome"` // applied or not_applied, for a call that the core has forgotten
	Line    uint64         `json:"line"`    // line of the core's journal that proves it; 0: a check of conservation proves it
}

// word returns what the operator states about a forgotten call, or nil.
func (b resolveRequest) word() (*transfer.OperatorStatement, error) {
	outcome, err := b.Outcome.Of("outcome")
	switch {
	case err != nil:
		return nil, err
	case outcome == "" && b.Line != 0:
		return nil, web.FieldProblem("line", "was given without outcome; send outcome applied or not_applied with it")
	case outcome == "":
		return nil, nil
	}
	for _, w := range []transfer.OperatorStatement{{Applied: true, Line: b.Line}, {Line: b.Line}} {
		if w.Outcome() == outcome {
			return &w, nil
		}
	}
	return nil, web.FieldProblem("outcome", "is %.40q: want applied or not_applied", outcome)
}

// resolveTransfer asks the ledger that a transfer waits for to state what it has stored, or to refuse
// the call for ever. The transfer continues from that answer.
func (a *TransferServer) resolveTransfer(w http.ResponseWriter, r *http.Request, c transferCall[resolveRequest]) error {
	order, body := transfer.RequestedAction{ReqID: c.on, By: c.by, Reason: c.reason}, c.body
	if !slices.Contains([]transfer.Op{transfer.Withdraw, transfer.Deposit, transfer.Refund}, body.Op) {
		return web.FieldProblem("op", "is %.40q: want withdraw, deposit or refund", body.Op)
	}
	var err error
	if order.Word, err = body.word(); err != nil {
		return err
	}
	if order.Word != nil && mustPropose(r) {
		if _, err := a.Transfers.Store.Load(r.Context(), order.ReqID); err != nil {
			return err
		}
		return a.propose(w, r, proposed{"transfer", map[string]any{"reqId": order.ReqID}, order.Reason,
			fmt.Sprintf("states that the %s of transfer %s was %s; money moves by it", body.Op, order.ReqID, order.Word.Outcome())})
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), usertransfers.DriveWithin)
	defer cancel()
	t, err := a.Transfers.Coordinator.Resolve(ctx, order, body.Op)
	if err != nil {
		return err
	}
	if err := a.Transfers.LeaveStep(r.Context(), t); err != nil {
		a.Log.WarnContext(r.Context(), "no step task: the sweep will find the transfer", "reqId", t.ReqID, "error", err.Error())
	}
	return web.Reply(w, r, http.StatusOK, usertransfers.ViewOf(t))
}

type acknowledgeRequest struct {
	reasonRequest
	Until string `json:"until"` // RFC 3339
}

// acknowledge silences MON-001 and MON-002 until a given time, for a transfer that an operator handles
// by hand.
func (a *TransferServer) acknowledge(w http.ResponseWriter, r *http.Request, c transferCall[acknowledgeRequest]) error {
	order, body := transfer.RequestedAction{ReqID: c.on, By: c.by, Reason: c.reason}, c.body
	until, err := time.Parse(time.RFC3339, body.Until)
	if err != nil {
		return web.FieldProblem("until", "is %.40q: want a time as in RFC 3339, such as 2026-01-02T15:04:05Z", body.Until)
	}
	if err := a.Transfers.Store.Acknowledge(r.Context(), order, until); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "alert of a transfer acknowledged", "reqId", order.ReqID, "by", order.By, "why", order.Reason, "until", until.UTC())
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// pathUser returns the user in the path.
func pathUser(r *http.Request) (int64, error) {
	user, ok := serve.Digits(r.PathValue("user_id"))
	if !ok || user == 0 {
		return 0, web.FieldProblem("user_id", "is no user id: want a whole number above 0")
	}
	return user, nil
}

// listAddresses shows operators a page of a user's addresses, newest first, including the removed ones.
func (a *TransferServer) listAddresses(r *http.Request, user int64, q map[string]string) (out usertransfers.Addresses, err error) {
	var found transfers.UserAddresses
	page, next, err := serve.Page(q, serve.AddressPlace, func(below int64, limit int) (_ []transfers.Address, err error) {
		found, err = a.Transfers.Store.Addresses(r.Context(), user, a.Transfers.Terms.Addresses.Delay, limit, below)
		return found.List, err
	}, func(one transfers.Address) int64 { return one.ID })
	found.List = page
	out = a.Transfers.AddressesOf(found)
	out.NextPageToken = next
	if b := found.Block; b != nil {
		out.Block = &client.AddressBlock{At: b.At.UTC(), By: b.By, Reason: b.Reason}
	}
	return out, err
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
	return serve.Reply(w, r)(a.listAddresses(r, c.on, nil))
}

// unblockAddresses lets a user add addresses again.
func (a *TransferServer) unblockAddresses(w http.ResponseWriter, r *http.Request, c call[int64, reasonRequest]) error {
	if mustPropose(r) {
		what := proposed{"unblock-addresses", idSubject("userId", c.on), c.reason, fmt.Sprintf("lets user %d add payout addresses again", c.on)}
		return proposeIf(a.Desk, w, r, what, transfers.ErrNotBlocked, func(now struct{ Block *struct{} }) error {
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
	return serve.Reply(w, r)(a.listAddresses(r, c.on, nil))
}
