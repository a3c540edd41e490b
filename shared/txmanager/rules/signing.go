package rules

import (
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

// PlanSignatures collects the allocated nonces that need a version now: those never signed, and
// those that a requested action or a gas bump replaces. Nothing is signed while any version has a
// receipt: then the mined version decides. A transaction that cannot be signed now gets a
// transition with the reason, and those above it wait.
func (r Rules) PlanSignatures(w txmanager.SubmitterState, chain txmanager.ChainConnector, v txmanager.ChainObservation, answers map[string]HandlerResult) (jobs []SigningJob, moves []txmanager.Transition) {
	if w.Protected {
		return nil, nil
	}
	bumps := r.NewBumpPlanner(w, chain, v)
	going := true // every lower nonce is held by a node, or is sent in this iteration
	for i, t := range w.Open {
		job, reason := SigningJob{}, ""
		if !going || waitsForWindow(w, i) {
			break
		}
		going = t.IsBroadcasting()
		answer, asked := answers[t.ID]
		if !answer.Stored && !HasNoReceipt(t, v) { // of bytes stored since the query, no node has a receipt yet
			continue
		}
		switch {
		case t.IsExecutedElsewhere(), t.FillsLostNonce && len(t.Versions) == 0:
			job, reason = r.placeholderVersion(t, v)
		case t.AwaitsMark():
			if t.IsExpired(w.DatabaseTime()) {
				moves = append(moves, r.expireReservation(t, w))
			}
			continue
		case t.RequestedAction == "" && len(t.Versions) == 0 && t.State == txmanager.InFlight && t.Forged != "":
			moves, going = append(moves, r.replaceForged(t, w)), false
			continue
		case answer.Failed != "":
			moves, going = append(moves, r.failHandler(t, answer.Failed, w)), false
			continue
		case answer.Stored:
			continue
		case t.NeedsHandlerCall() && !asked: // the handler call is claimed first
			continue
		case t.NeedsHandlerCall():
			job, reason = HandlerVersion(t, answer)
		case !t.HasOpenAction() && t.State == txmanager.InFlight && t.IsDueBy(w.DatabaseTime()):
			job, reason = FirstVersion(t, chain)
		case r.IsBumpDue(t, w.DatabaseTime()):
			var move *txmanager.Transition
			if job, move = r.planBump(bumps, t, w.DatabaseTime()); move != nil {
				moves, going = append(moves, *move), going && move.To.State != txmanager.Stuck
				continue
			}
		case !t.HasOpenAction(), t.RequestedAction == txmanager.ActionRebroadcast:
			continue
		case t.RequestedAction == txmanager.ActionCancel && r.AskBeforePlaceholder:
			reason = "a cancel was asked for, and nonce.placeholder=ask: an operator must decide"
		case t.RequestedAction == txmanager.ActionReplace && t.IsMadeElsewhere():
			reason = "what a handler made, or the owner of a reservation, cannot be replaced by a higher fee: rebroadcast, or order a placeholder"
		case t.RequestedAction == txmanager.ActionReplace && !t.IsPlaceholder(t.Hash()):
			job, reason = r.replacementVersion(w.Bounds, t, chain, v)
		default:
			job, reason = r.placeholderVersion(t, v)
		}
		switch {
		case reason == "":
			jobs, going = append(jobs, job), true
		case t.State != txmanager.Stuck && t.RequestedAction == txmanager.ActionCancel && r.AskBeforePlaceholder:
			moves = append(moves, txmanager.Transition{From: t.State, To: r.markStuck(t, w.DatabaseTime(), reason)})
		case t.NeedsHandlerCall() && r.hasWaitedTooLong(t, w.DatabaseTime()):
			moves = append(moves, txmanager.Transition{From: t.State, To: r.markStuck(t, w.DatabaseTime(), reason)})
		case t.LastError != reason || len(t.Versions) == 0:
			from := t.State
			if t.NeedsHandlerCall() {
				t = r.keepWaiting(t, answer, w.DatabaseTime())
			}
			t.LastError = reason
			moves = append(moves, txmanager.Transition{From: from, To: r.WithNextCheck(t, w.DatabaseTime().Add(r.BlockTime))})
		}
	}
	return jobs, moves
}

// PostponeBlocked plans the next check of transactions without bytes that wait for a lower one. It
// lies far enough ahead that it is not overdue before the lower one is checked. Once all lower
// ones are broadcasting, the check is due now.
func (r Rules) PostponeBlocked(w txmanager.SubmitterState) (moves []txmanager.Transition) {
	var held *txmanager.Tx // the lowest that is not broadcasting
	now := w.DatabaseTime()
	for i, t := range w.Open {
		before := t.NextCheckAt
		switch {
		case waitsForWindow(w, i):
			if t.IsDueBy(now) {
				t = r.WithNextCheck(t, now.Add(StuckPollBlocks*r.BlockTime))
			}
		case t.AwaitsMark(): // checked when its nonce is released for reuse, and when it expires
			if t.IsDueBy(now) && !t.IsExpired(now) {
				t = r.WithNextCheck(t, t.Reservation.Until)
			}
		case t.State != txmanager.InFlight || t.RequestedAction != "" && !t.FillsLostNonce || w.Protected:
		case held == nil && t.LastError == "" && !t.IsDueBy(now):
			t = r.WithNextCheck(t, now)
		case held != nil && !held.IsDueBy(now) && t.IsDueBy(*held.NextCheckAt):
			t = r.WithNextCheck(t, laterOf(*held.NextCheckAt, now.Add(StuckPollBlocks*r.BlockTime)))
		}
		if t.NextCheckAt != before {
			moves = append(moves, txmanager.Transition{From: txmanager.InFlight, To: t})
		}
		if held == nil && !t.IsBroadcasting() {
			held = &t
		}
	}
	return moves
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

// FirstVersion is the first version of t, with the gas from its allocation.
func FirstVersion(t txmanager.Tx, chain txmanager.ChainConnector) (SigningJob, string) {
	if reason := t.UnprovedReason(); reason != "" {
		return SigningJob{}, reason
	}
	call, err := chain.ParsePayload(t.Payload)
	if err != nil {
		return SigningJob{}, "not signed: " + err.Error()
	}
	return SigningJob{Tx: t, Kind: txmanager.VersionOriginal, Unsigned: buildUnsigned(t, call)}, ""
}

// replacementVersion is t's own call with fees that can replace its last version.
func (r Rules) replacementVersion(b txmanager.Bounds, t txmanager.Tx, chain txmanager.ChainConnector, v txmanager.ChainObservation) (SigningJob, string) {
	caps := gas.FeeCaps{FeeWei: r.MaxReplacementFee(b, t.Gas.Gas), TipWei: b.TipWei}
	params, refused := gas.ReplacementFees(*t.Gas, gas.CompleteFees(txmanager.Call{}, t.Gas.Gas, v.Account), gas.ReplaceFactor, caps)
	if refused != "" {
		return SigningJob{}, refused + " by 8/9 of nonce.placeholderMaxFeePerGas, 81/64 of fees.maxFeePerTx, or the submitter's policy"
	}
	if reason := b.RefusalReason(txmanager.BoundedTerms{Gas: params.Gas}); reason != "" {
		return SigningJob{}, "a replacement is above a bound: " + reason
	}
	if reason := b.FeesUsedUpReason(new(big.Int).Sub(params.FeeWei(), t.Gas.FeeWei())); reason != "" {
		return SigningJob{}, reason
	}
	t.Gas = &params
	job, reason := FirstVersion(t, chain)
	job.Kind = txmanager.VersionBump
	return job, reason
}

// placeholderVersion consumes t's nonce with a zero-value transfer to itself.
func (r Rules) placeholderVersion(t txmanager.Tx, v txmanager.ChainObservation) (SigningJob, string) {
	if v.SelfTransfer.Outcome != txmanager.Done {
		return SigningJob{}, "no gas estimate for a placeholder"
	}
	last := txmanager.GasParams{FeeCapWei: new(big.Int), TipCapWei: new(big.Int)}
	if t.Gas != nil {
		last = *t.Gas
	}
	params, refused := gas.ReplacementFees(last, gas.CompleteFees(txmanager.Call{}, last.Gas, v.Account), gas.ReplaceFactor, gas.FeeCaps{FeeWei: r.PlaceholderFeeCapWei})
	if refused != "" {
		return SigningJob{}, refused + " by nonce.placeholderMaxFeePerGas"
	}
	params.Gas, params.ValueWei = v.SelfTransfer.Gas, new(big.Int)
	t.Gas = &params
	self := t.Submitter.Address()
	return SigningJob{Tx: t, Kind: txmanager.VersionPlaceholder, Unsigned: buildUnsigned(t, txmanager.Call{To: &self})}, ""
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
	t.LastError, t.NextBumpAt, t.NextCheckAt = "", &now, &now
	return t, true
}

// planBump is t's next version, or else t's transition: it is due again after an interval, with a
// reason if there is one, or an operator must decide.
func (r Rules) planBump(b *gas.BumpPlanner, t txmanager.Tx, now time.Time) (SigningJob, *txmanager.Transition) {
	next, reason, wanted := b.Next(t)
	switch {
	case wanted && reason == "" && r.AskBeforePlaceholder:
		return SigningJob{}, &txmanager.Transition{From: t.State, To: r.markStuck(t, now, bumpNeedsOperator)}
	case wanted && reason == "":
		t.Gas = &next.Params
		return SigningJob{Tx: t, Kind: next.Kind, Unsigned: buildUnsigned(t, next.Call), ExtraWei: next.ExtraWei}, nil
	case wanted:
		t.LastError = gas.BumpBlockedPrefix + reason
	case r.IsBumpBlocked(t):
		t.LastError = ""
	}
	return SigningJob{}, &txmanager.Transition{From: t.State, To: r.BumpLater(t, now)}
}

// WithBumpedVersion is the version from WithVersion. For a gas bump, the STUCK timer continues
// from the first broadcast.
func (r Rules) WithBumpedVersion(t txmanager.Tx, job SigningJob) txmanager.Tx {
	if job.ExtraWei != nil {
		t.FirstSubmitAt = job.Tx.FirstSubmitAt
	}
	return r.BumpLater(t, *t.LastSubmitAt)
}

// bumpNeedsOperator is why an operator must decide about a gas bump.
const bumpNeedsOperator = "a higher fee is due, and nonce.placeholder=ask: an operator must decide"
