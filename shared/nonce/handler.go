package nonce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// NonceContext is what a [Handler] is asked about.
type NonceContext struct {
	Submitter Submitter
	Nonce     uint64 // bound to this request for ever
	TxID      string
	RequestID string
	Input     json.RawMessage // what came with the request
}

// Handler makes the transaction of a request whose nonce is bound already. It
// never sends, and never manages the nonce.
//
// It is asked by whatever process holds the lease, and may be asked again for the
// same request, with the same NonceContext, where its answer was lost or cannot
// be carried out yet (balance, fee ceiling, node, signer). It may take as long as
// ctx allows. An error, a panic, a time-out, what no chain could do, or a call
// that would revert, costs a placeholder: the nonce is consumed, and the request
// ends FAILED/PLACEHOLDER with the reason, which its caller may read. Nothing
// that it does elsewhere is undone.
type Handler func(ctx context.Context, n NonceContext) (Call, error)

// handlerMost is how often a handler is asked for one nonce without an answer
// being stored: a process that dies asking would otherwise be followed by the
// next for ever.
const handlerMost = 3

// decidedByHandler is who ordered the placeholder of a handler that failed.
const decidedByHandler = "handler"

// handlerDue says that t's handler is to be asked.
func (t Tx) handlerDue() bool {
	return t.Handler != "" && t.State == InFlight && t.Ordered == ""
}

// handlerNext is the transaction whose handler is to be asked now. Nothing that
// stands behind a nonce which no node holds is asked for: its answer could not
// go out.
func (w Work) handlerNext() (Tx, bool) {
	for _, t := range w.Unsettled {
		switch {
		case t.handlerDue():
			return t, t.dueBy(w.now())
		case !t.going():
			return Tx{}, false
		}
	}
	return Tx{}, false
}

// handlerFailed is t with a placeholder ordered, or STUCK where an operator has to
// be asked first.
func (r Rules) handlerFailed(t Tx, reason string, w Work) Move {
	from := t.State
	if r.AskBeforePlaceholder {
		return Move{From: from, To: r.stuck(t, w.now(), reason+"; nonce.placeholder=ask: an operator must decide")}
	}
	t.Ordered, t.LastError = OrderPlaceholder, reason
	return Move{From: from, To: t, Decided: &Decision{Action: OrderPlaceholder, By: decidedByHandler, Reason: reason}}
}

// made is what came of asking a handler.
type made struct {
	call   Call
	params GasParams
	failed string // why a placeholder is due; "": it is not
	wait   string // why it has to be asked again later; "": not
	asked  bool   // it was, and answered: no attempt is left without an answer
}

// askHandlers asks the handler that is due, if one is: first it writes down that it
// is asked. One that was asked too often without an answer is given up. ok is
// false where the work has moved meanwhile.
func (t *tenure) askHandlers(ctx context.Context, v View) (answers map[string]made, ok bool, err error) {
	x, due := t.work.handlerNext()
	if !due || t.work.Protected {
		return nil, true, nil
	}
	if x.SubmitAttempts >= handlerMost {
		reason := fmt.Sprintf("handler %s: asked %d times without an answer", x.Handler, x.SubmitAttempts)
		return map[string]made{x.ID: {failed: reason}}, true, nil
	}
	if reason := t.unserved(x); reason != "" {
		return map[string]made{x.ID: {wait: reason}}, true, nil
	}
	if x.SubmitAttempts++; x.FirstSubmitAt == nil {
		x.FirstSubmitAt = new(t.work.now())
	}
	if _, err := t.write(ctx, Write{Moves: []Move{{From: InFlight, To: x}}}, false); err != nil || t.stale {
		return nil, false, err
	}
	m, err := t.askHandler(ctx, x, v)
	if err != nil {
		return nil, false, err
	}
	if short := t.shortOf(x, m, v); short != "" {
		m.wait = short
	}
	m.asked = true
	return map[string]made{x.ID: m}, true, nil
}

// unserved says that this process does not have t's handler, or "": another
// version of the program may have it.
func (w *Worker) unserved(t Tx) string {
	if _, known := w.Handlers[t.Handler]; known || t.Handler == "" {
		return ""
	}
	return "no handler " + t.Handler + " in this process"
}

