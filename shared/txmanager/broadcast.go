package txmanager

import (
	"slices"
	"time"
)

// afterBroadcast is t after a node's answer to its bytes. Only an acknowledgement makes it
// TRACKING. [SendInvalid] and [SendOverNodeCap] make it STUCK. After any other answer it keeps its
// state and the reason, and is sent again later. The nonce stays allocated after every answer.
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
	if t.State == Tracking && !r.Resubmit { // rebroadcast until a node has it, after a reorg or a requested action
		t.State, t.Sub = Submitted, ""
	}
	again := now.Add(r.retryDelay(t.SubmitAttempts))
	t.NextResubmitAt = &again
	return r.withNextCheck(t, r.afterBlocks(1, head, now))
}

// acknowledge is t once a node is known to hold its bytes. The reason of a blocked gas bump stays.
func (r Rules) acknowledge(t Tx, head Header, now time.Time) Tx {
	again := now.Add(r.ResubmitEvery)
	if t.NextResubmitAt = &again; !r.isBumpBlocked(t) {
		t.LastError = ""
	}
	if t.State != Tracking {
		t.State, t.Sub = Tracking, Pending
	}
	return r.withNextCheck(t, r.afterBlocks(1, head, now))
}

// isKnownToChain reports whether v proves that the chain knows a version of t. Then "nonce too
// low" was about our own bytes.
func isKnownToChain(t Tx, v ChainObservation) bool {
	for _, h := range t.Versions {
		if v.Known[h] == AnswerFound || v.Receipts[h].Answer == AnswerFound {
			return true
		}
	}
	return false
}

// withVersion is t with a further version and its first broadcast claimed. The count of broadcasts
// starts again.
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
