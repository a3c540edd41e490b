package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

var txStates = []string{"QUEUED", "IN_FLIGHT", "SUBMITTED", "TRACKING", "STUCK", "PROTECT", "CONFIRMED", "FAILED"}

func (a *app) txGroup() *cobra.Command {
	var w waitFlags
	var listed client.TxQuery
	return group("tx", "Send transactions and follow them", a.txSend(), a.txGet(),
		a.call(caller, "wait TXID", "Wait until a transaction is CONFIRMED (exit 0) or FAILED (exit 1)", []option{w.timed()},
			func(q call) error { return a.waitTx(q, q.args[0], w) }),
		a.list(caller, "list", "List your transactions of a submitter, the newest first", []option{
			required(&listed.Submitter, "submitter", "the `account`"),
			flag((*string)(&listed.State), "state", "only those in this `state`", txStates...),
		}, func(q call) error {
			return printList(a, q.api.ListTx(q.ctx, listed), "TXID REQUESTID STATE SUBSTATE CREATED TXHASH", func(tx client.ListedTx) []any {
				return []any{tx.TxID, tx.RequestID, tx.State, tx.SubState, tx.CreatedAt, tx.TxHash}
			})
		}),
		a.txCancel(),
		show(a, operator, "why TXID", "Explain what a transaction waits for, and who can act (operators)", (*client.Client).WhyTx, a.printWhyTx),
		a.txFind(),
		show(a, operator, "inspect TXID", "Show a transaction with what its caller asked for (operators)", (*client.Client).InspectTx, a.printInspectedTx),
		a.list(operator, "history TXID", "List the changes of a transaction, the oldest first (operators)", nil, func(q call) error {
			return printList(a, q.api.ListTxHistory(q.ctx, q.args[0]), "AT FROM STATE SUBSTATE NONCE ATTEMPTS TXHASH NODE REASON",
				func(h client.TxChange) []any {
					return []any{h.At, h.From, h.State, h.SubState, h.Nonce, h.Attempts, h.TxHash, h.Node, h.Reason}
				})
		}),
		a.list(operator, "versions TXID", "List the signed versions of a transaction, the oldest first (operators)", nil, func(q call) error {
			return printList(a, q.api.ListTxVersions(q.ctx, q.args[0]), "VERSION KIND SIGNED SENT TXHASH FEES", func(v client.TxVersion) []any {
				return []any{v.Version, v.Kind, v.SignedAt, v.LastSentAt, v.TxHash, v.Fees}
			})
		}),
		a.act("decide TXID ACTION", "Decide about a transaction with a nonce: wait, rebroadcast, replace or placeholder (operators)",
			[]option{lastArgument("wait", "rebroadcast", "replace", "placeholder")},
			func(q call) error {
				done, err := q.api.DecideTx(q.ctx, q.args[0], q.args[1], a.why)
				return a.answer(err, "txId", done.TxID, "state", done.State, "requested action", done.RequestedAction)
			}),
		a.act("proceed TXID", "Let a held intent proceed (operators)", nil, func(q call) error {
			state, err := q.api.Proceed(q.ctx, q.args[0], a.why)
			return a.answer(err, "txId", q.args[0], "state", state)
		}))
}

// waitFlags are those of a command that waits for an end.
type waitFlags struct {
	wait    bool
	timeout time.Duration
}

// optional adds the flags of a command that can wait.
func (w *waitFlags) optional() option {
	return func(c *cobra.Command) {
		flag(&w.wait, "wait", "wait until it has ended, and exit by that")(c)
		w.timed()(c)
	}
}

// timed adds the flag of a command that waits.
func (w *waitFlags) timed() option {
	return func(c *cobra.Command) {
		w.timeout = 15 * time.Minute
		flag(&w.timeout, "timeout", "how long to wait; after that the exit status is 3")(c)
		c.PreRunE = func(*cobra.Command, []string) error { // before anything is sent
			if w.timeout <= 0 {
				return usagef("--timeout %s: want a time above 0", w.timeout)
			}
			return nil
		}
	}
}

// intentFlags describe the intent of tx send.
type intentFlags struct {
	in                client.Intent
	payload           client.Payload
	args, file, until string
}

