package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/fencepost/fencepost/functions/serve"
	usertransfers "github.com/fencepost/fencepost/functions/transfers"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// account is the subject of calls about a user's accounts in an asset.
type account struct {
	user  int64
	asset transfer.Asset
}

func (a *TransferServer) pathAccount(r *http.Request) (of account, err error) {
	if of.user, err = userOf(r.PathValue("user")); err != nil {
		return of, err
	}
	name, err := pathAsset(r)
	if err != nil {
		return of, err
	}
	asset, err := a.Transfers.Store.Asset(r.Context(), name)
	if err == nil && asset == nil {
		err = web.NewProblem(web.NotFound, "no asset has that name: GET /admin/v1/assets lists them")
	}
	if err != nil {
		return of, err
	}
	of.asset = *asset
	return of, nil
}

// userOf reads a user id.
func userOf(text string) (int64, error) {
	user, ok := serve.Digits(text)
	if !ok || user == 0 {
		return 0, web.FieldProblem("user", "is %.40q: want the user's id, a whole number above 0", text)
	}
	return user, nil
}

// listAccounts lists a user's accounts, one line for each asset.
func (a *TransferServer) listAccounts(r *http.Request, q map[string]string) (out serve.List, err error) {
	user, err := userOf(q["user"])
	if err != nil {
		return out, err
	}
	return a.Transfers.AccountPage(r, user, q)
}

// maxActs is how many acts an account shows.
const maxActs = 20

// The states of an act.
const (
	actDone    = "DONE"
	actRefused = "REFUSED"
	actPending = "PENDING"
)

func viewOfAct(a transfer.Act) client.AccountAct {
	v := client.AccountAct{
		ActID: a.ID, Kind: string(a.Kind), State: actDone, ID: a.RequestID, UserID: a.UserID, Asset: a.Asset, Account: string(a.Ledger),
		Status: a.Status, Funding: a.Funding, Trading: a.Trading, By: a.By, Reason: a.Reason, ApprovedBy: a.ApprovedBy, At: a.At.UTC(),
	}
	if a.Kind != transfer.ActStatus {
		v.Amount = transfer.FormatUnits(a.Units, a.Precision)
	}
	switch {
	case a.Open():
		v.State, v.WaitsFor = actPending, cmp.Or(a.Unknown, "the first attempt has not ended")
	case a.Kind == transfer.ActStatus && (a.Trading == transfer.ActForgotten || a.Trading == transfer.ActKeptDisabled):
		v.State, v.Refusal = actRefused, a.Trading
	case a.Kind != transfer.ActStatus && a.Answer() != transfer.ActApplied:
		v.State, v.Refusal = actRefused, a.Answer()
	}
	return v
}

// viewForService is viewOfAct for the deposit service, which learns nothing of operators.
func viewForService(a transfer.Act) client.AccountAct {
	v := viewOfAct(a)
	if !a.OfService {
		v.By, v.Reason, v.ApprovedBy = hiddenOperator, hiddenOperator, ""
	}
	return v
}

// hiddenOperator stands for an operator's name and reason.
const hiddenOperator = "an operator"

// detail returns the accounts in both ledgers, and the newest acts on them.
func (a *TransferServer) detail(r *http.Request, of account) (out client.AccountDetail, err error) {
	ctx := r.Context()
	views, err := a.Transfers.Accounts(ctx, of.user, []transfer.Asset{of.asset})
	if err != nil {
		return out, err
	}
	acts, err := a.Transfers.Store.Acts(ctx, of.user, of.asset.ID, maxActs)
	if err != nil {
		return out, err
	}
	out = client.AccountDetail{Account: views[0], Acts: serve.ViewsOf(acts, viewOfAct)}
	out.Wanted, err = a.Transfers.Store.WantedStatus(ctx, of.user, of.asset.ID)
	out.Agreed = usertransfers.HasStatus(out.Funding, out.Wanted) && usertransfers.HasStatus(out.Spot, out.Wanted)
	return out, err
}

// moneyRequest is a deposit or withdrawal. With line or outcome the core is not called: see [transfer.MoneyOrder].
type moneyRequest struct {
	client.Money
	Account serve.Optional `json:"account"`
	Outcome serve.Optional `json:"outcome"`
}

// DepositService is the log message before each deposit of the deposit service.
const DepositService = "the deposit service calls"

