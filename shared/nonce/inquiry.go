package nonce

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/fencepost/fencepost/shared/lease"
)

// inquiry is one asking of one handler, by the tenure that waits for it.
type inquiry struct {
	t  *tenure
	x  Tx
	v  View
	to made // what it had signed; to.stored: something
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
	if x.Forged != "" {
		return nil, true, nil // toSign has a placeholder in its place
	}
	if reason := cmp.Or(x.Unknown, t.unserved(x)); reason != "" {
		return map[string]made{x.ID: {wait: reason}}, true, nil
	}
	if x.SubmitAttempts++; x.FirstSubmitAt == nil {
		x.FirstSubmitAt = new(t.work.now())
	}
	if _, err := t.write(ctx, Write{Moves: []Move{{From: InFlight, To: x}}}, false); err != nil || t.stale {
		return nil, false, err
	}
	k := inquiry{t: t, x: x, v: v}
	m, err := k.ask(ctx)
	if err != nil {
		return nil, false, err
	}
	m.asked = true
	return map[string]made{x.ID: m}, true, nil
}

// ask asks the handler, and judges what it made. An error says nothing about the
// handler: it may not have been asked.
func (k *inquiry) ask(ctx context.Context) (m made, err error) {
	k.t.pass("handler_asked")
	tx, failed, err := k.run(ctx)
	if err != nil {
		return m, err
	}
	k.t.pass("handler_answered")
	switch {
	case k.to.stored && failed == nil && !bytes.Equal(tx.Signed, k.to.signed.Raw):
		failed = errors.New("it returned other bytes than it had signed")
	case k.to.stored && failed == nil:
		return k.to, nil
	case k.to.stored:
	case errors.Is(failed, ErrNotNow) && k.t.work.now().Sub(*k.x.FirstSubmitAt) < k.t.Rules.HandlerPatience:
		return made{wait: cut(fmt.Sprintf("handler %s: %s", k.x.Handler, failed))}, nil
	case failed == nil:
		return k.judge(ctx, tx)
	}
	return made{failed: k.because(failed.Error()), stored: k.to.stored}, nil
}

// run gives the handler all the time that it was promised: what is left of a lease
// depends on nothing that it can know. That whoever waits for it was stopped says
// nothing about it.
func (k *inquiry) run(ctx context.Context) (tx Transaction, failed, err error) {
	if err := k.t.renew(ctx); err != nil {
		return tx, nil, err
	}
	asked, cancel := k.t.work.Lease.CallContext(ctx, k.t.Rules.HandlerTimeout)
	defer cancel()
	n := NonceContext{Submitter: k.x.Submitter, Nonce: *k.x.Nonce, TxID: k.x.ID, RequestID: k.x.RequestID, Input: k.x.Payload}
	tx, failed, broken := runHandler(asked, k.t.Handlers[k.x.Handler], n, func(c Call) (Signed, error, error) { return k.sign(ctx, c) })
	if broken == nil {
		broken = ctx.Err()
	}
	return tx, failed, broken
}

// because is a reason with the handler's name, cut.
func (k *inquiry) because(reason string) string {
	return cut(fmt.Sprintf("handler %s: %s", k.x.Handler, reason))
}

// judge says what becomes of the transaction that a handler made: it is priced, and
// has to be what the chain, the account and the submitter's policy bear.
func (k *inquiry) judge(ctx context.Context, tx Transaction) (m made, err error) {
	if m, err = k.priced(ctx, tx); err != nil || m.failed != "" {
		return m, err
	}
	if short := k.t.shortOf(k.x, m, k.v); m.wait == "" && short != "" {
		m.wait = short
	}
	if m.wait != "" {
		return m, nil
	}
	refused, err := k.t.permit(ctx, k.x, m.call)
	if err != nil || refused == "" {
		return m, err
	}
	return made{failed: k.because(refused)}, nil
}

// priced is the transaction with gas and fees, and bytes if it came with some.
func (k *inquiry) priced(ctx context.Context, tx Transaction) (made, error) {
	if tx.Signed != nil {
		return k.open(tx.Signed), nil
	}
	err := sane(tx.Call)
	if err == nil {
		err = k.t.chain.Check(tx.Call)
	}
	if err != nil {
		return made{failed: k.because(err.Error())}, nil
	}
	if reason := k.t.Rules.Refuse(k.t.work.Bounds, tx.Call); reason != "" {
		return made{failed: k.because(reason)}, nil
	}
	return k.t.price(ctx, k.x, made{call: tx.Call}, k.v)
}

