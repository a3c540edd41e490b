package rules

import (
	"slices"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// The deciders that are recorded for the placeholders that code requests.
const (
	DecidedByHandler = "handler"    // after a failed handler call
	DecidedByMAC     = "intent MAC" // for a wrong MAC
	decidedByTimeOut = "hooks"      // for an expired reservation
)

// NextHandlerCall is the transaction whose handler is to be called now. No handler is called above
// a nonce that no node holds: its transaction could not be sent.
func NextHandlerCall(w txmanager.SubmitterState) (txmanager.Tx, bool) {
	for _, t := range w.Open {
		switch {
		case t.Phase() == txmanager.AwaitingHandler:
			return t, t.IsDueBy(w.DatabaseTime())
		case !t.IsBroadcasting():
			return txmanager.Tx{}, false
		}
	}
	return txmanager.Tx{}, false
}

// requestPlaceholder requests a placeholder for t, or marks t STUCK where an operator must decide
// first. by is recorded as the decider.
func (r Rules) requestPlaceholder(t txmanager.Tx, by, reason string, w txmanager.SubmitterState) txmanager.Transition {
	from := t.State
	if r.AskBeforePlaceholder {
		return txmanager.Transition{From: from, To: r.markStuck(t, w.DatabaseTime(), reason+"; nonce.placeholder=ask: an operator must decide")}
	}
	t.Explain("", reason)
	t.RequestedAction = txmanager.ActionPlaceholder
	return txmanager.Transition{From: from, To: t, Decision: &txmanager.Decision{Action: txmanager.ActionPlaceholder, By: by, Reason: reason}}
}

// HandlerResult is the result of a handler call, or the reason why a due one is not made.
type HandlerResult struct {
	TxID   string // the transaction whose handler was due; "": none was
	Call   txmanager.Call
	Params txmanager.GasParams
	Signed *txmanager.Signed // the bytes it returned, checked; nil: still to be signed
	Stored bool              // they were signed and stored during the call
	Failed string            // why a placeholder is needed; "": it is not
	Wait   txmanager.Wait    // why it must be called again later; zero: no need
	Asked  bool              // the handler was called and answered, so that the count of calls without an answer is reset
}

// HandlerVersion is the first version of t from its handler's result, or the reason to wait.
func HandlerVersion(t txmanager.Tx, m HandlerResult) (SigningJob, txmanager.Wait) {
	if m.Wait.Reason != "" {
		return SigningJob{}, m.Wait
	}
	t.Gas = &m.Params
	return SigningJob{Tx: t, Kind: txmanager.VersionOriginal, Unsigned: buildUnsigned(t, m.Call), Signed: m.Signed}, txmanager.Wait{}
}

// Unverified is the reason that a caller reads while an intent is not checked.
const Unverified = "the intent's MAC cannot be checked now"

// WithoutChecks is w with every transaction marked as unchecked.
func WithoutChecks(w txmanager.SubmitterState) txmanager.SubmitterState {
	for _, list := range [][]txmanager.Tx{w.Open, w.Queue} {
		for i := range list {
			list[i].Authenticity = txmanager.Authenticity{Unknown: Unverified, Unchecked: true}
		}
	}
	return w
}

// RefuseAction is why code may not request the action, or "".
func (r Rules) RefuseAction(t txmanager.Tx, action txmanager.Action) string {
	switch {
	case !slices.Contains([]txmanager.Action{txmanager.ActionRebroadcast, txmanager.ActionReplace, txmanager.ActionPlaceholder}, action):
		return "it is no allowed action: want WAIT, REBROADCAST, REPLACE or PLACEHOLDER"
	case r.AskBeforePlaceholder && action != txmanager.ActionRebroadcast:
		return "nonce.placeholder=ask: only an operator may decide that"
	case t.Caller == txmanager.PayoutCaller && action == txmanager.ActionPlaceholder:
		return "it is a payout: only the transfer coordinator may cancel it"
	case t.IsMadeElsewhere() && action == txmanager.ActionReplace:
		return "a transaction of a handler or of a reservation's owner cannot be replaced by a higher fee"
	case len(t.Versions) == 0 && action != txmanager.ActionPlaceholder:
		return "no version is signed that could be sent again or replaced"
	}
	return ""
}

// AddDecision adds d to the transition of t, and makes one where there is none.
func (j *Evaluation) AddDecision(t txmanager.Tx, d txmanager.Decision) {
	i := slices.IndexFunc(j.Transitions, func(m txmanager.Transition) bool { return m.To.ID == t.ID })
	if i < 0 {
		j.Transitions = append(j.Transitions, txmanager.Transition{From: t.State, To: t})
		i = len(j.Transitions) - 1
	}
	j.Transitions[i].To, j.Transitions[i].Decision = t, &d
}
