package transfers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// RouteTransfer serves the function transfer.
func (a *Server) RouteTransfer(mux *web.Mux) {
	a.handleTransfer(mux, "POST /api/v1/internal_transfer", a.DeliverAfter(serve.By(a.user, serve.WithBody(a.Base, a.postTransfer))))
	a.handleTransfer(mux, "GET /api/v1/internal_transfer/{req_id}", serve.Show(a.user, a.getTransfer))
	a.handleTransfer(mux, "GET /api/v1/internal_transfer", serve.ShowList(a.user, a.listTransfers, "state"))
	a.handleTransfer(mux, "POST /api/v1/payout", a.DeliverAfter(serve.By(a.user, serve.WithBody(a.Base, a.postPayout))))
	a.handleTransfer(mux, "POST /api/v1/payout_address", serve.By(a.user, serve.WithBody(a.Base, a.addAddress)))
	a.handleTransfer(mux, "GET /api/v1/payout_address", serve.Show(a.user, a.listAddresses))
	a.handleTransfer(mux, "DELETE /api/v1/payout_address/{address_id}", serve.By(a.user, a.removeAddress))
	a.handleTransfer(mux, "GET /api/v1/accounts", serve.ShowList(a.user, a.AccountPage, "asset"))
	a.HandleInternal(mux, "transfer", withProblems(a.DeliverAfter(serve.Task(a.Base, a.stepTransfer))))
}

// handleTransfer is [serve.Base.Handle] for calls that answer with the errors of transfers.
func (a *Server) handleTransfer(mux *web.Mux, pattern string, h serve.Handler) {
	a.Handle(mux, "transfer", pattern, withProblems(h))
}

// withProblems answers with the errors of transfers.
func withProblems(h serve.Handler) serve.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := h(w, r); err != nil {
			web.Fail(w, r, Problem(err))
		}
		return nil
	}
}

type transferRequest struct {
	client.TransferRequest
	CID    *string `json:"cid"`
	UserID *int64  `json:"user_id"`
}

// postTransfer stores a transfer, once for each cid, and drives it as far as possible within the
// request. It answers 200 COMMITTED, 422 if the transfer failed, or 202 PENDING. It continues after
// the caller has disconnected.
func (a *Server) postTransfer(w http.ResponseWriter, r *http.Request, user int64, body transferRequest) error {
	req, err := newRequest(r, user, body.UserID, body.CID, body.Asset, body.Amount)
	if err != nil {
		return err
	}
	req.From, req.To = transfer.AccountType(body.From), transfer.AccountType(body.To)
	return a.submit(w, r, req, nil)
}

// newRequest returns the user's request under a new req_id. It does not check asset and amount: a
// stored transfer with the same cid must answer first.
func newRequest(r *http.Request, user int64, named *int64, cid *string, asset, amount string) (transfer.Request, error) {
	if named != nil && *named != user {
		return transfer.Request{}, &web.Problem{Code: web.Forbidden, Field: "user_id", Detail: "is not the user that the token is for"}
	}
	req := transfer.Request{UserID: user, Asset: asset}
	req.Amount, _ = transfer.ParseAmount(amount)
	var err error
	if req.CID, err = cidOf(r, cid); err != nil {
		return req, err
	}
	id, err := ulid.New(ulid.Timestamp(time.Now()), rand.Reader)
	if err != nil {
		return req, fmt.Errorf("make a req_id: %w", err)
	}
	req.ReqID = id.String()
	return req, nil
}

// cidOf returns the client's own key from the body or the header; "" means that there is none.
func cidOf(r *http.Request, inBody *string) (string, error) {
	cid := ""
	if inBody != nil {
		if cid = *inBody; cid == "" {
			return "", checkCID(cid)
		}
	}
	cid, err := serve.KeyOf(r, "cid", cid)
	if err != nil || cid == "" {
		return "", err
	}
	return cid, checkCID(cid)
}

// checkCID checks a client's own key: 1 to 64 characters, compared exactly.
func checkCID(cid string) error {
	const most = 64
	switch n := utf8.RuneCountInString(cid); {
	case n == 0:
		return web.FieldProblem("cid", "is empty: leave it out, or give 1 to %d characters", most)
	case n > most:
		return web.FieldProblem("cid", "has %d characters: at most %d", n, most)
	}
	for _, c := range cid {
		if unicode.IsControl(c) {
			return web.FieldProblem("cid", "has the control character %U: use printable text", c)
		}
	}
	return nil
}