// open proves signed bytes: they must be the submitter's, for its chain and the
// nonce, and pay no more than anything else here.
func (k *inquiry) open(raw []byte) made {
	from, tx, signed, err := k.t.chain.Open(raw)
	if err == nil {
		err = k.fits(from, tx)
	}
	if err != nil {
		return made{failed: k.because(err.Error())}
	}
	call := Call{To: tx.To, Value: tx.Value, Data: tx.Data, Gas: tx.Gas, FeeCapWei: tx.FeeCapWei, TipCapWei: tx.TipCapWei}
	params := GasParams{Gas: tx.Gas, Legacy: tx.Legacy, FeeCapWei: tx.FeeCapWei, TipCapWei: tx.TipCapWei, ValueWei: tx.Value}
	if reason := k.t.Rules.signedWithin(k.t.work.Bounds, params, k.v.Account); reason != "" {
		return made{failed: k.because(reason)}
	}
	return made{call: call, params: params, signed: &signed, wait: cmp.Or(tooDear(call, params, k.v.Account), k.t.usedUp(k.x, params))}
}

func (k *inquiry) fits(from Address, tx Unsigned) error {
	most := k.t.Rules.FeeCapWei
	switch s := k.x.Submitter; {
	case from != s.Address():
		return fmt.Errorf("its bytes are signed by %s, not by the submitter", from)
	case tx.ChainID != s.ChainID():
		return fmt.Errorf("its bytes are for chain %d: want %d", tx.ChainID, s.ChainID())
	case tx.Nonce != *k.x.Nonce:
		return errors.New(withDetail("its bytes are for another nonce than the one that it was asked for", fmt.Sprintf("%d, want %d", tx.Nonce, *k.x.Nonce)))
	case most != nil && tx.FeeCapWei.Cmp(most) > 0:
		return fmt.Errorf("its bytes pay up to %s wei per gas, above fees.maxFeePerGas %s", tx.FeeCapWei, most)
	}
	return sane(Call{Value: tx.Value, Gas: tx.Gas, FeeCapWei: tx.FeeCapWei, TipCapWei: tx.TipCapWei})
}

// sign signs c for the handler that is being asked, and stores the bytes before it
// has them. broken is about the tenure, which ends by it.
func (k *inquiry) sign(ctx context.Context, c Call) (s Signed, refused, broken error) {
	if k.to.stored {
		if !sameCall(k.to.call, c) {
			return s, ErrSignedOther, nil
		}
		return *k.to.signed, nil, nil
	}
	m, err := k.judge(ctx, Transaction{Call: c})
	switch {
	case err != nil:
		return s, nil, err
	case m.failed != "":
		return s, errors.New(m.failed), nil
	case m.wait != "":
		return s, fmt.Errorf("%w: %s", ErrNotNow, m.wait), nil
	}
	job, _ := handled(k.x, m)
	if s, err = k.t.sign(ctx, job.unsigned); err != nil {
		if errors.Is(err, lease.ErrFenced) {
			return s, nil, err
		}
		return s, fmt.Errorf("%w: %s", ErrNotNow, k.t.notSigned(ctx, k.x, err)), nil
	}
	k.t.pass("version_signed")
	version := Version{Tx: signedAs(job.tx, job.kind, s, k.t.work.now()), From: InFlight, Kind: job.kind, Signed: s}
	if _, err := k.t.write(ctx, Write{Store: []Version{version}}, false); err != nil {
		return s, nil, err
	}
	k.t.pass("version_stored")
	m.signed, m.stored = &s, true
	k.to = m
	return s, nil, nil
}

// sameCall says that a and b ask for the same.
func sameCall(a, b Call) bool {
	same := func(x, y *big.Int) bool { return (x == nil) == (y == nil) && (x == nil || x.Cmp(y) == 0) }
	return (a.To == nil) == (b.To == nil) && (a.To == nil || *a.To == *b.To) && bytes.Equal(a.Data, b.Data) &&
		a.Gas == b.Gas && a.MaxGas == b.MaxGas &&
		same(a.Value, b.Value) && same(a.FeeCapWei, b.FeeCapWei) && same(a.TipCapWei, b.TipCapWei)
}