// waits is t, which keeps its nonce without bytes for this reason until it is
// asked for again. Nobody waits for ever: see [Rules.waitedLong].
func (r Rules) waits(t Tx, m made, now time.Time) Tx {
	if m.asked {
		t.SubmitAttempts = 0
	}
	if t.FirstSubmitAt == nil {
		t.FirstSubmitAt = &now
	}
	return t
}

// shortOf says that the account cannot pay for what was made, or "".
func (t *tenure) shortOf(x Tx, m made, v View) string {
	if m.failed != "" || m.wait != "" {
		return ""
	}
	others := slices.DeleteFunc(slices.Clone(t.work.Unsettled), func(u Tx) bool { return u.ID == x.ID })
	left := newPurse(v, others)
	if left.take(m.params) == nil {
		return ""
	}
	return "balance: the account cannot pay for what handler " + x.Handler + " made, and a placeholder"
}

// askHandler asks one, and prices what it made. An error says nothing about the
// handler: it may not have been asked.
func (t *tenure) askHandler(ctx context.Context, x Tx, v View) (m made, err error) {
	var failed error
	t.pass("handler_asked")
	err = t.call(ctx, func(ctx context.Context) error {
		m.call, failed = runHandler(ctx, t.Handlers[x.Handler], NonceContext{x.Submitter, *x.Nonce, x.ID, x.RequestID, x.Payload})
		return nil
	})
	if err != nil {
		return m, err
	}
	t.pass("handler_answered")
	if failed == nil {
		failed = sane(m.call)
	}
	if failed != nil {
		return made{failed: cut(fmt.Sprintf("handler %s: %s", x.Handler, failed))}, nil
	}
	return t.price(ctx, x, m, v)
}

// sane says what no chain could do, or nil.
func sane(c Call) error {
	for name, n := range map[string]*big.Int{"value": c.Value, "maxFeePerGas": c.FeeCapWei, "maxPriorityFeePerGas": c.TipCapWei} {
		if n != nil && (n.Sign() < 0 || n.BitLen() > 256) {
			return fmt.Errorf("its %s is no amount: %s", name, n)
		}
	}
	if c.Gas > 0 && (c.Gas < placeholderGas || c.Gas > txGasCap) {
		return fmt.Errorf("its gas is %d: want %d to %d", c.Gas, placeholderGas, txGasCap)
	}
	return nil
}

// cut bounds a text that comes from outside, in bytes.
func cut(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// price estimates the gas of what a handler made. A call that reverts has failed
// only where nothing unsettled can change that, on a node past all that is final.
func (t *tenure) price(ctx context.Context, x Tx, m made, v View) (made, error) {
	var e Estimate
	if m.call.Gas == 0 {
		answer, err := t.look(ctx, Look{Submitter: x.Submitter, Estimates: []Call{m.call}})
		switch {
		case errors.Is(err, lease.ErrFenced):
			return m, err
		case err != nil:
			t.Log.WarnContext(ctx, "chain not reached", append(t.attrs(), "error", err.Error())...)
			return made{wait: "no gas estimate: the node is out of reach"}, nil
		}
		e, v.Since, v.Head = answer.Estimates[0], answer.Since, answer.Head
	}
	gas, verdict, reason := gasFor(m.call, e)
	last := *x.Nonce == t.work.lowest() && v.since() >= t.work.FinalHead
	switch {
	case verdict == Refused && last:
		return made{failed: cut(fmt.Sprintf("handler %s: %s", x.Handler, reason))}, nil
	case verdict != Done:
		return made{wait: cut("no gas estimate: " + reason)}, nil
	}
	m.params = t.Rules.underCeiling(fees(m.call, gas, v.Account))
	m.wait = tooDear(m.call, m.params, v.Account)
	return m, nil
}

// runHandler waits for the handler until ctx ends: one that does not return is left
// to itself. A panic is its error.
func runHandler(ctx context.Context, h Handler, n NonceContext) (Call, error) {
	type answer struct {
		call Call
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- answer{err: fmt.Errorf("panic: %v", p)}
			}
		}()
		call, err := h(ctx, n)
		done <- answer{call, err}
	}()
	select {
	case a := <-done:
		return a.call, a.err
	case <-ctx.Done():
		return Call{}, fmt.Errorf("no answer in time: %w", ctx.Err())
	}
}

// handled is the first version of t as its handler made it.
func handled(t Tx, m made) (signing, string) {
	if m.wait != "" {
		return signing{}, m.wait
	}
	t.Gas = &m.params
	return signing{t, VersionOriginal, unsigned(t, m.call)}, ""
}
