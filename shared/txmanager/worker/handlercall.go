package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/quorum"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// maxHandlerCalls is how often a handler is called for one nonce without a stored answer. Without
// this limit, a handler that kills its process would be called forever.
const maxHandlerCalls = 3

// handlerCall is one call of one handler, by the lease session that waits for it.
type handlerCall struct {
	session     *invocation
	tx          txmanager.Tx
	observation txmanager.ChainObservation
	outdated    bool                // storing that version found a row that another writer changed
	signed      rules.HandlerResult // the version signed during the call; signed.Stored: there is one
}

// callDueHandler calls the handler that is due, if any. It first stores a claim of the call. A
// handler without an answer after too many calls has failed. outdated reports that another writer
// changed a row meanwhile. With a zero result the handler was not called because of that.
func (t *invocation) callDueHandler(ctx context.Context, v txmanager.ChainObservation) (m rules.HandlerResult, outdated bool, err error) {
	x, due := rules.NextHandlerCall(t.State)
	if !due || t.State.Protected {
		return m, false, nil
	}
	if x.SubmitAttempts >= maxHandlerCalls {
		reason := fmt.Sprintf("handler %s: asked %d times without an answer", x.Handler, x.SubmitAttempts)
		return rules.HandlerResult{TxID: x.ID, Failed: reason}, false, nil
	}
	if x.Forged != "" {
		return m, false, nil // PlanSignatures requests a placeholder for it
	}
	if why := cmp.Or(rules.Unproved(x), txmanager.WaitFor(txmanager.WaitHandler, t.worker.missingHandlerReason(x))); why.Reason != "" {
		return rules.HandlerResult{TxID: x.ID, Wait: why}, false, nil
	}
	x.SubmitAttempts++
	x.FirstSubmitAt = cmp.Or(x.FirstSubmitAt, new(t.State.DatabaseTime()))
	if out, err := t.commit(ctx, txmanager.Commit{Transitions: []txmanager.Transition{{From: txmanager.InFlight, To: x}}}, false); err != nil || out.outdated {
		return m, out.outdated, err
	}
	k := handlerCall{session: t, tx: x, observation: v}
	if m, err = k.callHandler(ctx); err != nil {
		return rules.HandlerResult{}, false, err
	}
	m.TxID, m.Asked = x.ID, true
	return m, k.outdated, nil
}

// missingHandlerReason is why t's handler cannot be called by this process, or "". Another version
// of the program may have the handler.
func (w *Worker) missingHandlerReason(t txmanager.Tx) string {
	if _, known := w.Handlers[t.Handler]; known || t.Handler == "" {
		return ""
	}
	return "no handler " + t.Handler + " in this process"
}

// callHandler calls the handler and checks its result. An error says nothing about the handler: it
// may not have been called.
func (k *handlerCall) callHandler(ctx context.Context) (m rules.HandlerResult, err error) {
	k.session.CrashPoint("handler_asked")
	tx, failed, err := k.runHandler(ctx)
	if err != nil {
		return m, err
	}
	k.session.CrashPoint("handler_answered")
	switch {
	case k.signed.Stored && failed == nil && !bytes.Equal(tx.Signed, k.signed.Signed.Raw):
		failed = errors.New("it returned other bytes than it had signed")
	case k.signed.Stored && failed == nil:
		return k.signed, nil
	case k.signed.Stored:
	case errors.Is(failed, txmanager.ErrRetryLater) && k.session.State.DatabaseTime().Sub(*k.tx.FirstSubmitAt) < k.session.worker.Limits.HandlerPatience:
		return rules.HandlerResult{Wait: txmanager.Wait{Cause: txmanager.WaitHandler, Reason: shorten(fmt.Sprintf("handler %s: %s", k.tx.Handler, failed))}}, nil
	case failed == nil:
		return k.evaluate(ctx, tx)
	}
	return rules.HandlerResult{Failed: k.reason(failed.Error()), Stored: k.signed.Stored}, nil
}

// runHandler renews the lease first, so that the handler gets its full HandlerTimeout. If the
// caller's own ctx ends, that is returned as err, since it says nothing about the handler.
func (k *handlerCall) runHandler(ctx context.Context) (tx txmanager.Transaction, failed, err error) {
	if err := k.session.RenewLease(ctx); err != nil {
		return tx, nil, err
	}
	asked, cancel := k.session.State.Lease.CallContext(ctx, k.session.worker.Limits.HandlerTimeout)
	defer cancel()
	n := txmanager.NonceContext{Submitter: k.tx.Submitter, Nonce: *k.tx.Nonce, TxID: k.tx.ID, RequestID: k.tx.RequestID, Input: k.tx.Payload}
	tx, failed, broken := runHandler(asked, k.session.worker.Handlers[k.tx.Handler], n, func(c txmanager.Call) (txmanager.Signed, error, error) { return k.signForHandler(ctx, c) })
	return tx, failed, cmp.Or(broken, ctx.Err())
}