// permit asks whether the submitter's policy lets a handler's call pass, and counts
// its value. It returns why not, or "".
func (t *tenure) permit(ctx context.Context, x Tx, c Call) (refused string, err error) {
	refused, err = t.Book.Permit(ctx, t.work.Lease, x.ID, c)
	if err != nil {
		return "", fmt.Errorf("hold a handler's transaction of %s to the policy: %w", x.Submitter, err)
	}
	return refused, nil
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

// price estimates the gas of what a handler made. A call that reverts has failed
// only where nothing unsettled can change that, on a node past all that is final.
func (t *tenure) price(ctx context.Context, x Tx, m made, v View) (made, error) {
	var e Estimate
	if m.call.Gas == 0 {
		q := Look{Submitter: x.Submitter, Estimates: []Call{m.call}}
		answer, err := t.look(ctx, q)
		switch {
		case errors.Is(err, lease.ErrFenced):
			return m, err
		case err != nil:
			t.Log.WarnContext(ctx, "chain not reached", append(t.attrs(), "error", err.Error())...)
			return made{wait: "no gas estimate: the node is out of reach"}, nil
		}
		e, v.Since, v.Head = answer.Estimates[0], answer.Since, answer.Head
		if wouldRevert(t.work, q, 0, e) {
			err = t.borneOut(ctx, q, answer, "the call would revert", alsoReverts(t.work, q, 0))
		}
		switch {
		case errors.Is(err, ErrNodes):
			return made{wait: cut("no gas estimate: " + err.Error())}, nil
		case err != nil:
			return m, err
		}
	}
	gas, verdict, reason := gasFor(m.call, e, t.work.Bounds.Gas)
	last := *x.Nonce == t.work.lowest() && v.since() >= t.work.FinalHead
	switch {
	case verdict == Refused && last:
		return made{failed: cut(fmt.Sprintf("handler %s: %s", x.Handler, reason))}, nil
	case verdict != Done:
		return made{wait: cut("no gas estimate: " + reason)}, nil
	}
	bounds := t.work.Bounds
	m.params = t.Rules.within(bounds, t.Rules.underCeiling(fees(m.call, gas, v.Account)), v.Account) // nothing outbids it later
	m.wait = cmp.Or(t.Rules.tooDear(bounds, m.call, m.params, v.Account), t.usedUp(x, m.params))
	return m, nil
}

// usedUp says that what x may cost beyond what its nonce was bound for does not fit into the
// fees of the day, or "".
func (t *tenure) usedUp(x Tx, g GasParams) string {
	x.Gas = &g
	for _, use := range t.work.feesOf(Write{Store: []Version{{Tx: x, Kind: VersionOriginal}}}) {
		return t.work.Bounds.usedUp(use.AddedWei)
	}
	return ""
}

// signRequest is a handler's word to the tenure that waits for it.
type signRequest struct {
	call   Call
	answer chan<- signAnswer // takes one without a reader
}

type signAnswer struct {
	signed Signed
	err    error
}

// bell is the [NonceSigner] of one inquiry: the tenure itself signs, since nothing
// else may write under its lease.
type bell struct {
	requests chan<- signRequest
	over     <-chan struct{}
}

// Sign implements [NonceSigner].
func (b bell) Sign(ctx context.Context, c Call) (Signed, error) {
	answer := make(chan signAnswer, 1)
	select {
	case b.requests <- signRequest{c, answer}:
	case <-b.over:
		return Signed{}, ErrAskedNoMore
	case <-ctx.Done():
		return Signed{}, ctx.Err()
	}
	select {
	case a := <-answer:
		return a.signed, a.err
	case <-b.over:
	}
	select {
	case a := <-answer: // both at once
		return a.signed, a.err
	default:
		return Signed{}, ErrAskedNoMore
	}
}

// runHandler waits for the handler until ctx ends, and signs for it meanwhile: one
// that does not return is left to itself. A panic is its error. broken is what sign
// said of the tenure.
func runHandler(ctx context.Context, h Handler, n NonceContext, sign func(Call) (s Signed, refused, broken error)) (tx Transaction, failed, broken error) {
	type answer struct {
		tx  Transaction
		err error
	}
	done, over, requests := make(chan answer, 1), make(chan struct{}), make(chan signRequest)
	defer close(over)
	n.Signer = bell{requests, over}
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- answer{err: fmt.Errorf("panic: %v", p)}
			}
		}()
		tx, err := h(ctx, n)
		done <- answer{tx, err}
	}()
	for {
		select {
		case a := <-done:
			return a.tx, a.err, nil
		case r := <-requests:
			s, refused, broken := sign(r.call)
			if broken != nil {
				return tx, nil, broken
			}
			r.answer <- signAnswer{s, refused}
		case <-ctx.Done():
			return tx, fmt.Errorf("no answer in time: %w", ctx.Err()), nil
		}
	}
}
