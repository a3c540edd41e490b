package money

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// acts are all acts on a transfer.
var acts = []page.Act{
	{Name: "cancel", Button: "Cancel the transfer", Danger: true, Do: page.ActOf((*client.Client).CancelTransfer),
		Meaning: "Ends a transfer that has not begun. The money stays where it is, and the user reads FAILED/CANCELLED. It cannot be undone; the user can ask again."},
	{Name: "resolve", Button: "Ask the ledger for its answer", Danger: true, Do: resolve,
		Meaning: "The ledger answers what it has stored about the operation. If it has stored nothing, it refuses the operation for ever, and the transfer goes on by that refusal. No operator sets a state."},
	{Name: "acknowledge", Button: "Silence its alerts", Do: acknowledge,
		Meaning: "Silences the alerts MON-001 and MON-002 for this transfer until a time, while its state stays the same. It moves no money."},
	{Name: "state", Button: "State whether the payout was paid", Do: statePayout,
		Meaning: "For a payout whose record cannot tell whether it was paid. A wrong statement can pay twice. It can be withdrawn until it takes effect, and not after that."},
	{Name: "withdraw", Button: "Withdraw the statement", Do: page.ActOf((*client.Client).WithdrawStatement),
		Meaning: "Takes back the statement in force, unless it has taken effect."},
}

// actsOn are the acts that the transfer's state allows.
func actsOn(w client.Why) (here []page.Act) {
	for _, a := range acts {
		if allows(w, a.Name) {
			here = append(here, on(w, a))
		}
	}
	return here
}

// on is the act with its texts for the transfer. To resolve the deposit of a payout cancels its payment.
func on(w client.Why, a page.Act) page.Act {
	if a.Name == "resolve" && pays(w) {
		a.Button = "Cancel the payment if it can still be cancelled"
		a.Meaning = "Cancels the payment of this payout if that is still possible; then it is never sent again, and the user gets the money back. If it has a nonce, the payment or its cancellation ends on the chain, and the payout goes on by that. It cannot be undone."
	}
	return a
}

// pays reports whether the transfer waits for its payment on a chain.
func pays(w client.Why) bool { return w.Payout != nil && w.State == client.TransferTargetPending }

// Pays reports whether the transfer waits for its payment on a chain.
func (f transferForm) Pays() bool { return pays(f.Why) }

// allows reports whether the state of the transfer allows the act. The API decides when the act is sent.
func allows(w client.Why, name string) bool {
	switch name {
	case "cancel":
		return w.State == client.TransferInit
	case "resolve":
		return stages[w.State].awaited != ""
	case "acknowledge":
		return stages[w.State].awaited != "" || w.State == client.TransferSourceDone
	case "state":
		return w.Payout != nil && w.State == client.TransferTargetPending && standing(w) == nil
	}
	return standing(w) != nil
}

// standing is the statement about a payout that can be withdrawn; nil: there is none.
func standing(w client.Why) *client.Statement {
	for i, s := range w.Statements {
		if s.Counts && s.ActedAt == nil && s.WithdrawnAt == nil {
			return &w.Statements[i]
		}
	}
	return nil
}

// transferForm is the form of an act on a transfer.
type transferForm struct {
	client.Why
	Act       page.Act
	Op        string // that the transfer waits for
	Forgotten bool   // the trading core may have forgotten the operation, so that a statement is needed
	Statement *client.Statement
	Until     string // the usual end of an acknowledgement
	Error     string // why the transfer was not read; "": it was
}

// actOnTransfer draws the form of an act on a transfer and carries it out. GET makes 1 call, POST 1, a refused POST 2.
func actOnTransfer(ctx context.Context, call page.Call) (page.View, error) {
	act, err := page.ActOfPath(call, acts, "There is no such act on a transfer. Open the transfer's page.")
	if err != nil {
		return page.View{}, err
	}
	id := call.PathValue("id")
	form := func(ctx context.Context, problem error) (page.View, error) {
		f := &transferForm{Until: time.Now().UTC().Add(time.Hour).Format(untilForm)}
		var err error
		f.Why, err = call.Admin.WhyTransfer(ctx, id)
		f.Error, f.Op, f.Statement = page.WhyUnread(err), stages[f.State].awaited, standing(f.Why)
		f.ReqID, f.Act = id, on(f.Why, act)
		f.Forgotten = strings.Contains(f.LastEvidence, "BEYOND_HORIZON") || client.CodeOf(problem) == "BEYOND_HORIZON"
		return page.View{Title: f.Act.Button, Body: "money/act", Data: f, WayOn: ways.After(problem)}, nil
	}
	return page.ServeForm(ctx, call, page.Path("transfer", id), form, act.On(call, id, page.Confirmation(id)))
}

func resolve(ctx context.Context, call page.Call, reqID, reason string) error {
	in := client.Resolve{Op: call.PostFormValue("op"), Reason: reason, Outcome: call.PostFormValue("outcome")}
	if text := strings.TrimSpace(call.PostFormValue("line")); text != "" {
		var err error
		if in.Line, err = strconv.ParseInt(text, 10, 64); err != nil || in.Line < 1 {
			return page.Refuse("line", "Give the number of the journal's line, a whole number above 0, or leave it empty.")
		}
	}
	_, err := call.Admin.ResolveTransfer(ctx, reqID, in)
	return err
}

// untilForm is the form of a time in the field "until", in UTC.
const untilForm = "2006-01-02T15:04"

func acknowledge(ctx context.Context, call page.Call, reqID, reason string) error {
	until, err := time.Parse(untilForm, call.PostFormValue("until"))
	if err != nil {
		return page.Refuse("until", "Give a date and time in UTC, such as 2026-01-02T15:04, at most 30 days ahead.")
	}
	return call.Admin.AcknowledgeTransfer(ctx, reqID, reason, until)
}

func statePayout(ctx context.Context, call page.Call, reqID, reason string) error {
	in := client.PayoutStatement{Reason: reason}
	switch call.PostFormValue("paid") {
	case "yes":
		in.Paid, in.TxHash = true, strings.TrimSpace(call.PostFormValue("txHash"))
		if in.TxHash == "" {
			return page.Refuse("txHash", "Give the hash of the transaction that paid. The nodes are asked whether it did.")
		}
	case "no":
		in.Then, in.OtherPayments = call.PostFormValue("then"), strings.Fields(call.PostFormValue("otherPayments"))
		if in.Then == "" {
			return page.Refuse("then", "Choose what follows: pay again, or refund.")
		}
		if text := strings.TrimSpace(call.PostFormValue("maxWindow")); text != "" {
			var err error
			if in.MaxWindow, err = strconv.Atoi(text); err != nil || in.MaxWindow < 1 {
				return page.Refuse("maxWindow", "Give a whole number above 0, or leave it empty where the database was not restored.")
			}
		}
		if err := page.Confirmed(call, page.Confirmation(reqID)); err != nil {
			return err
		}
	default:
		return page.Refuse("paid", "Choose whether the payout was paid.")
	}
	_, err := call.Admin.StatePayout(ctx, reqID, in)
	return err
}
