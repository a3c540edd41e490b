package rules

import (
	"cmp"
	"math/big"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
)

// SigningJob is one transaction to be signed now.
type SigningJob struct {
	Tx       txmanager.Tx // with the gas parameters of the new version
	Kind     txmanager.VersionKind
	Unsigned txmanager.Unsigned
	Signed   *txmanager.Signed // its bytes, already signed and checked; nil: still to be signed
	ExtraWei *big.Int          // of a gas bump: what it may cost beyond the version before; nil: no gas bump
}

// OpenBelow is w with only the open transactions below the lowest one named. The next iteration
// carries out the decisions of this one, and no higher transaction is signed before that.
func OpenBelow(w txmanager.SubmitterState, ids []string) txmanager.SubmitterState {
	if i := slices.IndexFunc(w.Open, func(t txmanager.Tx) bool { return slices.Contains(ids, t.ID) }); i >= 0 {
		w.Open = w.Open[:i]
	}
	return w
}

// signaturePlanner plans the signatures of one iteration.
type signaturePlanner struct {
	Rules
	w      txmanager.SubmitterState
	chain  txmanager.ChainConnector
	v      txmanager.ChainObservation
	answer HandlerResult // of the one handler that was called; its TxID is "" if none was
	bumps  *gas.BumpPlanner
	now    time.Time

	jobs  []SigningJob
	moves []txmanager.Transition
}

// PlanSignatures collects the allocated nonces that need a version now: those never signed, and
// those that a requested action or a gas bump replaces. A transaction that cannot be signed now
// gets a transition with the reason. Nothing is signed above a nonce that no node holds and that is
// not sent in this iteration.
func (r Rules) PlanSignatures(w txmanager.SubmitterState, chain txmanager.ChainConnector, v txmanager.ChainObservation, answer HandlerResult) (jobs []SigningJob, moves []txmanager.Transition) {
	if w.Protected {
		return nil, nil
	}
	p := signaturePlanner{Rules: r, w: w, chain: chain, v: v, answer: answer, bumps: r.NewBumpPlanner(w, chain, v), now: w.DatabaseTime()}
	for i, t := range w.Open {
		if waitsForWindow(w, i) || !p.plan(t) {
			break
		}
	}
	return p.jobs, p.moves
}

// The methods below plan what t needs. They report whether the transactions above t may be signed too.

// plan signs nothing while any version has a receipt: then the mined version decides.
func (p *signaturePlanner) plan(t txmanager.Tx) (next bool) {
	var answer HandlerResult
	if p.answer.TxID == t.ID {
		answer = p.answer
	}
	switch {
	case !answer.Stored && !HasNoReceipt(t, p.v): // of bytes stored since the query, no node has a receipt yet
		return t.IsBroadcasting()
	case t.IsExecutedElsewhere(), t.FillsLostNonce && len(t.Versions) == 0:
		return p.signPlaceholder(t)
	case answer.Failed != "" && t.Forged == "": // for a forged row the MAC is the reason
		return p.replaceByPlaceholder(t, DecidedByHandler, answer.Failed)
	case answer.Stored:
		return t.IsBroadcasting()
	}
	return p.planPhase(t, answer)
}

// planPhase plans what ends t's phase. answer is that of its handler, if it was called.
func (p *signaturePlanner) planPhase(t txmanager.Tx, answer HandlerResult) (next bool) {
	switch phase := t.Phase(); {
	case phase == txmanager.AwaitingMark && t.IsExpired(p.now):
		p.moves = append(p.moves, p.expireReservation(t, p.w))
	case (phase == txmanager.AwaitingHandler || phase == txmanager.AwaitingSignature) && t.Forged != "":
		return p.replaceByPlaceholder(t, DecidedByMAC, t.Forged)
	case phase == txmanager.AwaitingHandler && answer.TxID != "": // otherwise the handler call is claimed first
		job, why := HandlerVersion(t, answer)
		return p.sign(t, job, why)
	case phase == txmanager.AwaitingSignature && t.IsDueBy(p.now):
		job, why := FirstVersion(t, p.chain)
		return p.sign(t, job, why)
	case phase == txmanager.AwaitingAction:
		return p.planAction(t)
	case p.IsBumpDue(t, p.now):
		return p.planBump(t)
	}
	return t.IsBroadcasting()
}

