package nonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// prepare plans what has no bytes yet: nonces that are held, then the queue.
func (t *tenure) prepare(ctx context.Context, v View) preparation {
	held := t.Rules.holdBack(t.work)
	p := t.prepareQueue(ctx, v)
	p.moves = append(held, p.moves...)
	return p
}

// prepareQueue readies the head of the queue, and signs for the expected nonces
// where nobody outside sees the bytes. Another signer is asked only once the
// nonce is bound: what it signed might be seen outside.
func (t *tenure) prepareQueue(ctx context.Context, v View) preparation {
	w := t.work
	if !t.open || len(w.Queue) == 0 || w.seat().most == 0 {
		return preparation{}
	}
	var p preparation
	reason := mayAllocate(w, w.Unsettled, v)
	if seen := amiss(w, v); reason == "" && seen != nil {
		reason = seen.What
	}
	if reason != "" {
		p.moves, p.waiting = w.headWaits(reason, t.Rules.afterBlocks(1, v.Head, w.now())), true
		return p
	}
	t.checkQueue(ctx)
	p = t.prepareServed(v)
	t.signQueue(ctx, &p)
	return p
}

// signQueue signs what p allocates, where that is to be done before its nonce is bound.
// What could not be signed, and all behind it, stays in the queue.
func (t *tenure) signQueue(ctx context.Context, p *preparation) {
	signer, s := t.signer(), t.work.submitter()
	n := slices.IndexFunc(p.allocate, func(a Allocation) bool { return a.Tx.Handler != "" })
	switch {
	case !signer.InProcess(s):
		n = 0
	case n < 0:
		n = len(p.allocate)
	}
	signed, err := t.signAll(ctx, n, t.atOnce(signer), func(ctx context.Context, i int) (Signed, error) { return signer.Sign(ctx, s, p.unsigned[i]) })
	for i := range signed {
		t.pass("signed")
		a := &p.allocate[i]
		a.Tx, a.Signed = signedAs(a.Tx, VersionOriginal, signed[i], t.work.now()), &signed[i]
	}
	if missing := len(signed); missing < n {
		if err != nil {
			x := t.work.queued(p.allocate[missing].Tx)
			x.HeldBackSince, x.DeferredAt = nil, nil
			p.wait(x, t.notSigned(ctx, p.allocate[missing].Tx, err), t.work.now().Add(t.Rules.BlockTime))
		}
		p.allocate = p.allocate[:missing]
		return
	}
	for i := n; i < len(p.allocate); i++ {
		p.allocate[i].Tx.State, p.allocate[i].Tx.NextCheckAt = InFlight, nil
	}
}

// prepareServed prepares the queue up to the first intent whose handler this
// process does not have: its nonce would be bound with nobody to use it.
func (t *tenure) prepareServed(v View) preparation {
	w, estimates := t.work, estimatesByTx(t.work, t.chain, v.Estimates)
	first := slices.IndexFunc(w.Queue, func(x Tx) bool { return x.unproved() == "" && t.unserved(x) != "" })
	if first < 0 {
		return t.Rules.prepare(w, t.chain, v, estimates)
	}
	unserved := w.Queue[first]
	w.Queue = w.Queue[:first]
	p := t.Rules.prepare(w, t.chain, v, estimates)
	if p.through && !p.passed[unserved.PresentCaller] {
		p.wait(unserved, t.unserved(unserved), w.now().Add(t.Rules.BlockTime))
	}
	return p
}

// signer is who has the submitter's key.
func (t *tenure) signer() SubmitterSignService {
	if t.SignerNamed == nil {
		return t.Signer
	}
	return t.SignerNamed(t.work.Signer)
}

// signedLong says that what was signed since then is to be stored and sent before more is:
// after signer.timeout, since a slow signer would use up the invocation on a wide window and
// store nothing; and after a block's time, since what is sent by then goes into the next
// block. The rest is left to the next round.
func (t *tenure) signedLong(began time.Time) bool {
	return time.Since(began) >= min(t.signWithin(), t.Rules.BlockTime)
}

// signWithin is how long one signature may take.
func (t *tenure) signWithin() time.Duration {
	return cmp.Or(t.Rules.SignTimeout, t.Rules.CallTimeout)
}

func (t *tenure) sign(ctx context.Context, tx Unsigned) (s Signed, err error) {
	err = t.callWithin(ctx, t.signWithin(), func(ctx context.Context) error {
		s, err = t.signer().Sign(ctx, t.work.submitter(), tx)
		return err
	})
	return s, err
}

