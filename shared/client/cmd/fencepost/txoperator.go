package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

func (a *app) printWhyTx(why client.TxWhy, err error) error {
	pairs := []any{"txId", why.TxID, "state", why.State, "subState", why.SubState, "lastError", why.LastError, "detail", why.LastErrorDetail}
	pairs = append(pairs, waitingPairs(why.Waiting)...)
	return a.answer(err, append(pairs, "next actor", why.NextActor, "what to do", why.Action, "runbook", why.Runbook,
		"next check", why.NextCheckAt, "leased by", why.LeasedBy, "requested action", why.RequestedAction)...)
}

func (a *app) txFind() *cobra.Command {
	var filter client.TxFilter
	var nonce uint64
	var since time.Duration
	return a.list(operator, "find", "List transactions of all submitters (operators)", []option{
		flag(&filter.Submitter, "submitter", "only of this `account`"),
		flag((*string)(&filter.State), "state", "only in this `state`", txStates...),
		flag(&filter.Cause, "cause", "only those that wait for this stored `cause`"),
		flag(&filter.Caller, "caller", "only of this `caller`"),
		flag(&filter.Hash, "hash", "the transaction with this `hash` of any version"),
		flag(&filter.RequestID, "request-id", "only under this `key`"),
		flag(&nonce, "nonce", "with --submitter: the transaction with this `nonce`"),
		flag(&since, "since", "only those that were accepted in this last `time`, by this machine's clock"),
		func(c *cobra.Command) { c.Args = cobra.NoArgs },
	}, func(q call) error {
		filter.Nonce = given(a, "nonce", nonce)
		if since != 0 {
			filter.Since = time.Now().Add(-since)
		}
		return printList(a, q.api.FindTxs(q.ctx, filter), "TXID SUBMITTER NONCE REQUESTID STATE SUBSTATE CAUSE CALLER",
			func(tx client.FoundTx) []any {
				return []any{tx.TxID, tx.Submitter, tx.Nonce, tx.RequestID, tx.State, tx.SubState, tx.Cause, tx.Caller}
			})
	})
}

func (a *app) printInspectedTx(found client.InspectedTx, err error) error {
	tx := found.Transaction
	pairs := []any{"txId", tx.TxID, "state", tx.State, "subState", tx.SubState, "nonce", tx.Nonce, "caller", found.Caller, "requestId", tx.RequestID, "traceId", found.TraceID}
	if p := found.Payload; p != nil {
		pairs = append(pairs, "to", p.To, "value", p.Value, "data", p.Data, "gas", p.Gas, "maxGas", p.MaxGas, "maxFeePerGas", p.MaxFeePerGas,
			"maxPriorityFeePerGas", p.MaxPriorityFeePerGas, "handler", p.Handler, "args", p.Args)
	}
	return a.answer(err, pairs...)
}
