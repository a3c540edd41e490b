package nonce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// tenure is one invocation's time with the lease: one or more rounds, each with
// a token and a load of its own.
type tenure struct {
	*Worker
	chain  ChainConnector
	kind   Kind
	began  time.Time
	work   Work            // as the database has it: every write is carried over
	open   bool            // the queue could be worked on when the chain was asked: only then its estimates were
	untold map[uint64]bool // nonces that a foreign transaction consumed and of which the node does not tell
	blocks int             // how many were read for foreign transactions
	upTo   ForeignReading  // how far they were read
	looked bool            // the chain was asked at least once
	fresh  []string        // transactions about which code decided in this round: the next carries it out
	joined int             // how many have joined the queue since it was loaded, as seen behind the release
	stale  bool            // a row was moved by somebody else, or a mark was passed over: look again

	operator bool // an operator waits for the answer: see borneOut
}

// earlyPolls is how far Cloud Tasks' clock may be ahead of the database's before
// a poll's name can be burnt while its work remains; then the sweep helps.
const earlyPolls = 100 * time.Millisecond

// giveUpWithin bounds the last write of a tenure that failed or was cancelled.
const giveUpWithin = 2 * time.Second

// run goes round until the lease is given back, then asks for what is due next.
func (t *tenure) run(ctx context.Context) error {
	if err := t.readForeign(ctx); err != nil {
		if !errors.Is(err, lease.ErrFenced) {
			t.giveUp(ctx)
		}
		return err
	}
	for {
		released, err := t.round(ctx)
		if err == nil && released {
			t.pass("released")
			return t.wakeNext(ctx)
		}
		if err == nil {
			err = t.again(ctx)
		}
		if err != nil && !errors.Is(err, lease.ErrFenced) {
			t.giveUp(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// again begins the next round, with a token and a load of its own.
func (t *tenure) again(ctx context.Context) error {
	bound, cancel := t.Rules.Lease.WriteContext(ctx, t.work.Lease)
	defer cancel()
	next, err := t.Book.Again(bound, t.work.Lease, t.kind.MaySign() && !t.Rules.Strict)
	if err != nil {
		return fmt.Errorf("go round again for %s: %w", t.work.submitter(), err)
	}
	same := next.Episode == t.work.Episode
	next.ForeignLeft, next.ForeignSoon = t.work.ForeignLeft && same, t.work.ForeignSoon && same
	t.work, t.stale = t.Rules.bind(next).unchecked(), false
	return nil
}

// late says that no further round may begin.
func (t *tenure) late() bool {
	return time.Since(t.began) > t.Rules.RoundsEndAfter || t.Stopping != nil && t.Stopping()
}

// giveUp returns the lease after a failure. The token goes up, so that the
// retried task of this invocation, or any other, finds a fresh name.
func (t *tenure) giveUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpWithin)
	defer cancel()
	_, err := t.Book.Write(ctx, Write{Lease: t.work.Lease, Release: Abandon})
	if errors.Is(err, lease.ErrFenced) { // perhaps by our own round whose answer was lost
		var taken Taken
		if taken, err = t.Book.Take(ctx, t.work.submitter(), t.work.Lease.Owner, false); err == nil && taken.Held {
			_, err = t.Book.Write(ctx, Write{Lease: taken.Work.Lease, Release: Abandon})
		}
	}
	if err != nil {
		t.Log.WarnContext(ctx, "lease not given back: it will run out", append(t.attrs(), "error", err.Error())...)
	}
}

// round looks once and does what is due. It reports whether the lease was given
// back; if not, another round follows.
func (t *tenure) round(ctx context.Context) (released bool, err error) {
	t.open = t.kind.MaySign() && t.work.queueOpen(t.work.now().Add(t.Rules.slack()))
	q, ok := t.Rules.question(t.work, t.kind, t.chain)
	if !ok && (t.kind != KindConfirm || t.looked || len(q.Watch) == 0) {
		return t.write(ctx, Write{}, true)
	}
	t.looked = true
	v, err := t.lookAgreed(ctx, q)
	if err != nil {
		return t.postpone(ctx, q, err)
	}
	j := t.Rules.judge(t.work, q, v)
	if !j.lookAgain {
		return t.act(ctx, v, j)
	}
	q = t.Rules.again(q, v)
	further, err := t.lookAgreed(ctx, q)
	switch {
	case errors.Is(err, lease.ErrFenced):
		return false, err
	case err != nil: // what the first look found stands
		t.Log.WarnContext(ctx, "no headers to prove finality by", append(t.attrs(), "error", err.Error())...)
		return t.act(ctx, v, j)
	}
	j = t.Rules.judge(t.work, q, further)
	if j.lookAgain {
		t.Log.WarnContext(ctx, "the node's headers do not link: nothing can be final by them", append(t.attrs(), "node", further.Node)...)
	}
	return t.act(ctx, further, j)
}

// act writes what the judgement found and what the queue makes of it, then
// sends what was claimed.
func (t *tenure) act(ctx context.Context, v View, j judgement) (released bool, err error) {
	t.pass("looked")
	t.fresh = nil
	t.resolve(ctx, &j)
	before := t.work
	t.work.Unsettled = j.unsettled()
	t.work.FinalHead = max(t.work.FinalHead, j.finalHead)
	p := t.prepare(ctx, v)
	before.Lease = t.work.Lease // signing may have renewed it
	t.work = before

	w := Write{Moves: append(j.moves, p.moves...), Allocate: p.allocate, Cursor: suspect(t.work, v)}
	if err := t.identify(ctx, w.Cursor.Protect); err != nil {
		return false, err
	}
	if w.Cursor.FinalHead = j.finalHead; len(j.finals) > 0 {
		w.Cursor.Final = t.Rules.remember(t.work.FinalBlocks, j.finals)
	}
	healing := t.work.Protected && !t.work.Foreign && stands(t.work, v) == finalsFell
	sending := len(j.resend)+len(p.allocate) > 0 || t.mustSign(j.after)
	released, err = t.write(ctx, w, !sending && !healing)
	switch {
	case err == nil && healing:
		if err = t.heal(ctx, v); err != nil {
			return false, err
		}
		return t.write(ctx, Write{}, true)
	case err != nil || !sending || t.stale:
		return released, err
	}
	if len(p.allocate) > 0 {
		t.pass("stored")
	}
	if len(j.resend) > 0 {
		t.pass("claimed")
	}
	signed, err := t.signDue(ctx, v)
	if err != nil || t.stale {
		return false, err
	}
	ids := slices.Concat(j.claimed(), w.signed(), signed)
	if len(ids) == 0 {
		return t.write(ctx, Write{}, true)
	}
	return t.send(ctx, ids, j.claimed(), v.Head)
}

// mustSign says whether a version may be due: of a nonce that has none yet, or
// by an order.
func (t *tenure) mustSign(txs []Tx) bool {
	return t.kind.MaySign() && !t.work.Protected &&
		slices.ContainsFunc(txs, func(x Tx) bool { return x.State == InFlight || x.ordersOpen() || t.Rules.bumpDue(x, t.work.now()) })
}

// look asks the chain once, within the lease.
func (t *tenure) look(ctx context.Context, q Look) (v View, err error) {
	err = t.call(ctx, func(ctx context.Context) error {
		v, err = t.chain.Look(ctx, q)
		return err
	})
	return v, err
}

// call makes one call to the outside, which must end before the lease does.
func (t *tenure) call(ctx context.Context, f func(context.Context) error) error {
	return t.callWithin(ctx, t.Rules.CallTimeout, f)
}

func (t *tenure) callWithin(ctx context.Context, most time.Duration, f func(context.Context) error) error {
	if t.Rules.Lease.Short(t.work.Lease) {
		if err := t.renew(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := t.work.Lease.CallContext(ctx, most)
	defer cancel()
	return f(ctx)
}

func (t *tenure) renew(ctx context.Context) error {
	bound, cancel := t.Rules.Lease.WriteContext(ctx, t.work.Lease)
	defer cancel()
	renewed, err := t.Book.Renew(bound, t.work.Lease)
	if err != nil {
		return fmt.Errorf("renew lease of %s: %w", t.work.submitter(), err)
	}
	t.work.Lease = renewed
	return nil
}

// postpone plans the next look after one that brought nothing.
func (t *tenure) postpone(ctx context.Context, q Look, cause error) (released bool, err error) {
	if errors.Is(cause, lease.ErrFenced) {
		return false, cause
	}
	t.Log.WarnContext(ctx, "chain not reached", append(t.attrs(), "error", cause.Error())...)
	var w Write
	again := t.work.now().Add(t.Rules.BlockTime)
	about := q.about()
	for _, x := range t.work.Unsettled {
		if len(x.Versions) > 0 && !about(x) {
			continue
		}
		if x.NextResubmitAt != nil && x.NextResubmitAt.Before(again) {
			x.NextResubmitAt = &again
		}
		w.Moves = append(w.Moves, Move{From: x.State, To: t.Rules.checkNext(x, again)})
	}
	if t.kind.MaySign() && t.work.queueOpen(again) {
		w.Moves = append(w.Moves, t.work.headWaits("the node is out of reach", again)...)
	}
	return t.write(ctx, w, true)
}

// write makes w true and carries it over to the work in hand. With last, the
// lease is given back in the same transaction, unless there is more to do now.
func (t *tenure) write(ctx context.Context, w Write, last bool) (released bool, err error) {
	w.Lease = t.work.Lease
	w.Moves = append(w.Moves, t.work.expire(w.Cursor)...)
	after := t.work.with(w)
	if last {
		w.Release = t.release(after)
	}
	if w.Empty() {
		return false, nil
	}
	w.Fees = t.work.feesOf(w)
	began := time.Now()
	bound, cancel := t.Rules.Lease.WriteContext(ctx, w.Lease)
	defer cancel()
	written, err := t.Book.Write(bound, w)
	if err != nil {
		return false, fmt.Errorf("write for %s: %w", t.work.submitter(), err)
	}
	t.wrote(ctx, began, w, written)
	t.work = t.work.with(w.bound(written))
	t.stale = written.Moved < len(w.Moves) || w.Release == Abandon
	if written.Released {
		t.work.Lease.Token = written.Token
		t.joined = written.Queued
		t.stale = t.stale || (w.Release == GiveBack && written.Suspended != t.work.Suspended)
	}
	return written.Released, nil
}

// release decides how the lease ends with the last write of a round: not at all
// where this invocation can go on at once.
func (t *tenure) release(after Work) Release {
	if t.late() {
		return Abandon
	}
	if advance := t.Rules.due(after).advance; advance && t.kind.MaySign() || !advance && behind(after) {
		return Keep
	}
	return GiveBack
}

// behind says that a block has come which nobody has looked at, for something
// that was sent: a poll would come a second later than need be. A look
// leaves the next one planned ahead, so that this ends.
func behind(w Work) bool {
	return !w.Protected && slices.ContainsFunc(w.Unsettled, func(x Tx) bool {
		return x.Sub == Pending && x.NextCheckAt != nil && !x.NextCheckAt.After(w.now())
	})
}

// pace is how much later a submitter is served again that was just served, for what
// came meanwhile: so that many intents share a look instead of having one each. What
// is due before then does not wait.
func (r Rules) pace(d due, now time.Time) time.Time {
	at := now.Add(min(r.BlockTime/2, 500*time.Millisecond))
	if !d.at.IsZero() && d.at.Before(at) {
		return d.at
	}
	return at
}

// wakeNext asks for the next look, after the lease was given back, under the
// token then in force. An advance looks at everything, so that no poll is needed
// beside it; but for whoever may not sign, so that the watch does not hang on the
// one function that may.
func (t *tenure) wakeNext(ctx context.Context) error {
	ctx = t.onward(ctx)
	s, d := t.work.submitter(), t.Rules.due(t.work)
	with := t.work
	with.QueueMore = with.QueueMore || t.joined > 0
	soon := t.Rules.due(with).advance
	var err error
	switch {
	case d.advance, t.stale, soon && t.joined >= Company:
		err = t.Wake.Advance(ctx, s, t.work.Lease.Token)
	case soon:
		err = t.Wake.AdvanceAt(ctx, s, t.work.Lease.Token, t.Rules.pace(d, t.work.now()))
	}
	if err != nil {
		return fmt.Errorf("enqueue advance for %s: %w", s, err)
	}
	if d.at.IsZero() || t.kind.MaySign() && (d.advance || t.stale || soon) {
		return nil
	}
	// A poll that ran in this second may have used up its name, and one of the
	// next second may run a little early by the database's clock.
	at := d.at
	if next := t.work.now().Add(earlyPolls).Truncate(time.Second).Add(time.Second); at.Before(next) {
		at = next
	}
	if err := t.Wake.Poll(ctx, s, d.kind, at); err != nil {
		return fmt.Errorf("enqueue %s for %s: %w", d.kind, s, err)
	}
	return nil
}
