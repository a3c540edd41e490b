package nonce

import (
	"slices"
	"time"
)

// sent is t after a node answered to its bytes. Only an acknowledgement makes
// it TRACKING; every other answer leaves it where it is, with the reason, to be
// tried again later. The nonce stays held whatever the answer.
func (r Rules) sent(t Tx, res SendResult, head Header, now time.Time) Tx {
	if res.Acknowledged() {
		return r.acknowledge(t, head, now)
	}
	if res.Class == SendUnderpriced {
		if next, ok := r.outbidden(t, head, now); ok {
			return next
		}
	}
	t.LastError = withDetail(res.Class.told(), res.Text)
	if res.Class == SendInvalid || res.Class == SendOverNodeCap {
		t.State, t.Sub, t.NextResubmitAt = Stuck, "", nil
		return r.checkNext(t, now.Add(10*r.BlockTime))
	}
	if t.State == Tracking && !r.Resubmit { // sent again for a reorg or an order, until a node has it
		t.State, t.Sub = Submitted, ""
	}
	again := now.Add(r.patience(t.SubmitAttempts))
	t.NextResubmitAt = &again
	return r.checkNext(t, r.afterBlocks(1, head, now))
}

// acknowledge is t once a node is known to hold its bytes. That says nothing about a
// bid that a bound holds.
func (r Rules) acknowledge(t Tx, head Header, now time.Time) Tx {
	again := now.Add(r.ResubmitEvery)
	if t.NextResubmitAt = &again; !r.bidHeld(t) {
		t.LastError = ""
	}
	if t.State != Tracking {
		t.State, t.Sub = Tracking, Pending
	}
	return r.checkNext(t, r.afterBlocks(1, head, now))
}

// settledBy says whether the view proves that the chain knows a version of t: then
// "nonce too low" was about our own bytes.
func settledBy(t Tx, v View) bool {
	for _, h := range t.Versions {
		if v.Known[h] == AnswerFound || v.Receipts[h].Answer == AnswerFound {
			return true
		}
	}
	return false
}

// signedAs is t with the bytes of a further version, and their first broadcast
// claimed. Each version has all its attempts before it.
func signedAs(t Tx, kind VersionKind, s Signed, now time.Time) Tx {
	t.State, t.Sub, t.LastError, t.Ordered = Submitted, "", "", ""
	t.Versions, t.Raw = append(slices.Clip(t.Versions), s.Hash), s.Raw
	if kind == VersionPlaceholder {
		t.Placeholders = append(slices.Clip(t.Placeholders), s.Hash)
	}
	t.SubmitAttempts = 1
	t.FirstSubmitAt, t.LastSubmitAt, t.NextResubmitAt, t.NextCheckAt = &now, &now, &now, &now
	return t
}