// booker returns who books. A deposit can also come from the deposit service, whose daily limit stands
// in place of a second operator.
func (a *TransferServer) booker(r *http.Request, kind transfer.ActKind) (by string, service bool, err error) {
	if kind == transfer.ActDeposit && callOf(r).approved == nil {
		v, err := a.AdminViewer(r)
		if err != nil {
			return "", false, err
		}
		if v.Deposits {
			a.Log.InfoContext(r.Context(), DepositService, "caller", v.Caller, "path", r.URL.Path, "requestUid", web.RequestID(r.Context()))
			return v.Caller, true, nil
		}
	}
	by, err = a.operator(r)
	return by, false, err
}

// asBooker serves the deposits or the withdrawals from and to the outside.
func (a *TransferServer) asBooker(kind transfer.ActKind) serve.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		by, service, err := a.booker(r, kind)
		if err != nil {
			return err
		}
		of, err := a.pathAccount(r)
		if err != nil {
			return err
		}
		body, err := web.Decode[moneyRequest](w, r, a.MaxBodyBytes)
		if err != nil {
			return err
		}
		order, err := moneyOrder(of, body)
		if err != nil {
			return err
		}
		order.Kind, order.By, order.OfService = kind, by, service
		if service && order.Ends() {
			return web.FieldProblem("line", "and outcome are for operators: leave them out")
		}
		if mustPropose(r) && !service {
			return a.proposeMoney(w, r, of, order)
		}
		return a.book(w, r, order)
	}
}

func moneyOrder(of account, body moneyRequest) (o transfer.MoneyOrder, err error) {
	o = transfer.MoneyOrder{RequestID: body.ID, UserID: of.user, AssetID: of.asset.ID}
	if err := wire.CheckReqID(body.ID); err != nil {
		return o, web.FieldProblem("id", "is required: 1 to 128 printable ASCII characters without spaces, your own key; a repeat with it books once")
	}
	if o.Units, err = unitsOf("amount", body.Amount, of.asset.Precision); err != nil {
		return o, err
	}
	ledger, err := body.Account.Of("account")
	if err != nil {
		return o, err
	}
	if o.Ledger = transfer.AccountType(cmp.Or(ledger, string(transfer.Funding))); o.Ledger != transfer.Funding && o.Ledger != transfer.Spot {
		return o, web.FieldProblem("account", "is %.40q: want FUNDING or SPOT", ledger)
	}
	if err := setEnding(&o, body); err != nil {
		return o, err
	}
	o.Reason, err = reasonOf(body.Reason)
	return o, err
}

// notApplied is the outcome of a deposit or withdrawal that an operator states.
const notApplied = "not_applied"

// setEnding sets how the order ends an act, if the body says so.
func setEnding(o *transfer.MoneyOrder, body moneyRequest) error {
	outcome, err := body.Outcome.Of("outcome")
	switch {
	case err != nil:
		return err
	case outcome != "" && outcome != notApplied:
		return web.FieldProblem("outcome", "is %.40q: want not_applied, or line in its place for one that was applied or refused", outcome)
	case outcome != "" && body.Line != 0:
		return web.FieldProblem("line", "has the answer: leave outcome out")
	}
	o.Line, o.NotApplied = body.Line, outcome != ""
	if o.Ends() && o.Ledger != transfer.Spot {
		return web.FieldProblem("account", "is %s: line and outcome are of the trading core's journal, and go with SPOT", o.Ledger)
	}
	return nil
}

// proposeMoney proposes the order, or answers with the act that is stored under its id.
func (a *TransferServer) proposeMoney(w http.ResponseWriter, r *http.Request, of account, o transfer.MoneyOrder) error {
	stored, err := a.Transfers.Store.ActOf(r.Context(), o)
	switch {
	case err == nil && (!o.Ends() || !stored.Open()):
		return replyAct(w, r, stored, viewOfAct(stored))
	case err != nil && !errors.Is(err, transfer.ErrNoAct):
		return err
	}
	text := "books %s %s of user %d from outside into %s, under the id %s"
	if o.Kind == transfer.ActWithdrawal {
		text = "takes %s %s of user %d to the outside from %s, under the id %s"
	}
	effect := fmt.Sprintf(text, transfer.FormatUnits(o.Units, of.asset.Precision), of.asset.Name, o.UserID, o.Ledger, o.RequestID)
	if o.Ends() {
		e, err := a.Transfers.Acts.EndingOf(r.Context(), o)
		if err != nil {
			return err
		}
		effect += ": only stores " + describeEnding(e)
	}
	return a.propose(w, r, proposed{"money", map[string]any{"kind": o.Kind, "id": o.RequestID, "userId": strconv.FormatInt(o.UserID, 10), "asset": of.asset.Name}, o.Reason, effect})
}

