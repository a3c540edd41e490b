package txmanager

import (
	"slices"
	"time"
)

// afterBroadcast is t after a node answered to its bytes. Only an acknowledgement makes
// it TRACKING; every other answer leaves it where it is, with the reason, to be
// tried again later. The nonce stays held whatever the answer.
func (r Rules) afterBroadcast(t Tx, res SendResult, head Header, now time.Time) Tx {
	if res.Acknowledged() {
		return r.acknowledge(t, head, now)
	}
	if res.Class == SendUnderpriced {
		if next, ok := r.afterUnderpriced(t, head, now); ok {
			return next
		}
	}
	t.LastError = withDetail(res.Class.description(), res.Text)
	if res.Class == SendInvalid || res.Class == SendOverNodeCap {
		t.State, t.Sub, t.NextResubmitAt = Stuck, "", nil
		return r.withNextCheck(t, now.Add(10*r.BlockTime))
	}
	if t.State == Tracking && !r.Resubmit { // sent again for a reorg or an order, until a node has it
		t.State, t.Sub = Submitted, ""
	}
	again := now.Add(r.retryDelay(t.SubmitAttempts))
	t.NextResubmitAt = &again
	return r.withNextCheck(t, r.afterBlocks(1, head, now))
}

// acknowledge is t once a node is known to hold its bytes. That says nothing about a
// bid that a bound holds.
func (r Rules) acknowledge(t Tx, head Header, now time.Time) Tx {
	again := now.Add(r.ResubmitEvery)
	if t.NextResubmitAt = &again; !r.isBumpHeld(t) {
		t.LastError = ""
	}
	if t.State != Tracking {
		t.State, t.Sub = Tracking, Pending
	}
	return r.withNextCheck(t, r.afterBlocks(1, head, now))
}

// isKnownToChain says whether the view proves that the chain knows a version of t: then
// "nonce too low" was about our own bytes.
func isKnownToChain(t Tx, v ChainObservation) bool {
	for _, h := range t.Versions {
		if v.Known[h] == AnswerFound || v.Receipts[h].Answer == AnswerFound {
			return true
		}
	}
	return false
}

// withVersion is t with the bytes of a further version, and their first broadcast
// claimed. Each version has all its attempts before it.
func withVersion(t Tx, kind VersionKind, s Signed, now time.Time) Tx {
	t.State, t.Sub, t.LastError, t.RequestedAction = Submitted, "", "", ""
	t.Versions, t.Raw = append(slices.Clip(t.Versions), s.Hash), s.Raw
	if kind == VersionPlaceholder {
		t.Placeholders = append(slices.Clip(t.Placeholders), s.Hash)
	}
	t.SubmitAttempts = 1
	t.FirstSubmitAt, t.LastSubmitAt, t.NextResubmitAt, t.NextCheckAt = &now, &now, &now, &now
	return t
}