func (a *app) txSend() *cobra.Command {
	var f intentFlags
	var w waitFlags
	c := a.call(caller, "send", "Send a transaction, once for each request id", []option{
		required(&f.in.Submitter, "submitter", "the `account` that sends, such as eip155:1:0x…"),
		flag(&f.in.RequestID, "request-id", "your own `key` of the request; default: a new one"),
		flag(&f.payload.To, "to", "the `address` to call; without it --data is a contract to deploy"),
		flag(&f.payload.Value, "value", "the amount in `wei`"),
		flag(&f.payload.Data, "data", "the call's data, 0x and `hex` digits"),
		flag(&f.payload.Function, "function", "in place of --data: a `signature` such as transfer(address,uint256)"),
		flag(&f.args, "args", "with --function: its arguments, a `JSON` list"),
		flag(&f.payload.Gas, "gas", "the gas `limit`"),
		flag(&f.payload.MaxGas, "max-gas", "in place of --gas: the highest `limit` that an estimate may give"),
		flag(&f.payload.MaxFeePerGas, "max-fee-per-gas", "in `wei`"),
		flag(&f.payload.MaxPriorityFeePerGas, "max-priority-fee-per-gas", "in `wei`"),
		flag(&f.in.Handler, "handler", "the `name` of the handler that makes the transaction out of --payload"),
		flag(&f.file, "payload", "the whole payload as JSON, from a `file`; - is stdin"),
		flag(&f.until, "valid-until", "the latest `time` at which it may get a nonce, such as 2027-01-31T12:00:00Z"),
		w.optional(),
	}, func(q call) error { return a.sendTx(q, f, w) })
	c.Long = `Send posts an intent. The same intent under the same request id is the same transaction, however often it is sent.
Without --request-id a new one is made. It is printed before the call, so that the command can be repeated after
a lost answer. Amounts are whole numbers in wei.`
	c.Example = `  fencepost tx send --submitter eip155:1:0x… --request-id order-4711 --to 0x… --value 1 --wait
  fencepost tx send --submitter eip155:1:0x… --to 0x… --function 'transfer(address,uint256)' --args '["0x…", "1000"]'
  echo '{"order": 4711}' | fencepost tx send --submitter eip155:1:0x… --handler shop --payload -`
	for _, one := range []string{"to", "value", "data", "function", "args", "gas", "max-gas", "max-fee-per-gas", "max-priority-fee-per-gas"} {
		c.MarkFlagsMutuallyExclusive("payload", one)
	}
	return c
}

// intent returns the intent that the flags describe, with a request id.
func (f intentFlags) intent(stdin io.Reader) (client.Intent, error) {
	in := f.in
	in.RequestID = cmp.Or(in.RequestID, rand.Text())
	if f.args != "" {
		d := json.NewDecoder(bytes.NewReader([]byte(f.args)))
		d.UseNumber() // an amount keeps all its digits
		if err := d.Decode(&f.payload.Args); err != nil || d.More() {
			return in, usagef(`--args: want a JSON list, such as '["0x…", "1000"]'`)
		}
	}
	in.Payload = f.payload
	if f.file != "" {
		text, err := readFile(f.file, stdin)
		if err != nil {
			return in, err
		}
		if !json.Valid(text) {
			return in, usagef("--payload %s: want one JSON value", f.file)
		}
		in.Payload = json.RawMessage(text)
	}
	if f.until != "" {
		until, err := time.Parse(time.RFC3339Nano, f.until)
		if err != nil {
			return in, usagef("--valid-until %s: want a time such as 2027-01-31T12:00:00Z", f.until)
		}
		in.ValidUntil = &until
	}
	return in, nil
}

// readFile reads a file, or stdin as "-".
func readFile(path string, stdin io.Reader) (text []byte, err error) {
	if path == "-" {
		text, err = io.ReadAll(stdin)
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, usagef("%s: %v", path, err)
	}
	return text, nil
}

// parseFile reads a value from a file, or from stdin as "-".
func parseFile[T any](a *app, path string, parse func([]byte) (T, error)) (value T, err error) {
	text, err := readFile(path, a.in)
	if err != nil {
		return value, err
	}
	if value, err = parse(text); err != nil {
		return value, usagef("%s: %v", path, err)
	}
	return value, nil
}

func (a *app) sendTx(q call, f intentFlags, w waitFlags) error {
	in, err := f.intent(a.in)
	if err != nil {
		return err
	}
	a.keyed = true
	a.note(note{Text: "request id " + in.RequestID + ": after a lost answer, repeat the command with --request-id " + in.RequestID, RequestID: in.RequestID})
	created, err := q.api.CreateTx(q.ctx, in)
	if err != nil {
		return err
	}
	if w.wait {
		a.note(note{Text: "txId " + created.TxID, TxID: created.TxID})
		return a.waitTx(q, created.TxID, w)
	}
	return a.answer(nil, "txId", created.TxID, "requestId", in.RequestID)
}

func (a *app) txGet() *cobra.Command {
	var submitter, requestID string
	return a.call(caller, "get [TXID]", "Show a transaction, by its id or by its request", []option{
		flag(&submitter, "submitter", "with --request-id: the `account`"),
		flag(&requestID, "request-id", "your `key` of the request"),
		func(c *cobra.Command) {
			c.Args = cobra.MaximumNArgs(1)
			c.MarkFlagsRequiredTogether("submitter", "request-id")
		},
	}, func(q call) error {
		if (len(q.args) == 1) == (requestID != "") {
			return usagef("want a txId, or --request-id with --submitter")
		}
		if requestID != "" {
			return a.printTx(q.api.TxByRequest(q.ctx, submitter, requestID))
		}
		return a.printTx(q.api.Tx(q.ctx, q.args[0]))
	})
}

