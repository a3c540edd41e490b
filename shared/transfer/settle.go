package transfer

import (
	"context"
	"strings"
)

// follows is where an answer to op leads, or nil: it stays. Only a success, or a
// refusal that the ledger has stored, leads anywhere.
//
// A successful withdrawal makes two transitions in one commit. Both stand on the
// same fact, and nothing is called between them: SOURCE_DONE says that the source
// answered, TARGET_PENDING that the target may be called, and once both are
// committed both are true. A crash before the commit leaves SOURCE_PENDING, where
// the source is asked again; a row that stands in SOURCE_DONE goes on from there.
// The history has each of the two.
func follows(t Transfer, op Op, o Outcome) []State {
	switch {
	case o.Verdict == Success && op == Withdraw:
		return []State{SourcePending, SourceDone, TargetPending}
	case o.Verdict == Success && op == Deposit:
		return []State{TargetPending, Committed}
	case o.Verdict == Success && op == Refund:
		return []State{Compensating, RolledBack}
	case o.Verdict != Refused || !o.Reason.wellFormed():
		return nil
	case op == Withdraw && o.Reason != Expired && o.Reason != Cancelled: // those say that the source was never called
		return []State{SourcePending, Failed}
	case op == Deposit && accounts[t.Type.Source()].reversible:
		return []State{TargetPending, Compensating}
	}
	return nil
}

// settle records what the ledger answered.
func (c *Coordinator) settle(ctx context.Context, t *Transfer, op Op, o Outcome) (goOn bool, err error) {
	c.pass(string(op) + ".recording")
	defer c.pass(string(op) + ".recorded")
	path := follows(*t, op, o)
	if path == nil {
		return false, c.postpone(ctx, t, op, o)
	}
	m := Move{ReqID: t.ReqID, Path: path}
	if o.Verdict == Refused {
		m.Reason = o.Reason
	}
	return c.move(ctx, t, m)
}

// postpone leaves t where it is: nobody knows whether the call was carried out.
func (c *Coordinator) postpone(ctx context.Context, t *Transfer, op Op, o Outcome) error {
	p := Postponement{
		ReqID: t.ReqID, State: t.State, RetryCount: t.RetryCount,
		First: c.rules.RetryFirst, Most: c.rules.retryMost(*t), Unknown: o.unknown(op),
	}
	from := *t
	_, err := c.write(ctx, t, func(ctx context.Context) (Moved, error) { return c.book.Postpone(ctx, p) })
	c.logUnknown(ctx, from, *t, p.Unknown)
	return err
}

// unknownMost bounds what is kept of an unknown answer.
const unknownMost = 500

// unknown says what was not understood.
func (o Outcome) unknown(op Op) string {
	text := string(op) + ": "
	switch {
	case o.Err != nil:
		text += o.Err.Error()
	case o.Verdict == Refused:
		text += "refused with " + string(o.Reason) + ", which no " + string(op) + " is refused with"
	default:
		text += "no answer that says what became of it"
	}
	text = strings.ReplaceAll(text[:min(len(text), unknownMost)], "\x00", "")
	return strings.ToValidUTF8(text, "?") // the database takes no other
}