// describeEnding tells the second operator what the evidence is.
func describeEnding(e transfer.Ending) string {
	if e.Line != 0 {
		return fmt.Sprintf("that the core's answer is %s, by line %d of its journal", e.Answer, e.Line)
	}
	text := fmt.Sprintf("that the core has not applied it and never will: it has forgotten the id, and lines %d to %d of its journal do not have it", e.ReadAfter+1, e.ReadUpto)
	if e.ReadAfter != 0 {
		text += "; the proposer says that an earlier call has read those before"
	}
	return text
}

// book carries the order out. It goes on after the caller has disconnected.
func (a *TransferServer) book(w http.ResponseWriter, r *http.Request, o transfer.MoneyOrder) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), usertransfers.DriveWithin)
	defer cancel()
	act, err := a.Transfers.Acts.Book(ctx, o)
	switch {
	case err != nil && act.ID == 0:
		return err
	case err != nil: // it is stored, and the sweep continues it: another id would book twice
		a.Log.ErrorContext(r.Context(), "the answer to a deposit or withdrawal could not be stored", "actId", act.ID, "error", err.Error())
	}
	said := "a deposit or withdrawal is stored"
	if act.Answer() == transfer.ActApplied && !o.Ends() {
		said = "money booked from or to the outside"
	}
	a.Log.WarnContext(r.Context(), said, "actId", act.ID, "kind", act.Kind, "id", act.RequestID, "userId", act.UserID, "asset", act.Asset,
		"units", act.Units, "ledger", act.Ledger, "answer", act.Answer(), "line", o.Line, "notApplied", o.NotApplied, "by", o.By, "reason", o.Reason)
	if o.OfService {
		return replyAct(w, r, act, viewForService(act))
	}
	return replyAct(w, r, act, viewOfAct(act))
}

// replyAct answers 200 if the ledger has booked, 202 if its answer is not known, and 422 with its
// reason if it has refused for ever.
func replyAct(w http.ResponseWriter, r *http.Request, act transfer.Act, v client.AccountAct) error {
	switch v.State {
	case actDone:
		return web.Reply(w, r, http.StatusOK, v)
	case actPending:
		return web.Reply(w, r, http.StatusAccepted, v)
	}
	p := &web.Problem{
		Code:    web.Code{Name: act.Answer(), Status: http.StatusUnprocessableEntity},
		Detail:  "the ledger has refused it for ever under this id; nothing was booked: see the code, and send a new id to try again",
		Members: map[string]any{"actId": v.ActID, "id": v.ID, "state": v.State},
	}
	switch act.Answer() {
	case transfer.ActTaken:
		p.Code = web.Code{Name: "ID_TAKEN", Status: http.StatusUnprocessableEntity}
		p.Detail = "the core's journal has another user, asset or amount under this id; nothing was booked for this one: find out which is right before you send a new id"
	case transfer.ActNotApplied:
		p.Code = web.Code{Name: "NOT_APPLIED", Status: http.StatusUnprocessableEntity}
		p.Detail = "the core has forgotten this id, and its journal does not have it; nothing was booked, and nothing will be: send a new id to book it"
	}
	return p
}

type statusRequest struct {
	reasonRequest
	Status string `json:"status"`
}

// setAccountStatus freezes, disables or activates a user's accounts in both ledgers. The answer shows
// each ledger's state: 200 if they agree, else 202.
func (a *TransferServer) setAccountStatus(w http.ResponseWriter, r *http.Request, c call[account, statusRequest]) error {
	if !slices.Contains([]string{transfer.StatusActive, transfer.StatusFrozen, transfer.StatusDisabled}, c.body.Status) {
		return web.FieldProblem("status", "is %.40q: want ACTIVE, FROZEN or DISABLED", c.body.Status)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), usertransfers.DriveWithin)
	defer cancel()
	order := transfer.StatusOrder{UserID: c.on.user, AssetID: c.on.asset.ID, Status: c.body.Status, By: c.by, Reason: c.reason, OnlyNarrower: mustPropose(r)}
	act, err := a.Transfers.Acts.SetStatus(ctx, order)
	if errors.Is(err, transfer.ErrWider) {
		return a.propose(w, r, proposed{"account-status",
			map[string]any{"userId": strconv.FormatInt(c.on.user, 10), "assetId": strconv.Itoa(int(c.on.asset.ID))}, c.reason,
			fmt.Sprintf("sets the accounts of user %d in %s to %s", c.on.user, c.on.asset.Name, c.body.Status)})
	}
	if err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "account status set", "actId", act.ID, "userId", act.UserID, "asset", act.Asset, "status", act.Status,
		"funding", act.Funding, "trading", act.Trading, "by", c.by, "reason", c.reason)
	out, err := a.detail(r.WithContext(ctx), c.on)
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if out.Agreed {
		status = http.StatusOK
	}
	return web.Reply(w, r, status, out)
}