// sign plans t's next version, unless t must wait.
func (p *signaturePlanner) sign(t txmanager.Tx, job SigningJob, why txmanager.Wait) (next bool) {
	if why.Reason != "" {
		return p.wait(t, why)
	}
	p.jobs = append(p.jobs, job)
	return true
}

func (p *signaturePlanner) signPlaceholder(t txmanager.Tx) (next bool) {
	job, why := p.placeholderVersion(t, p.v)
	return p.sign(t, job, why)
}

// replaceByPlaceholder requests a placeholder for t, so that later transactions can proceed.
func (p *signaturePlanner) replaceByPlaceholder(t txmanager.Tx, by, reason string) (next bool) {
	p.moves = append(p.moves, p.requestPlaceholder(t, by, reason, p.w))
	return false
}

// planAction plans the version that t's requested action needs.
func (p *signaturePlanner) planAction(t txmanager.Tx) (next bool) {
	switch replace := t.RequestedAction == txmanager.ActionReplace; {
	case t.RequestedAction == txmanager.ActionRebroadcast:
		return t.IsBroadcasting()
	case t.RequestedAction == txmanager.ActionCancel && p.AskBeforePlaceholder:
		return p.wait(t, txmanager.Wait{Cause: txmanager.WaitForOperator, Reason: "a cancel was asked for, and nonce.placeholder=ask: an operator must decide"})
	case replace && t.IsMadeElsewhere():
		return p.wait(t, txmanager.Wait{Cause: txmanager.WaitForOperator, Reason: "a transaction of a handler or of a reservation's owner cannot be replaced by a higher fee: decide rebroadcast or placeholder"})
	case replace && !t.IsPlaceholder(t.Hash()):
		job, why := p.replacementVersion(p.w.Bounds, t, p.chain, p.v)
		return p.sign(t, job, why)
	}
	return p.signPlaceholder(t)
}

// wait plans t's transition while it cannot be signed, if anything changes.
func (p *signaturePlanner) wait(t txmanager.Tx, why txmanager.Wait) (next bool) {
	from, handler := t.State, t.Phase() == txmanager.AwaitingHandler
	switch {
	case t.State != txmanager.Stuck && t.RequestedAction == txmanager.ActionCancel && p.AskBeforePlaceholder, handler && p.hasWaitedTooLong(t, p.now):
		p.moves = append(p.moves, txmanager.Transition{From: from, To: p.markStuck(t, p.now, why.Reason)})
		return t.IsBroadcasting()
	case t.LastError == why.Reason && t.Cause == why.Cause && len(t.Versions) > 0:
		return t.IsBroadcasting()
	case handler: // it keeps its nonce without bytes until the next handler call, as long as hasWaitedTooLong allows
		if t.FirstSubmitAt = cmp.Or(t.FirstSubmitAt, &p.now); p.answer.TxID == t.ID && p.answer.Asked {
			t.SubmitAttempts = 0
		}
	}
	t.Explain(why.Cause, why.Reason)
	p.moves = append(p.moves, txmanager.Transition{From: from, To: p.WithNextCheck(t, p.now.Add(p.BlockTime))})
	return t.IsBroadcasting()
}

// PostponeBlocked plans the next check of transactions without bytes that wait for a lower one. It
// lies far enough ahead that it is not overdue before the lower one is checked. Once all lower
// ones are broadcasting, the check is due now. A node has answered, so none of them waits for one.
func (r Rules) PostponeBlocked(w txmanager.SubmitterState) (moves []txmanager.Transition) {
	var blocker *txmanager.Tx // the lowest that is not broadcasting
	for i, t := range w.Open {
		at := r.postponedCheck(w, i, blocker)
		if at != nil {
			t = r.WithNextCheck(t, *at)
		}
		reached := t.State == txmanager.InFlight && t.Cause == txmanager.WaitNodes && len(t.Versions) == 0
		if reached {
			t.Explain("", t.LastError)
		}
		if at != nil || reached {
			moves = append(moves, txmanager.Transition{From: txmanager.InFlight, To: t})
		}
		if blocker == nil && !t.IsBroadcasting() {
			blocker = &t
		}
	}
	return moves
}

