package txmanager

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

// handlerCall is one call of one handler, by the lease session that waits for it.
type handlerCall struct {
	session     *invocation
	tx          Tx
	observation ChainObservation
	signed      handlerResult // the version signed during the call; signed.stored: there is one
}

// callHandlers calls the handler that is due, if any. It first stores a claim of the call. A
// handler without an answer after too many calls has failed. ok is false where another writer
// changed the row meanwhile.
func (t *invocation) callHandlers(ctx context.Context, v ChainObservation) (answers map[string]handlerResult, ok bool, err error) {
	x, due := t.state.nextHandlerCall()
	if !due || t.state.Protected {
		return nil, true, nil
	}
	if x.SubmitAttempts >= maxHandlerCalls {
		reason := fmt.Sprintf("handler %s: asked %d times without an answer", x.Handler, x.SubmitAttempts)
		return map[string]handlerResult{x.ID: {failed: reason}}, true, nil
	}
	if x.Forged != "" {
		return nil, true, nil // planSignatures requests a placeholder for it
	}
	if reason := cmp.Or(x.Unknown, t.worker.missingHandlerReason(x)); reason != "" {
		return map[string]handlerResult{x.ID: {wait: reason}}, true, nil
	}
	if x.SubmitAttempts++; x.FirstSubmitAt == nil {
		x.FirstSubmitAt = new(t.state.now())
	}
	if _, err := t.commit(ctx, Commit{Transitions: []Transition{{From: InFlight, To: x}}}, false); err != nil || t.outdated {
		return nil, false, err
	}
	k := handlerCall{session: t, tx: x, observation: v}
	m, err := k.callHandler(ctx)
	if err != nil {
		return nil, false, err
	}
	m.asked = true
	return map[string]handlerResult{x.ID: m}, true, nil
}

// callHandler calls the handler and checks its result. An error says nothing about the handler: it
// may not have been called.
func (k *handlerCall) callHandler(ctx context.Context) (m handlerResult, err error) {
	k.session.reached("handler_asked")
	tx, failed, err := k.runHandler(ctx)
	if err != nil {
		return m, err
	}
	k.session.reached("handler_answered")
	switch {
	case k.signed.stored && failed == nil && !bytes.Equal(tx.Signed, k.signed.signed.Raw):
		failed = errors.New("it returned other bytes than it had signed")
	case k.signed.stored && failed == nil:
		return k.signed, nil
	case k.signed.stored:
	case errors.Is(failed, ErrNotNow) && k.session.state.now().Sub(*k.tx.FirstSubmitAt) < k.session.worker.Limits.HandlerPatience:
		return handlerResult{wait: shorten(fmt.Sprintf("handler %s: %s", k.tx.Handler, failed))}, nil
	case failed == nil:
		return k.evaluate(ctx, tx)
	}
	return handlerResult{failed: k.reason(failed.Error()), stored: k.signed.stored}, nil
}

// runHandler renews the lease first, so that the handler gets its full HandlerTimeout. If the
// caller's own ctx ends, that is returned as err, since it says nothing about the handler.
func (k *handlerCall) runHandler(ctx context.Context) (tx Transaction, failed, err error) {
	if err := k.session.renewLease(ctx); err != nil {
		return tx, nil, err
	}
	asked, cancel := k.session.state.Lease.CallContext(ctx, k.session.worker.Limits.HandlerTimeout)
	defer cancel()
	n := NonceContext{Submitter: k.tx.Submitter, Nonce: *k.tx.Nonce, TxID: k.tx.ID, RequestID: k.tx.RequestID, Input: k.tx.Payload}
	tx, failed, broken := runHandler(asked, k.session.worker.Handlers[k.tx.Handler], n, func(c Call) (Signed, error, error) { return k.signForHandler(ctx, c) })
	if broken == nil {
		broken = ctx.Err()
	}
	return tx, failed, broken
}

// reason is reason with the handler's name, shortened.
func (k *handlerCall) reason(reason string) string {
	return shorten(fmt.Sprintf("handler %s: %s", k.tx.Handler, reason))
}

// evaluate prices the handler's transaction and checks it against the chain, the balance and the
// submitter's policy.
func (k *handlerCall) evaluate(ctx context.Context, tx Transaction) (m handlerResult, err error) {
	if m, err = k.completeTx(ctx, tx); err != nil || m.failed != "" {
		return m, err
	}
	if short := k.session.shortBalanceReason(k.tx, m, k.observation); m.wait == "" && short != "" {
		m.wait = short
	}
	if m.wait != "" {
		return m, nil
	}
	refused, err := k.session.checkPolicy(ctx, k.tx, m.call)
	if err != nil || refused == "" {
		return m, err
	}
	return handlerResult{failed: k.reason(refused)}, nil
}

