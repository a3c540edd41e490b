package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

var transferStates = []string{"INIT", "SOURCE_PENDING", "SOURCE_DONE", "TARGET_PENDING", "COMPENSATING", "COMMITTED", "FAILED", "ROLLED_BACK"}

func (a *app) transferGroup() *cobra.Command {
	return group("transfer", "Move a user's money, and pay it out", a.transferCreate(), a.transferPayout(),
		show(a, user, "get REQ_ID", "Show a transfer or payout", (*client.Client).Transfer, a.printTransfer),
		a.transferWait(), a.transferList(), a.transferFind(),
		show(a, operator, "why REQ_ID", "Explain where the money is, and what would advance it (operators)", (*client.Client).WhyTransfer, a.printWhyTransfer),
		act(a, "cancel REQ_ID", "End a transfer that has not begun (operators)", (*client.Client).CancelTransfer, a.printTransfer),
		a.transferResolve(), a.transferAcknowledge())
}

func (a *app) transferCreate() *cobra.Command {
	var in client.TransferRequest
	var w waitFlags
	c := a.call(user, "create", "Move money between two accounts of the user, once for each cid", 0, func(ctx context.Context, api *client.Client, _ []string) error {
		a.useCID(&in.CID)
		made, err := api.CreateTransfer(ctx, in)
		return a.created(ctx, api, w, made, err)
	})
	c.Example = "  fencepost transfer create --from FUNDING --to SPOT --asset USDT --amount 12.5 --cid move-1"
	flags := c.Flags()
	flags.StringVar(&in.From, "from", "", "the `account`: FUNDING or SPOT")
	flags.StringVar(&in.To, "to", "", "the other `account`")
	flags.StringVar(&in.Asset, "asset", "", "the asset's `name`")
	flags.StringVar(&in.Amount, "amount", "", "a decimal `number`, such as 12.5")
	flags.StringVar(&in.CID, "cid", "", "your own `key` of the request; default: a new one")
	w.add(c, true)
	require(c, "from", "to", "asset", "amount")
	values(c, "from", "FUNDING", "SPOT")
	values(c, "to", "FUNDING", "SPOT")
	return c
}

func (a *app) transferPayout() *cobra.Command {
	var in client.PayoutRequest
	var w waitFlags
	c := a.call(user, "payout", "Pay to an external address, once for each cid", 0, func(ctx context.Context, api *client.Client, _ []string) error {
		a.useCID(&in.CID)
		made, err := api.CreatePayout(ctx, in)
		return a.created(ctx, api, w, made, err)
	})
	flags := c.Flags()
	flags.StringVar(&in.Asset, "asset", "", "the asset's `name`")
	flags.StringVar(&in.Amount, "amount", "", "a decimal `number`, such as 0.1")
	flags.StringVar(&in.Address, "address", "", "the `address` on the asset's chain")
	flags.StringVar(&in.CID, "cid", "", "your own `key` of the request; default: a new one")
	w.add(c, true)
	require(c, "asset", "amount", "address")
	return c
}

// useCID makes a key where none was given, and prints it before the call.
func (a *app) useCID(cid *string) {
	a.keyed = true
	*cid = cmp.Or(*cid, rand.Text())
	a.note(note{Text: "cid " + *cid + ": after a lost answer, repeat the command with --cid " + *cid, CID: *cid})
}

// created prints the result of a request, or waits for its end.
func (a *app) created(ctx context.Context, api *client.Client, w waitFlags, made client.TransferResult, err error) error {
	if err != nil {
		return err
	}
	if w.wait {
		a.note(note{Text: "req_id " + made.ReqID, ReqID: made.ReqID})
		return a.waitTransfer(ctx, api, made.ReqID, w.timeout)
	}
	err = a.printAnswer("req_id", made.ReqID, "state", made.State, "code", made.Code, "message", made.Message, "reason", made.Reason)
	return cmp.Or(err, transferEnd(made.ReqID, made.State, made.Reason))
}

// transferEnd is how a transfer ended. One that has not ended was accepted.
func transferEnd(reqID string, state client.TransferState, why string) error {
	if state == client.TransferFailed || state == client.TransferRolledBack {
		return endf(exitFailed, "%s is %s: %s", reqID, state, cmp.Or(why, "no reason was kept"))
	}
	return nil
}

func (a *app) printTransfer(t client.Transfer) error {
	return a.printAnswer("req_id", t.ReqID, "state", t.State, "reason", t.Reason, "from", t.From, "to", t.To, "address", t.Address,
		"asset", t.Asset, "amount", t.Amount, "created", t.CreatedAt, "updated", t.UpdatedAt)
}

