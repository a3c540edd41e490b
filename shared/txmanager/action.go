package txmanager

import (
	"math/big"
	"slices"
	"time"
)

// Action is a requested action on a transaction that holds a nonce. The lease holder carries it
// out.
type Action string

// The actions. The transaction's caller requests ActionCancel; an operator requests the others.
const (
	ActionCancel      Action = "CANCEL"      // put a placeholder in its place, if no operator has to decide first
	ActionPlaceholder Action = "PLACEHOLDER" // put a placeholder in its place
	ActionReplace     Action = "REPLACE"     // sign it again with higher fees
	ActionRebroadcast Action = "REBROADCAST" // send the last version again, with its count of broadcasts reset
	ActionWait        Action = "WAIT"        // change nothing: only the record; it is still polled
)

// VersionKind is the purpose of a signed version.
type VersionKind string

// A placeholder consumes the nonce with a zero-value transfer from the account to itself.
const (
	VersionOriginal    VersionKind = "ORIGINAL"
	VersionBump        VersionKind = "BUMP"
	VersionPlaceholder VersionKind = "PLACEHOLDER"
)

// signingJob is one transaction to be signed now.
type signingJob struct {
	tx       Tx // with the gas parameters of the new version
	kind     VersionKind
	unsigned Unsigned
	signed   *Signed  // its bytes, already signed and checked; nil: still to be signed
	extraWei *big.Int // of a gas bump: what it may cost beyond the version before; nil: no gas bump
}

// hasOpenAction reports whether a requested action on t can be carried out: t has no receipt and
// is not in PROTECT.
func (t Tx) hasOpenAction() bool {
	return t.RequestedAction != "" && t.Receipt == nil && t.State != Protect
}

// openBelow is w with only the open transactions below the lowest one named. The next iteration
// carries out the decisions of this one, and no higher transaction is signed before that.
func (w SubmitterState) openBelow(ids []string) SubmitterState {
	if i := slices.IndexFunc(w.Open, func(t Tx) bool { return slices.Contains(ids, t.ID) }); i >= 0 {
		w.Open = w.Open[:i]
	}
	return w
}

// planSignatures collects the allocated nonces that need a version now: those never signed, and
// those that a requested action or a gas bump replaces. Nothing is signed while any version has a
// receipt: then the mined version decides. A transaction that cannot be signed now gets a
// transition with the reason, and those above it wait.
func (r Rules) planSignatures(w SubmitterState, chain ChainConnector, v ChainObservation, answers map[string]handlerResult) (jobs []signingJob, moves []Transition) {
	if w.Protected {
		return nil, nil
	}
	bumps := r.newBumpPlanner(w, chain, v)
	going := true // every lower nonce is held by a node, or is sent in this iteration
	for i, t := range w.Open {
		job, reason := signingJob{}, ""
		if !going || w.waitsForWindow(i) {
			break
		}
		going = t.isBroadcasting()
		answer, asked := answers[t.ID]
		if !answer.stored && !hasNoReceipt(t, v) { // of bytes stored since the query, no node has a receipt yet
			continue
		}
		switch {
		case t.isExecutedElsewhere(), t.FillsLostNonce && len(t.Versions) == 0:
			job, reason = r.placeholderVersion(t, v)
		case t.awaitsMark():
			if t.isExpired(w.now()) {
				moves = append(moves, r.expireReservation(t, w))
			}
			continue
		case t.RequestedAction == "" && len(t.Versions) == 0 && t.State == InFlight && t.Forged != "":
			moves, going = append(moves, r.replaceForged(t, w)), false
			continue
		case answer.failed != "":
			moves, going = append(moves, r.failHandler(t, answer.failed, w)), false
			continue
		case answer.stored:
			continue
		case t.needsHandlerCall() && !asked: // the handler call is claimed first
			continue
		case t.needsHandlerCall():
			job, reason = handlerVersion(t, answer)
		case !t.hasOpenAction() && t.State == InFlight && t.isDueBy(w.now()):
			job, reason = firstVersion(t, chain)
		case r.isBumpDue(t, w.now()):
			var move *Transition
			if job, move = r.planBump(bumps, t, w.now()); move != nil {
				moves, going = append(moves, *move), going && move.To.State != Stuck
				continue
			}
		case !t.hasOpenAction(), t.RequestedAction == ActionRebroadcast:
			continue
		case t.RequestedAction == ActionCancel && r.AskBeforePlaceholder:
			reason = "a cancel was asked for, and nonce.placeholder=ask: an operator must decide"
		case t.RequestedAction == ActionReplace && t.isMadeElsewhere():
			reason = "what a handler made, or the owner of a reservation, cannot be replaced by a higher fee: rebroadcast, or order a placeholder"
		case t.RequestedAction == ActionReplace && !t.isPlaceholder(t.Hash()):
			job, reason = r.replacementVersion(w.Bounds, t, chain, v)
		default:
			job, reason = r.placeholderVersion(t, v)
		}
		switch {
		case reason == "":
			jobs, going = append(jobs, job), true
		case t.State != Stuck && t.RequestedAction == ActionCancel && r.AskBeforePlaceholder:
			moves = append(moves, Transition{From: t.State, To: r.markStuck(t, w.now(), reason)})
		case t.needsHandlerCall() && r.hasWaitedTooLong(t, w.now()):
			moves = append(moves, Transition{From: t.State, To: r.markStuck(t, w.now(), reason)})
		case t.LastError != reason || len(t.Versions) == 0:
			from := t.State
			if t.needsHandlerCall() {
				t = r.keepWaiting(t, answer, w.now())
			}
			t.LastError = reason
			moves = append(moves, Transition{From: from, To: r.withNextCheck(t, w.now().Add(r.BlockTime))})
		}
	}
	return jobs, moves
}