// reason is reason with the handler's name, shortened.
func (k *handlerCall) reason(reason string) string {
	return shorten(fmt.Sprintf("handler %s: %s", k.tx.Handler, reason))
}

// shorten cuts a text from outside to 300 bytes.
func shorten(text string) string {
	const limit = 300
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// evaluate prices the handler's transaction and checks it against the chain, the balance and the
// submitter's policy.
func (k *handlerCall) evaluate(ctx context.Context, tx txmanager.Transaction) (m rules.HandlerResult, err error) {
	if m, err = k.completeTx(ctx, tx); err != nil || m.Failed != "" {
		return m, err
	}
	if m.Wait.Reason == "" {
		m.Wait = txmanager.WaitFor(txmanager.WaitBalance, k.shortBalanceReason(m))
	}
	if m.Wait.Reason != "" {
		return m, nil
	}
	refused, err := k.session.Store.CheckPolicy(ctx, k.session.State.Lease, k.tx.ID, m.Call)
	switch {
	case err != nil:
		return m, fmt.Errorf("check a handler's transaction of %s against the policy: %w", k.tx.Submitter, err)
	case refused != "":
		return rules.HandlerResult{Failed: k.reason(refused)}, nil
	}
	return m, nil
}

// completeTx fills in gas and fees, or parses the handler's signed bytes.
func (k *handlerCall) completeTx(ctx context.Context, tx txmanager.Transaction) (rules.HandlerResult, error) {
	if tx.Signed != nil {
		return k.parseSigned(tx.Signed), nil
	}
	err := checkCall(tx.Call)
	if err == nil {
		err = k.session.Chain.CheckCall(tx.Call)
	}
	if err != nil {
		return rules.HandlerResult{Failed: k.reason(err.Error())}, nil
	}
	if reason := k.session.Rules.RefusalReason(k.session.State.Bounds, tx.Call); reason != "" {
		return rules.HandlerResult{Failed: k.reason(reason)}, nil
	}
	return k.session.priceCall(ctx, k.tx, rules.HandlerResult{Call: tx.Call}, k.observation)
}

// parseSigned checks signed bytes: signed by the submitter, for its chain and the nonce, at fees
// within the limits of any other transaction.
func (k *handlerCall) parseSigned(raw []byte) rules.HandlerResult {
	from, tx, signed, err := k.session.Chain.ParseSigned(raw)
	if err == nil {
		err = k.checkSigned(from, tx)
	}
	if err != nil {
		return rules.HandlerResult{Failed: k.reason(err.Error())}
	}
	call := txmanager.Call{To: tx.To, Value: tx.Value, Data: tx.Data, Gas: tx.Gas, FeeCapWei: tx.FeeCapWei, TipCapWei: tx.TipCapWei}
	params := txmanager.GasParams{Gas: tx.Gas, Legacy: tx.Legacy, FeeCapWei: tx.FeeCapWei, TipCapWei: tx.TipCapWei, ValueWei: tx.Value}
	if reason := k.session.Rules.SignedFeesReason(k.session.State.Bounds, params, k.observation.Account); reason != "" {
		return rules.HandlerResult{Failed: k.reason(reason)}
	}
	return rules.HandlerResult{Call: call, Params: params, Signed: &signed, Wait: k.session.feeWait(k.tx, params, gas.TooExpensiveReason(call, params, k.observation.Account))}
}

func (k *handlerCall) checkSigned(from txmanager.Address, tx txmanager.Unsigned) error {
	most := k.session.Rules.MaxFeePerGasWei
	switch s := k.tx.Submitter; {
	case from != s.Address():
		return fmt.Errorf("its bytes are signed by %s, not by the submitter", from)
	case tx.ChainID != s.ChainID():
		return fmt.Errorf("its bytes are for chain %d: want %d", tx.ChainID, s.ChainID())
	case tx.Nonce != *k.tx.Nonce:
		return errors.New(txmanager.WithDetail("its bytes have another nonce than the handler was given", fmt.Sprintf("%d, want %d", tx.Nonce, *k.tx.Nonce)))
	case most != nil && tx.FeeCapWei.Cmp(most) > 0:
		return fmt.Errorf("its bytes pay up to %s wei per gas, above fees.maxFeePerGas %s", tx.FeeCapWei, most)
	}
	return checkCall(txmanager.Call{Value: tx.Value, Gas: tx.Gas, FeeCapWei: tx.FeeCapWei, TipCapWei: tx.TipCapWei})
}

// signForHandler signs c for the handler during the call, and stores the bytes before it returns
// them. broken is an error of the lease session, which it ends.
func (k *handlerCall) signForHandler(ctx context.Context, c txmanager.Call) (s txmanager.Signed, refused, broken error) {
	if k.signed.Stored {
		if !sameCall(k.signed.Call, c) {
			return s, txmanager.ErrSignedOther, nil
		}
		return *k.signed.Signed, nil, nil
	}
	m, err := k.evaluate(ctx, txmanager.Transaction{Call: c})
	switch {
	case err != nil:
		return s, nil, err
	case m.Failed != "":
		return s, errors.New(m.Failed), nil
	case m.Wait.Reason != "":
		return s, fmt.Errorf("%w: %s", txmanager.ErrRetryLater, m.Wait.Reason), nil
	}
	job, _ := rules.HandlerVersion(k.tx, m)
	if s, err = k.session.sign(ctx, job.Unsigned); err != nil {
		if errors.Is(err, lease.ErrFenced) {
			return s, nil, err
		}
		return s, fmt.Errorf("%w: %s", txmanager.ErrRetryLater, k.session.logUnsigned(ctx, k.tx, err)), nil
	}
	k.session.CrashPoint("version_signed")
	version := txmanager.Version{Tx: rules.WithVersion(job.Tx, job.Kind, s, k.session.State.DatabaseTime()), From: txmanager.InFlight, Kind: job.Kind, Signed: s}
	out, err := k.session.commit(ctx, txmanager.Commit{Versions: []txmanager.Version{version}}, false)
	if err != nil {
		return s, nil, err
	}
	k.outdated = out.outdated
	k.session.CrashPoint("version_stored")
	m.Signed, m.Stored = &s, true
	k.signed = m
	return s, nil, nil
}

// sameCall reports whether a and b are equal.
func sameCall(a, b txmanager.Call) bool {
	same := func(x, y *big.Int) bool { return (x == nil) == (y == nil) && (x == nil || x.Cmp(y) == 0) }
	return (a.To == nil) == (b.To == nil) && (a.To == nil || *a.To == *b.To) && bytes.Equal(a.Data, b.Data) &&
		a.Gas == b.Gas && a.MaxGas == b.MaxGas &&
		same(a.Value, b.Value) && same(a.FeeCapWei, b.FeeCapWei) && same(a.TipCapWei, b.TipCapWei)
}

// shortBalanceReason is why the account cannot pay for the handler's transaction, or "".
func (k *handlerCall) shortBalanceReason(m rules.HandlerResult) string {
	left := gas.BalanceOf(k.observation, rules.OpenWithout(k.session.State, k.tx.ID))
	if left.Reserve(m.Params) == nil {
		return ""
	}
	return "balance: the account cannot pay for the transaction of handler " + k.tx.Handler + " and a placeholder"
}

// checkCall returns why no chain could carry out c, or nil.
func checkCall(c txmanager.Call) error {
	for name, n := range map[string]*big.Int{"value": c.Value, "maxFeePerGas": c.FeeCapWei, "maxPriorityFeePerGas": c.TipCapWei} {
		if n != nil && (n.Sign() < 0 || n.BitLen() > 256) {
			return fmt.Errorf("its %s is no amount: %s", name, n)
		}
	}
	if c.Gas > 0 && (c.Gas < gas.PlaceholderGas || c.Gas > gas.TxGasCap) {
		return fmt.Errorf("its gas is %d: want %d to %d", c.Gas, gas.PlaceholderGas, gas.TxGasCap)
	}
	return nil
}

// priceCall estimates gas and sets fees for a handler's call. A call that reverts fails only for
// the lowest open nonce, on a node past the last final block: otherwise an open transaction may
// change the result.
func (t *invocation) priceCall(ctx context.Context, x txmanager.Tx, m rules.HandlerResult, v txmanager.ChainObservation) (rules.HandlerResult, error) {
	var e txmanager.Estimate
	if m.Call.Gas == 0 {
		q := txmanager.ChainQuery{Submitter: x.Submitter, Estimates: []txmanager.Call{m.Call}}
		answer, err := t.Query(ctx, q)
		switch {
		case errors.Is(err, lease.ErrFenced):
			return m, err
		case err != nil:
			t.Log.WarnContext(ctx, "chain not reached", append(t.LogAttrs(), "error", err.Error())...)
			return rules.HandlerResult{Wait: txmanager.Wait{Cause: txmanager.WaitNodes, Reason: "no gas estimate: the node is unavailable"}}, nil
		}
		e, v.StartHead, v.Head = answer.Estimates[0], answer.StartHead, answer.Head
		if quorum.WouldRevert(t.State, q, 0, e) {
			err = quorum.Require(ctx, t.Session, q, answer, "the call would revert", quorum.AgreesOnRevert(t.State, q, 0))
		}
		switch {
		case errors.Is(err, txmanager.ErrNoQuorum):
			return rules.HandlerResult{Wait: txmanager.Wait{Cause: txmanager.WaitNodesDiffer, Reason: shorten("no gas estimate: " + err.Error())}}, nil
		case err != nil:
			return m, err
		}
	}
	limit, verdict, reason := gas.LimitOf(m.Call, e, t.State.Bounds.Gas)
	last := *x.Nonce == t.State.LowestOpenNonce() && v.OldestBlock() >= t.State.FinalHead
	switch {
	case verdict == txmanager.Refused && last:
		return rules.HandlerResult{Failed: shorten(fmt.Sprintf("handler %s: %s", x.Handler, reason))}, nil
	case verdict != txmanager.Done:
		why := rules.WithoutEstimate(e, reason)
		why.Reason = shorten(why.Reason)
		return rules.HandlerResult{Wait: why}, nil
	}
	bounds := t.State.Bounds
	m.Params = t.Rules.ClampFees(bounds, t.Rules.ClampToCeiling(gas.CompleteFees(m.Call, limit, v.Account)), v.Account) // no gas bump follows
	m.Wait = t.feeWait(x, m.Params, t.Rules.TooExpensiveReason(bounds, m.Call, m.Params, v.Account))
	return m, nil
}

// feeWait is the wait because no block accepts the fees g, as dear says, or because of those of the day.
func (t *invocation) feeWait(x txmanager.Tx, g txmanager.GasParams, dear string) txmanager.Wait {
	if dear != "" {
		return txmanager.Wait{Cause: txmanager.WaitFeeCeiling, Reason: dear}
	}
	x.Gas = &g
	for _, use := range gas.FeeUses(t.State, txmanager.Commit{Versions: []txmanager.Version{{Tx: x, Kind: txmanager.VersionOriginal}}}) {
		return txmanager.WaitFor(txmanager.WaitPolicy, t.State.Bounds.FeesUsedUpReason(use.AddedWei)) // beyond what its nonce was bound for
	}
	return txmanager.Wait{}
}

// signRequest is a handler's request to its lease session.
type signRequest struct {
	call   txmanager.Call
	answer chan<- signAnswer // buffered for one answer
}

type signAnswer struct {
	signed txmanager.Signed
	err    error
}

// handlerSigner is the [txmanager.NonceSigner] of one handler call. The lease session itself signs, since
// nothing else may write under its lease.
type handlerSigner struct {
	requests chan<- signRequest
	done     <-chan struct{}
}

// Sign implements [txmanager.NonceSigner].
func (b handlerSigner) Sign(ctx context.Context, c txmanager.Call) (txmanager.Signed, error) {
	answer := make(chan signAnswer, 1)
	select {
	case b.requests <- signRequest{c, answer}:
	case <-b.done:
		return txmanager.Signed{}, txmanager.ErrHandlerCallOver
	case <-ctx.Done():
		return txmanager.Signed{}, ctx.Err()
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
		return txmanager.Signed{}, txmanager.ErrHandlerCallOver
	}
}

// runHandler waits for the handler until ctx ends, and meanwhile serves its sign requests. A
// handler that does not return by then is left running. A panic becomes its error. broken is
// sign's error about the lease session.
func runHandler(ctx context.Context, h txmanager.Handler, n txmanager.NonceContext, sign func(txmanager.Call) (s txmanager.Signed, refused, broken error)) (tx txmanager.Transaction, failed, broken error) {
	type answer struct {
		tx  txmanager.Transaction
		err error
	}
	done, over, requests := make(chan answer, 1), make(chan struct{}), make(chan signRequest)
	defer close(over)
	n.Signer = handlerSigner{requests, over}
	go func() {
		var a answer
		if p := txmanager.PanicOf(func() { a.tx, a.err = h(ctx, n) }); p != nil {
			a.err = fmt.Errorf("panic: %v", p)
		}
		done <- a
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