// notSigned tells the log why a signer gave no answer, and returns what a caller
// may know of it.
func (t *tenure) notSigned(ctx context.Context, x Tx, err error) string {
	t.Log.ErrorContext(ctx, "not signed", append(t.attrs(), "txId", x.ID, "error", err.Error())...)
	return "not signed: the signer gave no answer"
}

// signDue signs what needs a version now, in the order of nonces, and stores it
// before anything is done with it. One that cannot be signed waits, and those
// above it with it.
func (t *tenure) signDue(ctx context.Context, v View) (ids []string, err error) {
	if !t.kind.MaySign() {
		return nil, nil
	}
	var w Write
	t.checkBound(ctx)
	answers, ok, err := t.askHandlers(ctx, v)
	if err != nil || !ok {
		return nil, err
	}
	jobs, moves := t.Rules.toSign(t.work.below(t.fresh), t.chain, v, answers)
	w.Moves = moves
	for id, answer := range answers {
		if answer.stored && answer.failed == "" {
			ids = append(ids, id)
		}
	}
	signer := t.signer()
	signed, err := t.signAll(ctx, len(jobs), t.atOnce(signer), func(ctx context.Context, i int) (Signed, error) {
		if jobs[i].signed != nil {
			return *jobs[i].signed, nil
		}
		return signer.Sign(ctx, t.work.submitter(), jobs[i].unsigned)
	})
	if errors.Is(err, lease.ErrFenced) {
		return nil, err
	}
	for i, s := range signed {
		job := jobs[i]
		w.Store = append(w.Store, Version{
			Tx: t.Rules.bumped(signedAs(job.tx, job.kind, s, t.work.now()), job), From: job.tx.State, Kind: job.kind, Served: job.tx.Ordered, Signed: s,
			ExtraWei: job.extraWei,
		})
		ids = append(ids, job.tx.ID)
	}
	if err != nil {
		w.Moves = append(w.Moves, t.unsigned(ctx, jobs[len(signed)], err))
	}
	if w.Empty() {
		return ids, nil
	}
	t.pass("version_signed")
	_, err = t.write(ctx, w, false)
	t.pass("version_stored")
	return ids, err
}

// unsigned has the transaction of job wait, since the signer gave no answer.
func (t *tenure) unsigned(ctx context.Context, job signing, err error) Move {
	from := job.tx.State
	if job.tx.LastError = t.notSigned(ctx, job.tx, err); job.tx.handlerDue() {
		job.tx.SubmitAttempts = 0 // it answered
	}
	if job.extraWei != nil { // meanwhile it is sent as it is
		job.tx = t.Rules.bumpLater(job.tx, t.work.now())
	}
	return Move{From: from, To: t.Rules.checkNext(job.tx, t.work.now().Add(t.Rules.BlockTime))}
}

// send broadcasts the stored bytes of the transactions named, in the order of
// their nonces, and records what the node said of each. Those of again were claimed
// to be sent before.
func (t *tenure) send(ctx context.Context, ids, again []string, head Header) (released bool, err error) {
	txs := t.work.pick(ids)
	raws := make([][]byte, len(txs))
	for i, x := range txs {
		if raws[i] = x.Raw; len(x.Raw) == 0 { // the book leaves them out only where nothing is sent
			return false, fmt.Errorf("transaction %s is to be sent, and its bytes were not loaded", x.ID)
		}
	}
	t.pass("sending")
	began := time.Now()
	var results []SendResult
	err = t.call(ctx, func(ctx context.Context) error {
		results = t.chain.Send(ctx, raws)
		return nil
	})
	if err != nil {
		return false, err
	}
	t.pass("sent")
	t.settleTooLow(ctx, txs, results)
	var w Write
	now, before := t.work.now(), named(again)
	for i, x := range txs {
		res := results[i]
		t.logSent(ctx, x, res)
		t.watchSent(ctx, began, x, res, before[x.ID])
		w.Moves = append(w.Moves, Move{From: x.State, To: t.Rules.sent(x, res, head, now)})
	}
	return t.write(ctx, w, true)
}

// settleTooLow asks the chain about those that it called too low: "nonce too low"
// is a success only where it knows one of our versions. That we know our hash
// says nothing: it is stored before every send.
func (t *tenure) settleTooLow(ctx context.Context, txs []Tx, results []SendResult) {
	q := Look{Submitter: t.work.submitter()}
	for i, x := range txs {
		if results[i].Class == SendNonceTooLow {
			q.Receipts, q.Known = append(q.Receipts, x.Versions...), append(q.Known, x.Versions...)
		}
	}
	if len(q.Known) == 0 {
		return
	}
	v, err := t.look(ctx, q)
	for i, x := range txs {
		if err == nil && results[i].Class == SendNonceTooLow && settledBy(x, v) {
			results[i].Class = SendAlreadyKnown
		}
	}
}