func (a *app) waitTransfer(ctx context.Context, api *client.Client, reqID string, timeout time.Duration) error {
	var last client.Transfer
	err := a.follow(ctx, timeout, "transfer wait", reqID, func(ctx context.Context) (string, bool, error) {
		seen, err := api.Transfer(ctx, reqID)
		if err == nil {
			last = seen
		}
		return string(seen.State), seen.State.Final(), err
	})
	return cmp.Or(printing(a.printTransfer)(last, err), transferEnd(reqID, last.State, last.Reason))
}

func (a *app) transferWait() *cobra.Command {
	var w waitFlags
	c := a.call(user, "wait REQ_ID", "Wait until a transfer is COMMITTED (exit 0), FAILED or ROLLED_BACK (exit 1)", 1, func(ctx context.Context, api *client.Client, args []string) error {
		return a.waitTransfer(ctx, api, args[0], w.timeout)
	})
	w.add(c, false)
	return c
}

func (a *app) transferList() *cobra.Command {
	var q client.TransferQuery
	c := a.list(user, "list", "List the user's transfers and payouts, the newest first", 0, func(ctx context.Context, api *client.Client, _ []string) error {
		return printList(a, api.ListTransfers(ctx, q), "REQ_ID STATE FROM TO ASSET AMOUNT CREATED REASON", transferColumns)
	})
	c.Flags().StringVar((*string)(&q.State), "state", "", "only those in this `state`")
	values(c, "state", transferStates...)
	return c
}

func transferColumns(t client.Transfer) []any {
	return []any{t.ReqID, t.State, t.From, t.To, t.Asset, t.Amount, t.CreatedAt, t.Reason}
}

func (a *app) transferFind() *cobra.Command {
	var q client.AllTransfersQuery
	c := a.list(operator, "find", "List transfers and payouts of all users (operators)", 0, func(ctx context.Context, api *client.Client, _ []string) error {
		return printList(a, api.ListAllTransfers(ctx, q), "REQ_ID STATE FROM TO ASSET AMOUNT CREATED REASON USER RETRIES", func(t client.OperatorsTransfer) []any {
			return append(transferColumns(t.Transfer), t.UserID, t.RetryCount)
		})
	})
	c.Flags().StringVar((*string)(&q.State), "state", "", "only in this `state`")
	c.Flags().Int64Var(&q.UserID, "user", 0, "only of this `user`")
	c.Flags().StringVar(&q.Asset, "asset", "", "only of this `asset`")
	values(c, "state", transferStates...)
	return c
}

func (a *app) printWhyTransfer(w client.Why) error {
	return a.printAnswer("req_id", w.ReqID, "user", w.UserID, "cid", w.CID, "state", w.State, "since", w.StateSince, "reason", w.Reason, "the money is", w.Where,
		"last evidence", w.LastEvidence, "waits for", w.WouldUnblock, "next try", w.NextTryAt, "retries", w.RetryCount, "proved by", w.ProvedBy)
}

func (a *app) transferResolve() *cobra.Command {
	var in client.Resolve
	c := a.onRecord("resolve REQ_ID", "Ask the ledger for its answer to an operation (operators)", 1, func(ctx context.Context, api *client.Client, args []string) error {
		in.Reason = a.why
		return printing(a.printTransfer)(api.ResolveTransfer(ctx, args[0], in))
	})
	c.Flags().StringVar(&in.Op, "op", "", "the `operation` that it waits for: withdraw, deposit or refund")
	c.Flags().StringVar(&in.Outcome, "outcome", "", "after BEYOND_HORIZON alone: applied or not_applied")
	c.Flags().Int64Var(&in.Line, "line", 0, "with --outcome: the `line` of the core's journal that proves it")
	require(c, "op")
	values(c, "op", "withdraw", "deposit", "refund")
	values(c, "outcome", "applied", "not_applied")
	return c
}

func (a *app) transferAcknowledge() *cobra.Command {
	var forTime time.Duration
	c := a.onRecord("acknowledge REQ_ID", "Silence the alerts about a transfer in its present state (operators)", 1, func(ctx context.Context, api *client.Client, args []string) error {
		err := api.AcknowledgeTransfer(ctx, args[0], a.why, time.Now().Add(forTime))
		return a.answer(err, "req_id", args[0], "alerts", "silenced while the state stays the same")
	})
	c.Flags().DurationVar(&forTime, "for", 24*time.Hour, "for how long, at most 720h")
	return c
}