// postponedCheck is the new time of the next check of the open transaction at i, or nil where it
// stays.
func (r Rules) postponedCheck(w txmanager.SubmitterState, i int, blocker *txmanager.Tx) *time.Time {
	t, now := w.Open[i], w.DatabaseTime()
	due, later := t.IsDueBy(now), now.Add(StuckPollBlocks*r.BlockTime)
	switch phase := t.Phase(); {
	case waitsForWindow(w, i):
		if due {
			return &later
		}
	case phase == txmanager.AwaitingMark: // checked when its nonce is released for reuse, and when it expires
		if due && !t.IsExpired(now) {
			return &t.Reservation.Until
		}
	case w.Protected, t.State != txmanager.InFlight, phase == txmanager.AwaitingAction && !t.FillsLostNonce:
	case blocker == nil:
		if t.LastError == "" && !due {
			return &now
		}
	case !blocker.IsDueBy(now) && t.IsDueBy(*blocker.NextCheckAt):
		return new(laterOf(*blocker.NextCheckAt, later))
	}
	return nil
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// HasNoReceipt reports whether the node has no receipt for any version of t. An unknown answer is
// not enough to replace anything.
func HasNoReceipt(t txmanager.Tx, v txmanager.ChainObservation) bool {
	return !slices.ContainsFunc(t.Versions, func(h txmanager.Hash) bool { return v.Receipts[h].Answer != txmanager.AnswerNotFound })
}

// AfterNoAnswer is t after a chain query without an answer, as it is checked again at a time. A
// reserved nonce without bytes waits for its owner, not for a node.
func (r Rules) AfterNoAnswer(t txmanager.Tx, again time.Time) txmanager.Tx {
	if t.NextResubmitAt != nil && t.NextResubmitAt.Before(again) {
		t.NextResubmitAt = &again
	}
	if t.Cause == "" && t.Phase() != txmanager.AwaitingMark {
		t.Explain(txmanager.WaitNodes, t.LastError)
	}
	return r.WithNextCheck(t, again)
}

// FirstVersion is the first version of t, with the gas from its allocation.
func FirstVersion(t txmanager.Tx, chain txmanager.ChainConnector) (SigningJob, txmanager.Wait) {
	if why := Unproved(t); why.Reason != "" {
		return SigningJob{}, why
	}
	call, err := chain.ParsePayload(t.Payload)
	if err != nil {
		return SigningJob{}, txmanager.Wait{Cause: txmanager.WaitForOperator, Reason: "not signed: " + err.Error()}
	}
	return SigningJob{Tx: t, Kind: txmanager.VersionOriginal, Unsigned: buildUnsigned(t, call)}, txmanager.Wait{}
}

// Unproved is the wait because t's MAC is not proved.
func Unproved(t txmanager.Tx) txmanager.Wait {
	cause := txmanager.WaitMACService
	switch {
	case t.Forged != "":
		cause = txmanager.WaitForOperator
	case t.NoKey:
		cause = txmanager.WaitMACKey
	}
	return txmanager.WaitFor(cause, t.UnprovedReason())
}

// replacementVersion is t's own call with fees that can replace its last version.
func (r Rules) replacementVersion(b txmanager.Bounds, t txmanager.Tx, chain txmanager.ChainConnector, v txmanager.ChainObservation) (SigningJob, txmanager.Wait) {
	caps := gas.FeeCaps{FeeWei: r.MaxReplacementFee(b, t.Gas.Gas), TipWei: b.TipWei}
	params, refused := gas.ReplacementFees(*t.Gas, gas.CompleteFees(txmanager.Call{}, t.Gas.Gas, v.Account), caps)
	if refused != "" {
		return SigningJob{}, txmanager.Wait{Cause: txmanager.WaitFeeCeiling, Reason: refused + " by 8/9 of nonce.placeholderMaxFeePerGas, 81/64 of fees.maxFeePerTx, or the submitter's policy"}
	}
	if reason := b.RefusalReason(txmanager.BoundedTerms{Gas: params.Gas}); reason != "" {
		return SigningJob{}, txmanager.Wait{Cause: txmanager.WaitPolicy, Reason: "a replacement is above a bound: " + reason}
	}
	if reason := b.FeesUsedUpReason(new(big.Int).Sub(params.FeeWei(), t.Gas.FeeWei())); reason != "" {
		return SigningJob{}, txmanager.Wait{Cause: txmanager.WaitPolicy, Reason: reason}
	}
	t.Gas = &params
	job, why := FirstVersion(t, chain)
	job.Kind = txmanager.VersionBump
	return job, why
}

// placeholderVersion consumes t's nonce with a zero-value transfer to itself.
func (r Rules) placeholderVersion(t txmanager.Tx, v txmanager.ChainObservation) (SigningJob, txmanager.Wait) {
	if v.SelfTransfer.Outcome != txmanager.Done {
		return SigningJob{}, txmanager.Wait{Cause: txmanager.WaitGasEstimate, Reason: "no gas estimate for a placeholder"}
	}
	last := txmanager.GasParams{FeeCapWei: new(big.Int), TipCapWei: new(big.Int)}
	if t.Gas != nil {
		last = *t.Gas
	}
	params, refused := gas.ReplacementFees(last, gas.CompleteFees(txmanager.Call{}, last.Gas, v.Account), gas.FeeCaps{FeeWei: r.PlaceholderFeeCapWei})
	if refused != "" {
		return SigningJob{}, txmanager.Wait{Cause: txmanager.WaitFeeCeiling, Reason: refused + " by nonce.placeholderMaxFeePerGas"}
	}
	params.Gas, params.ValueWei = v.SelfTransfer.Gas, new(big.Int)
	t.Gas = &params
	self := t.Submitter.Address()
	return SigningJob{Tx: t, Kind: txmanager.VersionPlaceholder, Unsigned: buildUnsigned(t, txmanager.Call{To: &self})}, txmanager.Wait{}
}

// afterUnderpriced is t after a node reported another version of its nonce that pays as much. A
// higher version is due at once, unless a bound blocks it. ok is false where no bump is possible.
func (r Rules) afterUnderpriced(t txmanager.Tx, head txmanager.Header, now time.Time) (txmanager.Tx, bool) {
	if _, ok := r.BumpAt(t); !ok {
		return t, false
	}
	t.NextResubmitAt = new(now.Add(r.retryDelay(t.SubmitAttempts)))
	if r.IsBumpBlocked(t) {
		return r.WithNextCheck(t, r.AfterBlocks(1, head, now)), true
	}
	t.Explain("", "")
	t.NextBumpAt, t.NextCheckAt = &now, &now
	return t, true
}

// planBump plans t's next version, or else t's transition: it is due again after an interval, with a
// reason if there is one, or an operator must decide.
func (p *signaturePlanner) planBump(t txmanager.Tx) (next bool) {
	bump, reason, wanted := p.bumps.Next(t)
	from := t.State
	switch {
	case wanted && reason == "" && p.AskBeforePlaceholder:
		p.moves = append(p.moves, txmanager.Transition{From: from, To: p.markStuck(t, p.now, "a higher fee is due, and nonce.placeholder=ask: an operator must decide")})
		return false
	case wanted && reason == "":
		t.Gas = &bump.Params
		p.jobs = append(p.jobs, SigningJob{Tx: t, Kind: bump.Kind, Unsigned: buildUnsigned(t, bump.Call), ExtraWei: bump.ExtraWei})
		return true
	case wanted:
		t.Explain(txmanager.WaitGasBump, gas.BumpBlockedPrefix+reason)
	case p.IsBumpBlocked(t):
		t.Explain("", "")
	}
	p.moves = append(p.moves, txmanager.Transition{From: from, To: p.BumpLater(t, p.now)})
	return t.IsBroadcasting()
}

// WithBumpedVersion is the version from WithVersion. For a gas bump, the STUCK timer continues
// from the first broadcast.
func (r Rules) WithBumpedVersion(t txmanager.Tx, job SigningJob) txmanager.Tx {
	if job.ExtraWei != nil {
		t.FirstSubmitAt = job.Tx.FirstSubmitAt
	}
	return r.BumpLater(t, *t.LastSubmitAt)
}