// user returns the user of the token: its subject, a positive whole number in its only decimal form.
func (a *Server) user(r *http.Request) (int64, error) {
	id, err := a.Users.Authenticate(r)
	if err != nil {
		return 0, err
	}
	user, ok := serve.Digits(id.Subject)
	if !ok || user == 0 {
		const reason = "the token's subject is no user id"
		return 0, &web.Problem{Code: web.Unauthorized, Detail: reason, Cause: fmt.Errorf("subject %.40q", id.Subject),
			Header: http.Header{"Www-Authenticate": {`Bearer error="invalid_token", error_description="` + reason + `"`}}}
	}
	return user, a.AtWork.Enter(r, "user "+id.Subject)
}

// DriveWithin is how long a request drives its transfer. After that it answers PENDING, and a task
// makes the next step.
const DriveWithin = 20 * time.Second

// submit stores and drives the request, and answers it. A hindrance is the caller's reason why the
// request cannot be stored.
func (a *Server) submit(w http.ResponseWriter, r *http.Request, req transfer.Request, hindrance error) error {
	detached, cancel := web.Detached(r.Context())
	defer cancel()
	ctx, cancel := context.WithTimeout(detached, DriveWithin)
	defer cancel()
	a.Points.At("transfer.received")
	created, err := a.Coordinator.Submit(ctx, req, a.Terms)
	if hindrance != nil && errors.Is(err, transfer.ErrMoved) {
		return hindrance
	}
	if err != nil {
		return notCreated(req.ReqID, err)
	}
	a.Points.At("transfer.driven")
	if err := a.LeaveStep(r.Context(), created.Transfer); err != nil {
		a.Log.WarnContext(ctx, "no step task: the sweep will find the transfer", "reqId", created.ReqID, "error", err.Error())
	}
	a.Points.At("transfer.enqueued")
	return answerTransfer(w, r, created)
}

// answerTransfer answers a post with its result. It answers 200 for a transfer found under its cid,
// even if that failed.
func answerTransfer(w http.ResponseWriter, r *http.Request, c transfer.Created) error {
	out := client.TransferResult{
		TransferID: c.ID, ReqID: c.ReqID, From: string(c.Type.Source()), To: string(c.Type.Target()), State: client.TransferPending,
		Message: "accepted, and not ended yet: GET /api/v1/internal_transfer/{req_id} shows its state",
	}
	status := http.StatusAccepted
	if c.State.Terminal() {
		status, out.State, out.Message = http.StatusOK, client.TransferState(c.State.String()), "the money has arrived"
	}
	failed := c.State == transfer.Failed || c.State == transfer.RolledBack
	if failed {
		out.Message = failureText(c.Transfer)
	}
	switch {
	case !c.New:
		status, out.Code, out.Message = http.StatusOK, string(transfer.DuplicateRequest), "this cid was used before, with this result: "+out.Message
		if failed {
			out.Reason = string(c.Reason)
		}
	case failed:
		return failedProblem(c.Transfer, out)
	}
	return web.Reply(w, r, status, out)
}

// ViewOf is what its user and operators are shown of a transfer.
func ViewOf(t transfer.Transfer) client.Transfer {
	v := client.Transfer{
		TransferID: t.ID, ReqID: t.ReqID, From: string(t.Type.Source()), To: string(t.Type.Target()), Asset: t.Asset, Amount: t.Amount(),
		State: client.TransferState(t.State.String()), Reason: string(t.Reason), CreatedAt: t.CreatedAt.UTC(), UpdatedAt: t.UpdatedAt.UTC(),
	}
	if t.Payout != nil {
		v.Address = t.Payout.Address
	}
	return v
}

// getTransfer shows a transfer to its owner.
func (a *Server) getTransfer(r *http.Request, user int64) (out client.Transfer, err error) {
	reqID, err := PathReqID(r)
	if err != nil {
		return out, err
	}
	t, err := a.Store.Find(r.Context(), reqID, user)
	if err != nil {
		return out, err
	}
	return ViewOf(t), nil
}

// PathReqID returns the req_id in the path. A malformed one is answered as not found.
func PathReqID(r *http.Request) (string, error) {
	id, err := ulid.ParseStrict(r.PathValue("req_id"))
	if err != nil || id.String() != r.PathValue("req_id") {
		return "", transfer.ErrNotFound
	}
	return id.String(), nil
}