// completeTx fills in gas and fees, or parses the handler's signed bytes.
func (k *handlerCall) completeTx(ctx context.Context, tx Transaction) (handlerResult, error) {
	if tx.Signed != nil {
		return k.parseSigned(tx.Signed), nil
	}
	err := checkCall(tx.Call)
	if err == nil {
		err = k.session.chain.CheckCall(tx.Call)
	}
	if err != nil {
		return handlerResult{failed: k.reason(err.Error())}, nil
	}
	if reason := k.session.Rules.RefusalReason(k.session.state.Bounds, tx.Call); reason != "" {
		return handlerResult{failed: k.reason(reason)}, nil
	}
	return k.session.priceCall(ctx, k.tx, handlerResult{call: tx.Call}, k.observation)
}

// parseSigned checks signed bytes: signed by the submitter, for its chain and the nonce, at fees
// within the limits of any other transaction.
func (k *handlerCall) parseSigned(raw []byte) handlerResult {
	from, tx, signed, err := k.session.chain.ParseSigned(raw)
	if err == nil {
		err = k.checkSigned(from, tx)
	}
	if err != nil {
		return handlerResult{failed: k.reason(err.Error())}
	}
	call := Call{To: tx.To, Value: tx.Value, Data: tx.Data, Gas: tx.Gas, FeeCapWei: tx.FeeCapWei, TipCapWei: tx.TipCapWei}
	params := GasParams{Gas: tx.Gas, Legacy: tx.Legacy, FeeCapWei: tx.FeeCapWei, TipCapWei: tx.TipCapWei, ValueWei: tx.Value}
	if reason := k.session.Rules.signedFeesReason(k.session.state.Bounds, params, k.observation.Account); reason != "" {
		return handlerResult{failed: k.reason(reason)}
	}
	return handlerResult{call: call, params: params, signed: &signed, wait: cmp.Or(tooExpensiveReason(call, params, k.observation.Account), k.session.feesUsedUpReason(k.tx, params))}
}

func (k *handlerCall) checkSigned(from Address, tx Unsigned) error {
	most := k.session.Rules.FeeCapWei
	switch s := k.tx.Submitter; {
	case from != s.Address():
		return fmt.Errorf("its bytes are signed by %s, not by the submitter", from)
	case tx.ChainID != s.ChainID():
		return fmt.Errorf("its bytes are for chain %d: want %d", tx.ChainID, s.ChainID())
	case tx.Nonce != *k.tx.Nonce:
		return errors.New(withDetail("its bytes are for another nonce than the one that it was asked for", fmt.Sprintf("%d, want %d", tx.Nonce, *k.tx.Nonce)))
	case most != nil && tx.FeeCapWei.Cmp(most) > 0:
		return fmt.Errorf("its bytes pay up to %s wei per gas, above fees.maxFeePerGas %s", tx.FeeCapWei, most)
	}
	return checkCall(Call{Value: tx.Value, Gas: tx.Gas, FeeCapWei: tx.FeeCapWei, TipCapWei: tx.TipCapWei})
}

// signForHandler signs c for the handler during the call, and stores the bytes before it returns
// them. broken is an error of the lease session, which it ends.
func (k *handlerCall) signForHandler(ctx context.Context, c Call) (s Signed, refused, broken error) {
	if k.signed.stored {
		if !sameCall(k.signed.call, c) {
			return s, ErrSignedOther, nil
		}
		return *k.signed.signed, nil, nil
	}
	m, err := k.evaluate(ctx, Transaction{Call: c})
	switch {
	case err != nil:
		return s, nil, err
	case m.failed != "":
		return s, errors.New(m.failed), nil
	case m.wait != "":
		return s, fmt.Errorf("%w: %s", ErrNotNow, m.wait), nil
	}
	job, _ := handlerVersion(k.tx, m)
	if s, err = k.session.sign(ctx, job.unsigned); err != nil {
		if errors.Is(err, lease.ErrFenced) {
			return s, nil, err
		}
		return s, fmt.Errorf("%w: %s", ErrNotNow, k.session.logUnsigned(ctx, k.tx, err)), nil
	}
	k.session.reached("version_signed")
	version := Version{Tx: withVersion(job.tx, job.kind, s, k.session.state.now()), From: InFlight, Kind: job.kind, Signed: s}
	if _, err := k.session.commit(ctx, Commit{Versions: []Version{version}}, false); err != nil {
		return s, nil, err
	}
	k.session.reached("version_stored")
	m.signed, m.stored = &s, true
	k.signed = m
	return s, nil, nil
}

// sameCall reports whether a and b are equal.
func sameCall(a, b Call) bool {
	same := func(x, y *big.Int) bool { return (x == nil) == (y == nil) && (x == nil || x.Cmp(y) == 0) }
	return (a.To == nil) == (b.To == nil) && (a.To == nil || *a.To == *b.To) && bytes.Equal(a.Data, b.Data) &&
		a.Gas == b.Gas && a.MaxGas == b.MaxGas &&
		same(a.Value, b.Value) && same(a.FeeCapWei, b.FeeCapWei) && same(a.TipCapWei, b.TipCapWei)
}

// checkPolicy checks a handler's call against the submitter's policy and counts its value. It
// returns why the policy refuses it, or "".
func (t *invocation) checkPolicy(ctx context.Context, x Tx, c Call) (refused string, err error) {
	refused, err = t.Store.CheckPolicy(ctx, t.state.Lease, x.ID, c)
	if err != nil {
		return "", fmt.Errorf("check a handler's transaction of %s against the policy: %w", x.Submitter, err)
	}
	return refused, nil
}

