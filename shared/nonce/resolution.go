package nonce

import (
	"context"
	"fmt"
	"slices"
)

// StuckResolution decides by code what becomes of a STUCK transaction, where an
// operator does not have to.
type StuckResolution interface {
	// Resolve is asked at every look at a STUCK transaction about which nothing
	// is ordered: the same question may come many times, from any process. It
	// answers [OrderWait] to leave it to an operator, or an order and the
	// reason, which is kept. It calls nothing outside, and decides by t alone.
	Resolve(t Tx) (Order, string)
}

// Decision is what code decided about a transaction, for the record.
type Decision struct {
	Action Order
	By     string
	Reason string
}

// decidedByCode is who made the decisions of a [StuckResolution].
const decidedByCode = "StuckResolution"

// resolve asks code about each STUCK transaction of the judgement, and turns an
// answer into an order that the same round, or the next, carries out.
func (t *tenure) resolve(ctx context.Context, j *judgement) {
	if t.Resolution == nil {
		return
	}
	for i, x := range j.after {
		if x.State != Stuck || x.Ordered != "" || t.work.Protected {
			continue
		}
		action, reason := t.askResolution(ctx, x)
		if action == OrderWait {
			continue
		}
		if problem := t.Rules.mayOrder(x, action); problem != "" || reason == "" {
			t.Log.ErrorContext(ctx, "a decision by code about a STUCK transaction is not followed",
				append(t.attrs(), "txId", x.ID, "action", action, "reason", reason, "problem", problem)...)
			continue
		}
		x.Ordered, x.NextCheckAt = action, new(t.work.now())
		j.after[i] = x
		j.decide(x, Decision{Action: action, By: decidedByCode, Reason: reason})
		t.fresh = append(t.fresh, x.ID)
	}
}

// askResolution takes a panic of the code for "wait".
func (t *tenure) askResolution(ctx context.Context, x Tx) (action Order, reason string) {
	defer func() {
		if p := recover(); p != nil {
			t.Log.ErrorContext(ctx, "the StuckResolution panicked", append(t.attrs(), "txId", x.ID, "panic", fmt.Sprint(p))...)
			action = OrderWait
		}
	}()
	return t.Resolution.Resolve(x)
}

// mayOrder says why code may not give the order, or "".
func (r Rules) mayOrder(t Tx, action Order) string {
	switch {
	case !slices.Contains([]Order{OrderRebroadcast, OrderReplace, OrderPlaceholder}, action):
		return "it is no order: want WAIT, REBROADCAST, REPLACE or PLACEHOLDER"
	case r.AskBeforePlaceholder && action != OrderRebroadcast:
		return "nonce.placeholder=ask: only an operator may decide that"
	case t.opaque() && action == OrderReplace:
		return "what a handler made, or the owner of a reservation, cannot be replaced by a higher fee"
	case len(t.Versions) == 0 && action != OrderPlaceholder:
		return "nothing was signed that could be sent again or replaced"
	}
	return ""
}

// decide adds d to the move of t, making one where it has none.
func (j *judgement) decide(t Tx, d Decision) {
	i := slices.IndexFunc(j.moves, func(m Move) bool { return m.To.ID == t.ID })
	if i < 0 {
		j.moves = append(j.moves, Move{From: t.State, To: t})
		i = len(j.moves) - 1
	}
	j.moves[i].To, j.moves[i].Decided = t, &d
}
