package transfer

import (
	"context"
	"strings"
)

// pathAfter returns the transitions that follow from an answer to op; nil: the state stays. Only
// a success, or a refusal that the ledger has stored, changes the state.
//
// A successful withdrawal makes two transitions in one commit, because both follow from the same
// answer and no call lies between them. SOURCE_DONE records that the source answered,
// TARGET_PENDING that the target can be called. After a crash before the commit the row is in
// SOURCE_PENDING, and the source is awaits again. A row in SOURCE_DONE continues from there. The
// history has both.
func pathAfter(t Transfer, op Op, o Outcome) []State {
	switch {
	case o.Verdict == Success && op == Withdraw:
		return []State{SourcePending, SourceDone, TargetPending}
	case o.Verdict == Success && op == Deposit:
		return []State{TargetPending, Committed}
	case o.Verdict == Success && op == Refund:
		return []State{Compensating, RolledBack}
	case o.Verdict != Refused || !wellFormed.MatchString(string(o.Reason)):
		return nil
	case op == Withdraw && o.Reason != Expired && o.Reason != Cancelled: // these reasons mean that the source was never called
		return []State{SourcePending, Failed}
	case op == Deposit && accounts[t.Type.Source()].reversible:
		return []State{TargetPending, Compensating}
	}
	return nil
}

// settle records the ledger's answer.
func (c *Coordinator) settle(ctx context.Context, t *Transfer, op Op, o Outcome) (goOn bool, err error) {
	c.reach(string(op) + ".recording")
	defer c.reach(string(op) + ".recorded")
	path := pathAfter(*t, op, o)
	if path == nil {
		return false, c.postpone(ctx, t, op, o)
	}
	m := Transition{ReqID: t.ReqID, Path: path}
	if o.Verdict == Refused {
		m.Reason = o.Reason
	}
	return c.move(ctx, t, m)
}

// postpone leaves t's state, because the call may or may not have been carried out.
func (c *Coordinator) postpone(ctx context.Context, t *Transfer, op Op, o Outcome) error {
	p := Postponement{
		ReqID: t.ReqID, State: t.State, RetryCount: t.RetryCount,
		First: c.rules.RetryFirst, Most: c.rules.RetryMax, Unknown: o.unknown(op),
	}
	if t.Type == FundingToChain && t.State == TargetPending {
		p.Most = c.rules.PayoutRetryMax
	}
	from := *t
	_, err := c.write(ctx, t, func(ctx context.Context) (TransitionResult, error) { return c.book.Postpone(ctx, p) })
	c.logUnknown(ctx, from, *t, p.Unknown)
	return err
}

// maxUnknownText bounds the stored text of an unknown answer, in bytes.
const maxUnknownText = 500

// unknown describes an answer that decides nothing.
func (o Outcome) unknown(op Op) string {
	text := string(op) + ": "
	switch {
	case o.Err != nil:
		text += o.Err.Error()
	case o.Verdict == Refused:
		text += "refused with " + string(o.Reason) + ", which no " + string(op) + " is refused with"
	default:
		text += "no answer with a result"
	}
	text = strings.ReplaceAll(text[:min(len(text), maxUnknownText)], "\x00", "")
	return strings.ToValidUTF8(text, "?") // Postgres rejects other text
}
