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
// where the signer lives in this process. Another signer is asked only once the
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
		p.wait(w.Queue[0], reason, t.Rules.afterBlocks(1, v.Head, w.now()))
		return p
	}
	p = t.prepareServed(v)
	inProcess, began := t.signer().InProcess(w.submitter()), time.Now()
	for i := range p.allocate {
		if i > 0 && t.signedLong(began) {
			p.allocate = p.allocate[:i]
			break
		}
		a := &p.allocate[i]
		if !inProcess || a.Tx.Handler != "" {
			a.Tx.State, a.Tx.NextCheckAt = InFlight, nil
			continue
		}
		s, err := t.sign(ctx, p.unsigned[i])
		if err != nil {
			p.wait(w.queued(a.Tx), t.notSigned(ctx, a.Tx, err), w.now().Add(t.Rules.BlockTime))
			p.allocate = p.allocate[:i]
			break
		}
		t.pass("signed")
		a.Tx, a.Signed = signedAs(a.Tx, VersionOriginal, s, w.now()), &s
	}
	return p
}

// prepareServed prepares the queue up to the first intent whose handler this
// process does not have: its nonce would be bound with nobody to use it.
func (t *tenure) prepareServed(v View) preparation {
	w, estimates := t.work, estimatesByTx(t.work, t.chain, v.Estimates)
	first := slices.IndexFunc(w.Queue, func(x Tx) bool { return t.unserved(x) != "" })
	if first < 0 {
		return t.Rules.prepare(w, t.chain, v, estimates)
	}
	unserved := w.Queue[first]
	w.Queue = w.Queue[:first]
	p := t.Rules.prepare(w, t.chain, v, estimates)
	if p.through {
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

// signedLong says that what was signed since then is to be stored and sent before more
// is: a slow signer would use up the invocation on a wide window, store nothing, and
// begin at the beginning the next time. The rest is left to the next round.
func (t *tenure) signedLong(began time.Time) bool { return time.Since(began) >= t.signWithin() }

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

// signed is what job comes with, or else what the signer makes of it.
func (t *tenure) signed(ctx context.Context, job signing) (Signed, error) {
	if job.signed != nil {
		return *job.signed, nil
	}
	return t.sign(ctx, job.unsigned)
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
	began := time.Now()
	for i, job := range jobs {
		if i > 0 && t.signedLong(began) {
			break
		}
		s, err := t.signed(ctx, job)
		if errors.Is(err, lease.ErrFenced) {
			return nil, err
		}
		from, served := job.tx.State, job.tx.Ordered
		if err != nil {
			if job.tx.LastError = t.notSigned(ctx, job.tx, err); job.tx.handlerDue() {
				job.tx.SubmitAttempts = 0 // it answered
			}
			if job.extraWei != nil { // meanwhile it is sent as it is
				job.tx = t.Rules.bumpLater(job.tx, t.work.now())
			}
			w.Moves = append(w.Moves, Move{From: from, To: t.Rules.checkNext(job.tx, t.work.now().Add(t.Rules.BlockTime))})
			break
		}
		w.Store = append(w.Store, Version{
			Tx: t.Rules.bumped(signedAs(job.tx, job.kind, s, t.work.now()), job), From: from, Kind: job.kind, Served: served, Signed: s,
			ExtraWei: job.extraWei,
		})
		ids = append(ids, job.tx.ID)
	}
	if w.Empty() {
		return ids, nil
	}
	t.pass("version_signed")
	_, err = t.write(ctx, w, false)
	t.pass("version_stored")
	return ids, err
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