func (a *app) printTx(tx client.Tx, err error) error {
	pairs := []any{
		"txId", tx.TxID, "submitter", tx.Submitter, "requestId", tx.RequestID, "state", tx.State, "subState", tx.SubState, "nonce", tx.Nonce,
		"txHash", tx.TxHash, "replacedByHash", tx.ReplacedByHash, "lastError", tx.LastError, "lastErrorDetail", tx.LastErrorDetail,
		"createdAt", tx.CreatedAt, "updatedAt", tx.UpdatedAt, "confirmedAt", tx.ConfirmedAt, "validUntil", tx.ValidUntil,
	}
	if r := tx.Receipt; r != nil {
		pairs = append(pairs, "block", r.BlockNumber, "succeeded", r.Succeeded, "confirmations", len(tx.Confirmations))
	}
	return a.answer(err, append(pairs, waitingPairs(tx.Waiting)...)...)
}

func waitingPairs(w *client.Waiting) []any {
	if w == nil {
		return nil
	}
	pairs := []any{"waits for", w.Cause, "waits since", w.Since, "expected", w.ExpectedAt}
	if w.Position > 0 {
		pairs = append(pairs, "position", position(w.Position, w.PositionMore))
	}
	if w.BlockedBy != nil {
		pairs = append(pairs, "blocked by", w.BlockedBy.TxID, "which waits for", w.BlockedBy.Cause)
	}
	return pairs
}

// position is a place or a count as text. more: it is above n.
func position(n int, more bool) string {
	if more {
		return fmt.Sprint("above ", n)
	}
	return fmt.Sprint(n)
}

func (a *app) waitTx(q call, txID string, w waitFlags) error {
	tx, err := follow(q.ctx, a, w, "tx wait", txID, q.api.Tx, func(tx client.Tx) (string, bool) {
		state := string(tx.State)
		if tx.Waiting != nil && tx.Waiting.Position > 0 {
			state += ", position " + position(tx.Waiting.Position, tx.Waiting.PositionMore)
		}
		return state, tx.State.Final()
	})
	return cmp.Or(a.printTx(tx, err), endIf(tx.State != client.Confirmed, exitFailed,
		"%s is %s %s: %s", txID, tx.State, tx.SubState, cmp.Or(tx.LastError, "see its subState")))
}

// follow reads until the state is final, returns what it read last, and tells each change of the state on stderr. Any other end of
// the wait is an unknown outcome, except that a wait without a request before it may find that there is no such id.
func follow[T any](ctx context.Context, a *app, w waitFlags, command, id string,
	read func(context.Context, string) (T, error), describe func(T) (state string, final bool)) (T, error) {
	const remindEvery, notRead = 15 * time.Second, "not known yet"
	waiting, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	began, told, last := time.Now(), time.Time{}, notRead
	for pause := 200 * time.Millisecond; ; pause = min(pause*3/2, 3*time.Second) {
		seen, err := read(waiting, id)
		if err != nil && waiting.Err() == nil && !errors.Is(err, client.ErrUnknown) {
			if client.CodeOf(err) == "NOT_FOUND" && last == notRead && !a.answers.acted {
				return seen, err
			}
			return seen, endf(exitUnknown, "%s: the wait ended: %v; wait again by fencepost %s %[1]s", id, err, command)
		}
		state := last
		if err == nil {
			var final bool
			if state, final = describe(seen); final {
				return seen, nil
			}
		}
		if state != last || time.Since(told) > remindEvery {
			a.note(note{Text: fmt.Sprintf("%8s  %s", time.Since(began).Round(time.Second), state), State: state})
			told, last = time.Now(), state
		}
		select {
		case <-waiting.Done():
			return seen, endf(exitUnknown, "%s: the wait ended: after %s its state is %s; wait again by fencepost %s %[1]s", id, time.Since(began).Round(time.Second), last, command)
		case <-time.After(pause):
		}
	}
}

func (a *app) txCancel() *cobra.Command {
	var why string
	const short = "Cancel a transaction: CANCELLED (exit 0), EXECUTED (exit 1) or PENDING (exit 3: ask again)"
	return a.command("cancel TXID", short, []option{flag(&why, "reason", "cancel as an operator: why, kept with your name")}, func(q call) error {
		as := caller
		if a.hasFlag("reason") {
			as = operator
			if strings.TrimSpace(why) == "" {
				return usagef("--reason: want why, or no --reason to cancel as the caller")
			}
		}
		api, err := a.client(as)
		if err != nil {
			return err
		}
		var outcome client.Outcome
		if as == operator {
			outcome, err = api.CancelTxAsOperator(q.ctx, q.args[0], why)
		} else {
			outcome, err = api.CancelTx(q.ctx, q.args[0])
		}
		return cmp.Or(a.answer(err, "outcome", outcome), cancelEnd(q.args[0], outcome))
	})
}

// cancelEnd is how a cancellation ended.
func cancelEnd(txID string, outcome client.Outcome) error {
	switch outcome {
	case client.Cancelled:
		return nil
	case client.Executed:
		return endf(exitFailed, "%s was carried out before it could be cancelled", txID)
	}
	return endf(exitUnknown, "%s: the cancellation is not decided yet; run the same command again", txID)
}

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
