package main

import (
	"cmp"
	"crypto/rand"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

var transferStates = []string{"INIT", "SOURCE_PENDING", "SOURCE_DONE", "TARGET_PENDING", "COMPENSATING", "COMMITTED", "FAILED", "ROLLED_BACK"}

func (a *app) transferGroup() *cobra.Command {
	var w waitFlags
	var listed client.TransferQuery
	var found client.AllTransfersQuery
	var in client.Resolve
	forTime := 24 * time.Hour
	return group("transfer", "Move a user's money, and pay it out", a.transferCreate(), a.transferPayout(),
		show(a, user, "get REQ_ID", "Show a transfer or payout", (*client.Client).Transfer, a.printTransfer),
		a.call(user, "wait REQ_ID", "Wait until a transfer is COMMITTED (exit 0), FAILED or ROLLED_BACK (exit 1)", []option{w.timed()},
			func(q call) error { return a.waitTransfer(q, q.args[0], w) }),
		a.list(user, "list", "List the user's transfers and payouts, the newest first", []option{
			flag((*string)(&listed.State), "state", "only those in this `state`", transferStates...),
		}, func(q call) error {
			return printList(a, q.api.ListTransfers(q.ctx, listed), transferTitles, transferColumns)
		}),
		a.list(operator, "find", "List transfers and payouts of all users (operators)", []option{
			flag((*string)(&found.State), "state", "only in this `state`", transferStates...),
			flag(&found.UserID, "user", "only of this `user`"),
			flag(&found.Asset, "asset", "only of this `asset`"),
		}, func(q call) error {
			return printList(a, q.api.ListAllTransfers(q.ctx, found), transferTitles+" USER RETRIES", func(t client.OperatorsTransfer) []any {
				return append(transferColumns(t.Transfer), t.UserID, t.RetryCount)
			})
		}),
		show(a, operator, "why REQ_ID", "Explain where the money is, and what would advance it (operators)", (*client.Client).WhyTransfer, a.printWhyTransfer),
		actOn(a, "cancel REQ_ID", "End a transfer that has not begun (operators)", (*client.Client).CancelTransfer, a.printTransfer),
		a.act("resolve REQ_ID", "Ask the ledger for its answer to an operation (operators)", []option{
			required(&in.Op, "op", "the `operation` that it waits for: withdraw, deposit or refund", "withdraw", "deposit", "refund"),
			flag(&in.Outcome, "outcome", "after BEYOND_HORIZON alone: applied or not_applied", "applied", "not_applied"),
			flag(&in.Line, "line", "with --outcome: the `line` of the core's journal that proves it"),
		}, func(q call) error {
			in.Reason = a.why
			return a.printTransfer(q.api.ResolveTransfer(q.ctx, q.args[0], in))
		}),
		a.act("acknowledge REQ_ID", "Silence the alerts about a transfer in its present state (operators)", []option{flag(&forTime, "for", "for how long, at most 720h")},
			func(q call) error {
				err := q.api.AcknowledgeTransfer(q.ctx, q.args[0], a.why, time.Now().Add(forTime))
				return a.answer(err, "req_id", q.args[0], "alerts", "silenced while the state stays the same")
			}))
}

func (a *app) transferCreate() *cobra.Command {
	var in client.TransferRequest
	var w waitFlags
	c := a.call(user, "create", "Move money between two accounts of the user, once for each cid", []option{
		required(&in.From, "from", "the `account`: FUNDING or SPOT", "FUNDING", "SPOT"),
		required(&in.To, "to", "the other `account`", "FUNDING", "SPOT"),
		required(&in.Asset, "asset", "the asset's `name`"),
		required(&in.Amount, "amount", "a decimal `number`, such as 12.5"),
		flag(&in.CID, "cid", "your own `key` of the request; default: a new one"),
		w.optional(),
	}, func(q call) error {
		return a.request(q, w, &in.CID, func() (client.TransferResult, error) { return q.api.CreateTransfer(q.ctx, in) })
	})
	c.Example = "  fencepost transfer create --from FUNDING --to SPOT --asset USDT --amount 12.5 --cid move-1"
	return c
}

func (a *app) transferPayout() *cobra.Command {
	var in client.PayoutRequest
	var w waitFlags
	return a.call(user, "payout", "Pay to an external address, once for each cid", []option{
		required(&in.Asset, "asset", "the asset's `name`"),
		required(&in.Amount, "amount", "a decimal `number`, such as 0.1"),
		required(&in.Address, "address", "the `address` on the asset's chain"),
		flag(&in.CID, "cid", "your own `key` of the request; default: a new one"),
		w.optional(),
	}, func(q call) error {
		return a.request(q, w, &in.CID, func() (client.TransferResult, error) { return q.api.CreatePayout(q.ctx, in) })
	})
}

// request requests a transfer or payout, and prints the result or waits for its end. It makes a key where none was given, and prints
// it before the call.
func (a *app) request(q call, w waitFlags, cid *string, send func() (client.TransferResult, error)) error {
	a.keyed = true
	*cid = cmp.Or(*cid, rand.Text())
	a.note(note{Text: "cid " + *cid + ": after a lost answer, repeat the command with --cid " + *cid, CID: *cid})
	made, err := send()
	if err != nil {
		return err
	}
	if w.wait {
		a.note(note{Text: "req_id " + made.ReqID, ReqID: made.ReqID})
		return a.waitTransfer(q, made.ReqID, w)
	}
	err = a.answer(nil, "req_id", made.ReqID, "state", made.State, "code", made.Code, "message", made.Message, "reason", made.Reason)
	return cmp.Or(err, transferEnd(made.ReqID, made.State, made.Reason))
}

// transferEnd is how a transfer ended. One that has not ended was accepted.
func transferEnd(reqID string, state client.TransferState, why string) error {
	ended := state == client.TransferFailed || state == client.TransferRolledBack
	return endIf(ended, exitFailed, "%s is %s: %s", reqID, state, cmp.Or(why, "no reason was kept"))
}

func (a *app) printTransfer(t client.Transfer, err error) error {
	return a.answer(err, "req_id", t.ReqID, "state", t.State, "reason", t.Reason, "from", t.From, "to", t.To, "address", t.Address,
		"asset", t.Asset, "amount", t.Amount, "created", t.CreatedAt, "updated", t.UpdatedAt)
}

func (a *app) waitTransfer(q call, reqID string, w waitFlags) error {
	last, err := follow(q.ctx, a, w, "transfer wait", reqID, q.api.Transfer, func(t client.Transfer) (string, bool) {
		return string(t.State), t.State.Final()
	})
	return cmp.Or(a.printTransfer(last, err), transferEnd(reqID, last.State, last.Reason))
}

const transferTitles = "REQ_ID STATE FROM TO ASSET AMOUNT CREATED REASON"

func transferColumns(t client.Transfer) []any {
	return []any{t.ReqID, t.State, t.From, t.To, t.Asset, t.Amount, t.CreatedAt, t.Reason}
}

func (a *app) printWhyTransfer(w client.Why, err error) error {
	return a.answer(err, "req_id", w.ReqID, "user", w.UserID, "cid", w.CID, "state", w.State, "since", w.StateSince, "reason", w.Reason, "the money is", w.Where,
		"last evidence", w.LastEvidence, "waits for", w.WouldUnblock, "next try", w.NextTryAt, "retries", w.RetryCount, "proved by", w.ProvedBy)
}