// shortBalanceReason is why the account cannot pay for the handler's transaction, or "".
func (t *invocation) shortBalanceReason(x Tx, m handlerResult, v ChainObservation) string {
	if m.failed != "" || m.wait != "" {
		return ""
	}
	others := slices.DeleteFunc(slices.Clone(t.state.Open), func(u Tx) bool { return u.ID == x.ID })
	left := newAvailableBalance(v, others)
	if left.reserve(m.params) == nil {
		return ""
	}
	return "balance: the account cannot pay for what handler " + x.Handler + " made, and a placeholder"
}

// checkCall returns why no chain could carry out c, or nil.
func checkCall(c Call) error {
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

// priceCall estimates gas and sets fees for a handler's call. A call that reverts fails only for
// the lowest open nonce, on a node past the last final block: otherwise an open transaction may
// change the result.
func (t *invocation) priceCall(ctx context.Context, x Tx, m handlerResult, v ChainObservation) (handlerResult, error) {
	var e Estimate
	if m.call.Gas == 0 {
		q := ChainQuery{Submitter: x.Submitter, Estimates: []Call{m.call}}
		answer, err := t.query(ctx, q)
		switch {
		case errors.Is(err, lease.ErrFenced):
			return m, err
		case err != nil:
			t.Log.WarnContext(ctx, "chain not reached", append(t.logAttrs(), "error", err.Error())...)
			return handlerResult{wait: "no gas estimate: the node is out of reach"}, nil
		}
		e, v.StartHead, v.Head = answer.Estimates[0], answer.StartHead, answer.Head
		if wouldRevert(t.state, q, 0, e) {
			err = t.requireQuorum(ctx, q, answer, "the call would revert", agreesOnRevert(t.state, q, 0))
		}
		switch {
		case errors.Is(err, ErrNoQuorum):
			return handlerResult{wait: shorten("no gas estimate: " + err.Error())}, nil
		case err != nil:
			return m, err
		}
	}
	limit, verdict, reason := gasLimit(m.call, e, t.state.Bounds.Gas)
	last := *x.Nonce == t.state.lowestOpenNonce() && v.oldestBlock() >= t.state.FinalHead
	switch {
	case verdict == Refused && last:
		return handlerResult{failed: shorten(fmt.Sprintf("handler %s: %s", x.Handler, reason))}, nil
	case verdict != Done:
		return handlerResult{wait: shorten("no gas estimate: " + reason)}, nil
	}
	bounds := t.state.Bounds
	m.params = t.Rules.clampFees(bounds, t.Rules.clampToCeiling(completeFees(m.call, limit, v.Account)), v.Account) // no gas bump follows
	m.wait = cmp.Or(t.Rules.tooExpensiveReason(bounds, m.call, m.params, v.Account), t.feesUsedUpReason(x, m.params))
	return m, nil
}

// feesUsedUpReason is why the cost of x beyond what its nonce was bound for exceeds the fees of
// the day, or "".
func (t *invocation) feesUsedUpReason(x Tx, g GasParams) string {
	x.Gas = &g
	for _, use := range t.state.feeUses(Commit{Versions: []Version{{Tx: x, Kind: VersionOriginal}}}) {
		return t.state.Bounds.feesUsedUpReason(use.AddedWei)
	}
	return ""
}

// signRequest is a handler's request to its lease session.
type signRequest struct {
	call   Call
	answer chan<- signAnswer // buffered for one answer
}

type signAnswer struct {
	signed Signed
	err    error
}

// handlerSigner is the [NonceSigner] of one handler call. The lease session itself signs, since
// nothing else may write under its lease.
type handlerSigner struct {
	requests chan<- signRequest
	done     <-chan struct{}
}

// Sign implements [NonceSigner].
func (b handlerSigner) Sign(ctx context.Context, c Call) (Signed, error) {
	answer := make(chan signAnswer, 1)
	select {
	case b.requests <- signRequest{c, answer}:
	case <-b.done:
		return Signed{}, ErrHandlerCallOver
	case <-ctx.Done():
		return Signed{}, ctx.Err()
	}
	select {
	case a := <-answer:
		return a.signed, a.err
	case <-b.done:
	}
	select {
	case a := <-answer: // both channels were ready
		return a.signed, a.err
	default:
		return Signed{}, ErrHandlerCallOver
	}
}

// runHandler waits for the handler until ctx ends, and meanwhile serves its sign requests. A
// handler that does not return by then is left running. A panic becomes its error. broken is
// sign's error about the lease session.
func runHandler(ctx context.Context, h Handler, n NonceContext, sign func(Call) (s Signed, refused, broken error)) (tx Transaction, failed, broken error) {
	type answer struct {
		tx  Transaction
		err error
	}
	done, over, requests := make(chan answer, 1), make(chan struct{}), make(chan signRequest)
	defer close(over)
	n.Signer = handlerSigner{requests, over}
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
