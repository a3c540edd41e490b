package nonce

import (
	"math/big"
	"slices"
	"time"
)

// Order is what somebody decided about a transaction that holds a nonce.
// Whoever holds the lease carries it out.
type Order string

// The orders. OrderCancel is its caller's; the others are an operator's.
const (
	OrderCancel      Order = "CANCEL"      // put a placeholder in its place, if nobody has to be asked first
	OrderPlaceholder Order = "PLACEHOLDER" // put a placeholder in its place
	OrderReplace     Order = "REPLACE"     // sign it again with higher fees
	OrderRebroadcast Order = "REBROADCAST" // send the last version again, with all its attempts before it; there is one
	OrderWait        Order = "WAIT"        // nothing but the record: it goes on being watched
)

// VersionKind says what a signed version of a transaction is.
type VersionKind string

// A placeholder has the nonce, and sends nothing to the account itself.
const (
	VersionOriginal    VersionKind = "ORIGINAL"
	VersionBump        VersionKind = "BUMP"
	VersionPlaceholder VersionKind = "PLACEHOLDER"
)

// signing is one transaction that is to be signed now.
type signing struct {
	tx       Tx // with the gas parameters of the new version
	kind     VersionKind
	unsigned Unsigned
	signed   *Signed  // it comes with its bytes, proven; nil: they are still to be signed
	extraWei *big.Int // of a gas bump: what it may cost beyond the version before; nil: it is none
}

// ordersOpen says that an order on t could be carried out: nothing that was
// signed for its nonce is in a block.
func (t Tx) ordersOpen() bool {
	return t.Ordered != "" && t.Receipt == nil && t.State != Protect
}

// below is w without the transactions named and those above the lowest of them:
// what was decided about in this round is carried out by the next, and nothing
// goes ahead of it.
func (w Work) below(ids []string) Work {
	if i := slices.IndexFunc(w.Unsettled, func(t Tx) bool { return slices.Contains(ids, t.ID) }); i >= 0 {
		w.Unsettled = w.Unsettled[:i]
	}
	return w
}

// toSign collects what holds a nonce and needs a version now: what was never
// signed, and what an order replaces. Nothing is signed while a receipt is
// there: then the mined version decides. What cannot be signed now is moved
// instead, with the reason, and those above it wait.
func (r Rules) toSign(w Work, chain ChainConnector, v View, answers map[string]made) (jobs []signing, moves []Move) {
	if w.Protected {
		return nil, nil
	}
	bumps := r.bumping(w, chain, v)
	going := true // everything below is with a node, or goes there in this round
	for i, t := range w.Unsettled {
		job, reason := signing{}, ""
		if !going || w.parked(i) {
			break
		}
		going = t.going()
		answer, asked := answers[t.ID]
		if !answer.stored && !noReceipt(t, v) { // of what was stored since, no node knows yet
			continue
		}
		switch {
		case t.spent(), t.Fills && len(t.Versions) == 0:
			job, reason = r.placeholder(t, v)
		case t.awaited():
			if t.overtime(w.now()) {
				moves = append(moves, r.timedOut(t, w))
			}
			continue
		case t.Ordered == "" && len(t.Versions) == 0 && t.State == InFlight && t.Forged != "":
			moves, going = append(moves, r.forgedNext(t, w)), false
			continue
		case answer.failed != "":
			moves, going = append(moves, r.handlerFailed(t, answer.failed, w)), false
			continue
		case answer.stored:
			continue
		case t.handlerDue() && !asked: // its handler is claimed first
			continue
		case t.handlerDue():
			job, reason = handled(t, answer)
		case !t.ordersOpen() && t.State == InFlight && t.dueBy(w.now()):
			job, reason = original(t, chain)
		case r.bumpDue(t, w.now()):
			var move *Move
			if job, move = r.bumpNow(bumps, t); move != nil {
				moves, going = append(moves, *move), going && move.To.State != Stuck
				continue
			}
		case !t.ordersOpen(), t.Ordered == OrderRebroadcast:
			continue
		case t.Ordered == OrderCancel && r.AskBeforePlaceholder:
			reason = "a cancel was asked for, and nonce.placeholder=ask: an operator must decide"
		case t.Ordered == OrderReplace && t.opaque():
			reason = "what a handler made, or the owner of a reservation, cannot be replaced by a higher fee: rebroadcast, or order a placeholder"
		case t.Ordered == OrderReplace && !t.isPlaceholder(t.Hash()):
			job, reason = r.bump(w.Bounds, t, chain, v)
		default:
			job, reason = r.placeholder(t, v)
		}
		switch {
		case reason == "":
			jobs, going = append(jobs, job), true
		case t.State != Stuck && t.Ordered == OrderCancel && r.AskBeforePlaceholder:
			moves = append(moves, Move{From: t.State, To: r.stuck(t, w.now(), reason)})
		case t.handlerDue() && r.waitedLong(t, w.now()):
			moves = append(moves, Move{From: t.State, To: r.stuck(t, w.now(), reason)})
		case t.LastError != reason || len(t.Versions) == 0:
			from := t.State
			if t.handlerDue() {
				t = r.waits(t, answer, w.now())
			}
			t.LastError = reason
			moves = append(moves, Move{From: from, To: r.checkNext(t, w.now().Add(r.BlockTime))})
		}
	}
	return jobs, moves
}

