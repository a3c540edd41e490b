package nonce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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
// same request, with the same NonceContext, where its answer was lost. It may
// take as long as ctx allows. An error, a panic, a time-out, or a call that
// would revert, costs a placeholder: the nonce is consumed, and the request ends
// FAILED/PLACEHOLDER with the reason. Nothing that it does elsewhere is undone.
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

// claimHandlers writes down that handlers are asked, before they are. One that was
// asked too often without an answer is given up.
func (t *tenure) claimHandlers(j *judgement) {
	if !t.kind.MaySign() || t.work.Protected {
		return
	}
	for i, x := range j.after {
		if !x.handlerDue() || !x.dueBy(t.work.now()) {
			continue
		}
		if x.SubmitAttempts >= handlerMost {
			j.giveUp(i, t.Rules, fmt.Sprintf("handler %s: asked %d times without an answer", x.Handler, x.SubmitAttempts), t.work)
			t.fresh = append(t.fresh, x.ID)
			continue
		}
		x.SubmitAttempts++
		j.change(i, x)
	}
}

// change makes x the i-th transaction after the judgement, and moves it.
func (j *judgement) change(i int, x Tx) {
	j.after[i] = x
	at := slices.IndexFunc(j.moves, func(m Move) bool { return m.To.ID == x.ID })
	if at < 0 {
		j.moves = append(j.moves, Move{From: x.State, To: x})
		return
	}
	j.moves[at].To = x
}

// giveUp orders a placeholder for the i-th transaction, whose handler failed.
func (j *judgement) giveUp(i int, r Rules, reason string, w Work) {
	m := r.handlerFailed(j.after[i], reason, w)
	j.after[i] = m.To
	j.moves = append(j.moves, m)
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
}

// ask asks the handlers of what holds a nonce and was claimed for it, and prices
// what they made.
func (t *tenure) askHandlers(ctx context.Context, v View) (map[string]made, error) {
	answers := make(map[string]made)
	if t.work.Protected {
		return answers, nil
	}
	purse := newPurse(v, slices.DeleteFunc(slices.Clone(t.work.Unsettled), Tx.handlerDue))
	for i, x := range t.work.Unsettled {
		if !x.handlerDue() || x.SubmitAttempts == 0 || !x.dueBy(t.work.now()) {
			continue
		}
		m, err := t.askHandler(ctx, x, v, i == 0)
		if err != nil {
			return nil, err
		}
		if m.failed == "" && m.wait == "" {
			if short := purse.take(m.params); short != nil {
				m.wait = fmt.Sprintf("balance: short of %s wei for what handler %s made, and a placeholder", short, x.Handler)
			}
		}
		answers[x.ID] = m
	}
	return answers, nil
}

// askHandler asks one. The error is [lease.ErrFenced] or none.
func (t *tenure) askHandler(ctx context.Context, x Tx, v View, lowest bool) (m made, err error) {
	handler, ok := t.Handlers[x.Handler]
	if !ok { // another version of the program may have it
		return made{wait: "no handler " + x.Handler + " in this process"}, nil
	}
	t.pass("handler_asked")
	err = t.call(ctx, func(ctx context.Context) error {
		m.call, err = runHandler(ctx, handler, NonceContext{x.Submitter, *x.Nonce, x.ID, x.RequestID, x.Payload})
		return err
	})
	switch {
	case errors.Is(err, lease.ErrFenced):
		return m, err
	case err != nil:
		return made{failed: fmt.Sprintf("handler %s: %s", x.Handler, err)}, nil
	}
	t.pass("handler_answered")
	return t.price(ctx, x, m, v, lowest)
}

// price estimates the gas of what a handler made. A call that reverts has failed
// only where nothing below it can change that.
func (t *tenure) price(ctx context.Context, x Tx, m made, v View, lowest bool) (made, error) {
	var e Estimate
	if m.call.Gas == 0 {
		answer, err := t.look(ctx, Look{Submitter: x.Submitter, Estimates: []Call{m.call}})
		switch {
		case errors.Is(err, lease.ErrFenced):
			return m, err
		case err != nil:
			return made{wait: "no gas estimate: " + err.Error()}, nil
		}
		e = answer.Estimates[0]
	}
	gas, verdict, reason := gasFor(m.call, e)
	switch {
	case verdict == Refused && lowest:
		return made{failed: fmt.Sprintf("handler %s: its call would revert: %s", x.Handler, reason)}, nil
	case verdict != Done:
		return made{wait: "no gas estimate: " + reason}, nil
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