// postponeBlocked plans the next check of transactions without bytes that wait for a lower one. It
// lies far enough ahead that it is not overdue before the lower one is checked. Once all lower
// ones are broadcasting, the check is due now.
func (r Rules) postponeBlocked(w SubmitterState) (moves []Transition) {
	var held *Tx // the lowest that is not broadcasting
	now := w.now()
	for i, t := range w.Open {
		before := t.NextCheckAt
		switch {
		case w.waitsForWindow(i):
			if t.isDueBy(now) {
				t = r.withNextCheck(t, now.Add(stuckPollBlocks*r.BlockTime))
			}
		case t.awaitsMark(): // checked when its nonce is released for reuse, and when it expires
			if t.isDueBy(now) && !t.isExpired(now) {
				t = r.withNextCheck(t, t.Reservation.Until)
			}
		case t.State != InFlight || t.RequestedAction != "" && !t.FillsLostNonce || w.Protected:
		case held == nil && t.LastError == "" && !t.isDueBy(now):
			t = r.withNextCheck(t, now)
		case held != nil && !held.isDueBy(now) && t.isDueBy(*held.NextCheckAt):
			t = r.withNextCheck(t, laterOf(*held.NextCheckAt, now.Add(stuckPollBlocks*r.BlockTime)))
		}
		if t.NextCheckAt != before {
			moves = append(moves, Transition{From: InFlight, To: t})
		}
		if held == nil && !t.isBroadcasting() {
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

// hasNoReceipt reports whether the node has no receipt for any version of t. An unknown answer is
// not enough to replace anything.
func hasNoReceipt(t Tx, v ChainObservation) bool {
	return !slices.ContainsFunc(t.Versions, func(h Hash) bool { return v.Receipts[h].Answer != AnswerNotFound })
}

// firstVersion is the first version of t, with the gas from its allocation.
func firstVersion(t Tx, chain ChainConnector) (signingJob, string) {
	if reason := t.unprovedReason(); reason != "" {
		return signingJob{}, reason
	}
	call, err := chain.ParsePayload(t.Payload)
	if err != nil {
		return signingJob{}, "not signed: " + err.Error()
	}
	return signingJob{tx: t, kind: VersionOriginal, unsigned: buildUnsigned(t, call)}, ""
}

// replacementVersion is t's own call with fees that can replace its last version.
func (r Rules) replacementVersion(b Bounds, t Tx, chain ChainConnector, v ChainObservation) (signingJob, string) {
	caps := feeCaps{feeWei: r.maxReplacementFee(b, t.Gas.Gas), tipWei: b.TipWei}
	params, refused := replacementFees(*t.Gas, completeFees(Call{}, t.Gas.Gas, v.Account), replaceFactor, caps)
	if refused != "" {
		return signingJob{}, refused + " by 8/9 of nonce.placeholderMaxFeePerGas, 81/64 of fees.maxFeePerTx, or the submitter's policy"
	}
	if reason := b.RefusalReason(BoundedTerms{Gas: params.Gas}); reason != "" {
		return signingJob{}, "a replacement is above a bound: " + reason
	}
	if reason := b.feesUsedUpReason(new(big.Int).Sub(params.feeWei(), t.Gas.feeWei())); reason != "" {
		return signingJob{}, reason
	}
	t.Gas = &params
	job, reason := firstVersion(t, chain)
	job.kind = VersionBump
	return job, reason
}

// placeholderVersion consumes t's nonce with a zero-value transfer to itself.
func (r Rules) placeholderVersion(t Tx, v ChainObservation) (signingJob, string) {
	if v.SelfTransfer.Outcome != Done {
		return signingJob{}, "no gas estimate for a placeholder"
	}
	last := GasParams{FeeCapWei: new(big.Int), TipCapWei: new(big.Int)}
	if t.Gas != nil {
		last = *t.Gas
	}
	params, refused := replacementFees(last, completeFees(Call{}, last.Gas, v.Account), replaceFactor, feeCaps{feeWei: r.PlaceholderFeeCapWei})
	if refused != "" {
		return signingJob{}, refused + " by nonce.placeholderMaxFeePerGas"
	}
	params.Gas, params.ValueWei = v.SelfTransfer.Gas, new(big.Int)
	t.Gas = &params
	self := t.Submitter.Address()
	return signingJob{tx: t, kind: VersionPlaceholder, unsigned: buildUnsigned(t, Call{To: &self})}, ""
}

func greater(a, b *big.Int) *big.Int {
	if a.Cmp(b) >= 0 {
		return a
	}
	return b
}