// holdBack plans the next look at what has a nonce and waits, without bytes, only
// for what is below it: far enough that it is not overdue before the next look at
// that; and now, once all below it is going.
func (r Rules) holdBack(w Work) (moves []Move) {
	var held *Tx // the lowest that is not going
	now := w.now()
	for i, t := range w.Unsettled {
		before := t.NextCheckAt
		switch {
		case w.parked(i):
			if t.dueBy(now) {
				t = r.checkNext(t, now.Add(stuckLooks*r.BlockTime))
			}
		case t.awaited(): // looked at when it was given back, for a taker, and when its time is over
			if t.dueBy(now) && !t.overtime(now) {
				t = r.checkNext(t, t.Reservation.Until)
			}
		case t.State != InFlight || t.Ordered != "" && !t.Fills || w.Protected:
		case held == nil && t.LastError == "" && !t.dueBy(now):
			t = r.checkNext(t, now)
		case held != nil && !held.dueBy(now) && t.dueBy(*held.NextCheckAt):
			t = r.checkNext(t, later(*held.NextCheckAt, now.Add(stuckLooks*r.BlockTime)))
		}
		if t.NextCheckAt != before {
			moves = append(moves, Move{From: InFlight, To: t})
		}
		if held == nil && !t.going() {
			held = &t
		}
	}
	return moves
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// noReceipt says that the node has none for any version of t. Not knowing is not
// enough to replace anything.
func noReceipt(t Tx, v View) bool {
	return !slices.ContainsFunc(t.Versions, func(h Hash) bool { return v.Receipts[h].Answer != AnswerNotFound })
}

// original is the first version of t, with the gas that its allocation set
// aside.
func original(t Tx, chain ChainConnector) (signing, string) {
	if reason := t.unproved(); reason != "" {
		return signing{}, reason
	}
	call, err := chain.Call(t.Payload)
	if err != nil {
		return signing{}, "not signed: " + err.Error()
	}
	return signing{tx: t, kind: VersionOriginal, unsigned: unsigned(t, call)}, ""
}

// bump is t's own call with fees that replace its last version.
func (r Rules) bump(b Bounds, t Tx, chain ChainConnector, v View) (signing, string) {
	caps := feeCaps{feeWei: r.replaceCap(b, t.Gas.Gas), tipWei: b.TipWei}
	params, refused := replacementFees(*t.Gas, fees(Call{}, t.Gas.Gas, v.Account), replaceFactor, caps)
	if refused != "" {
		return signing{}, refused + " by 8/9 of nonce.placeholderMaxFeePerGas, 81/64 of fees.maxFeePerTx, or the submitter's policy"
	}
	if reason := b.Refuse(Asked{Gas: params.Gas}); reason != "" {
		return signing{}, "a replacement is above a bound: " + reason
	}
	if reason := b.usedUp(new(big.Int).Sub(params.feeWei(), t.Gas.feeWei())); reason != "" {
		return signing{}, reason
	}
	t.Gas = &params
	job, reason := original(t, chain)
	job.kind = VersionBump
	return job, reason
}

// placeholder consumes t's nonce and does nothing else: zero value, to itself.
func (r Rules) placeholder(t Tx, v View) (signing, string) {
	if v.SelfTransfer.Outcome != Done {
		return signing{}, "no gas estimate for a placeholder"
	}
	last := GasParams{FeeCapWei: new(big.Int), TipCapWei: new(big.Int)}
	if t.Gas != nil {
		last = *t.Gas
	}
	params, refused := replacementFees(last, fees(Call{}, last.Gas, v.Account), replaceFactor, feeCaps{feeWei: r.PlaceholderFeeCapWei})
	if refused != "" {
		return signing{}, refused + " by nonce.placeholderMaxFeePerGas"
	}
	params.Gas, params.ValueWei = v.SelfTransfer.Gas, new(big.Int)
	t.Gas = &params
	self := t.Submitter.Address()
	return signing{tx: t, kind: VersionPlaceholder, unsigned: unsigned(t, Call{To: &self})}, ""
}

func bigMax(a, b *big.Int) *big.Int {
	if a.Cmp(b) >= 0 {
		return a
	}
	return b
}
