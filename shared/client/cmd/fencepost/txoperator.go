package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

func (a *app) printWhyTx(why client.TxWhy) error {
	pairs := []any{"txId", why.TxID, "state", why.State, "subState", why.SubState, "lastError", why.LastError, "detail", why.LastErrorDetail}
	pairs = append(pairs, waitingPairs(why.Waiting)...)
	return a.printAnswer(append(pairs, "next actor", why.NextActor, "what to do", why.Action, "runbook", why.Runbook,
		"next check", why.NextCheckAt, "leased by", why.LeasedBy, "requested action", why.RequestedAction)...)
}

func (a *app) txFind() *cobra.Command {
	var q client.TxFilter
	var nonce uint64
	var since time.Duration
	var c *cobra.Command
	c = a.list(operator, "find", "List transactions of all submitters (operators)", 0, func(ctx context.Context, api *client.Client, _ []string) error {
		q.Nonce = given(c, "nonce", nonce)
		if since != 0 {
			q.Since = time.Now().Add(-since)
		}
		return printList(a, api.FindTxs(ctx, q), "TXID SUBMITTER NONCE REQUESTID STATE SUBSTATE CAUSE CALLER", func(tx client.FoundTx) []any {
			return []any{tx.TxID, tx.Submitter, tx.Nonce, tx.RequestID, tx.State, tx.SubState, tx.Cause, tx.Caller}
		})
	})
	c.Args = cobra.NoArgs
	flags := c.Flags()
	flags.StringVar(&q.Submitter, "submitter", "", "only of this `account`")
	flags.StringVar((*string)(&q.State), "state", "", "only in this `state`")
	flags.StringVar(&q.Cause, "cause", "", "only those that wait for this stored `cause`")
	flags.StringVar(&q.Caller, "caller", "", "only of this `caller`")
	flags.StringVar(&q.Hash, "hash", "", "the transaction with this `hash` of any version")
	flags.StringVar(&q.RequestID, "request-id", "", "only under this `key`")
	flags.Uint64Var(&nonce, "nonce", 0, "with --submitter: the transaction with this `nonce`")
	flags.DurationVar(&since, "since", 0, "only those that were accepted in this last `time`, by this machine's clock")
	values(c, "state", txStates...)
	return c
}

func (a *app) printInspectedTx(found client.InspectedTx) error {
	tx := found.Transaction
	pairs := []any{"txId", tx.TxID, "state", tx.State, "subState", tx.SubState, "nonce", tx.Nonce, "caller", found.Caller, "requestId", tx.RequestID, "traceId", found.TraceID}
	if p := found.Payload; p != nil {
		pairs = append(pairs, "to", p.To, "value", p.Value, "data", p.Data, "gas", p.Gas, "maxGas", p.MaxGas, "maxFeePerGas", p.MaxFeePerGas,
			"maxPriorityFeePerGas", p.MaxPriorityFeePerGas, "handler", p.Handler, "args", p.Args)
	}
	return a.printAnswer(pairs...)
}

func (a *app) txHistory() *cobra.Command {
	return a.list(operator, "history TXID", "List the changes of a transaction, the oldest first (operators)", 1, func(ctx context.Context, api *client.Client, args []string) error {
		return printList(a, api.ListTxHistory(ctx, args[0]), "AT FROM STATE SUBSTATE NONCE ATTEMPTS TXHASH NODE REASON", func(h client.TxChange) []any {
			return []any{h.At, h.From, h.State, h.SubState, h.Nonce, h.Attempts, h.TxHash, h.Node, h.Reason}
		})
	})
}

func (a *app) txVersions() *cobra.Command {
	return a.list(operator, "versions TXID", "List the signed versions of a transaction, the oldest first (operators)", 1, func(ctx context.Context, api *client.Client, args []string) error {
		return printList(a, api.ListTxVersions(ctx, args[0]), "VERSION KIND SIGNED SENT TXHASH FEES", func(v client.TxVersion) []any {
			return []any{v.Version, v.Kind, v.SignedAt, v.LastSentAt, v.TxHash, v.Fees}
		})
	})
}

func (a *app) txDecide() *cobra.Command {
	c := a.onRecord("decide TXID ACTION", "Decide about a transaction with a nonce: wait, rebroadcast, replace or placeholder (operators)", 2, func(ctx context.Context, api *client.Client, args []string) error {
		done, err := api.DecideTx(ctx, args[0], args[1], a.why)
		return a.answer(err, "txId", done.TxID, "state", done.State, "requested action", done.RequestedAction)
	})
	lastArgument(c, 1, "wait", "rebroadcast", "replace", "placeholder")
	return c
}

func (a *app) txProceed() *cobra.Command {
	return a.onRecord("proceed TXID", "Let a held intent proceed (operators)", 1, func(ctx context.Context, api *client.Client, args []string) error {
		state, err := api.Proceed(ctx, args[0], a.why)
		return a.answer(err, "txId", args[0], "state", state)
	})
}
