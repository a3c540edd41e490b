package rules

import (
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// AfterBroadcast is t after a node's answer to its bytes. Only an acknowledgement makes it
// TRACKING. [txmanager.SendInvalid] and [txmanager.SendOverNodeCap] make it STUCK. After any other answer it keeps its
// state and the reason, and is sent again later. The nonce stays allocated after every answer.
func (r Rules) AfterBroadcast(t txmanager.Tx, res txmanager.SendResult, head txmanager.Header, now time.Time) txmanager.Tx {
	if res.Acknowledged() {
		return r.acknowledge(t, head, now)
	}
	if res.Class == txmanager.SendUnderpriced {
		if next, ok := r.afterUnderpriced(t, head, now); ok {
			return next
		}
	}
	t.Explain(res.Class.Cause(), txmanager.WithDetail(res.Class.Description(), res.Text))
	if res.Class == txmanager.SendInvalid || res.Class == txmanager.SendOverNodeCap {
		t.State, t.Sub, t.NextResubmitAt = txmanager.Stuck, "", nil
		return r.WithNextCheck(t, now.Add(10*r.BlockTime))
	}
	if t.State == txmanager.Tracking && !r.Resubmit { // rebroadcast until a node has it, after a reorg or a requested action
		t.State, t.Sub = txmanager.Submitted, ""
	}
	again := now.Add(r.retryDelay(t.SubmitAttempts))
	t.NextResubmitAt = &again
	return r.WithNextCheck(t, r.AfterBlocks(1, head, now))
}

// acknowledge is t once a node is known to hold its bytes. The reason of a blocked gas bump stays.
func (r Rules) acknowledge(t txmanager.Tx, head txmanager.Header, now time.Time) txmanager.Tx {
	again := now.Add(r.ResubmitEvery)
	if t.NextResubmitAt = &again; !r.IsBumpBlocked(t) {
		t.Explain("", "")
	}
	if t.State != txmanager.Tracking {
		t.State, t.Sub = txmanager.Tracking, txmanager.Pending
	}
	return r.WithNextCheck(t, r.AfterBlocks(1, head, now))
}

// PollForOutcome is t, whose broadcast is made after its lease was released, as its next poll is
// planned: at the next block.
func (r Rules) PollForOutcome(t txmanager.Tx, head txmanager.Header, now time.Time) txmanager.Tx {
	t.NextResubmitAt = nil
	return r.WithNextCheck(t, r.AfterBlocks(1, head, now))
}

// IsUnansweredBroadcast reports whether stored is the transaction whose bytes were sent, with no
// further version or broadcast and no recorded outcome since.
func IsUnansweredBroadcast(stored, sent txmanager.Tx) bool {
	return stored.ID == sent.ID && stored.State == txmanager.Submitted && stored.Hash() == sent.Hash() &&
		stored.SubmitAttempts == sent.SubmitAttempts && stored.LastError == ""
}

// IsKnownToChain reports whether v proves that the chain knows a version of t. Then "nonce too
// low" was about our own bytes.
func IsKnownToChain(t txmanager.Tx, v txmanager.ChainObservation) bool {
	return slices.ContainsFunc(t.Versions, func(h txmanager.Hash) bool {
		return v.Known[h] == txmanager.AnswerFound || v.Receipts[h].Answer == txmanager.AnswerFound
	})
}

// WithVersion is t with a further version and its first broadcast claimed. The count of broadcasts
// starts again.
func WithVersion(t txmanager.Tx, kind txmanager.VersionKind, s txmanager.Signed, now time.Time) txmanager.Tx {
	t.Explain("", "")
	t.State, t.Sub, t.RequestedAction = txmanager.Submitted, "", ""
	t.Versions, t.Raw = append(slices.Clip(t.Versions), s.Hash), s.Raw
	if kind == txmanager.VersionPlaceholder {
		t.Placeholders = append(slices.Clip(t.Placeholders), s.Hash)
	}
	t.SubmitAttempts = 1
	t.FirstSubmitAt, t.LastSubmitAt, t.NextResubmitAt, t.NextCheckAt = &now, &now, &now, &now
	return t
}
