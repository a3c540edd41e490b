package nonce

import "time"

// sent is t after a node answered to its bytes. Only an acknowledgement makes
// it TRACKING; every other answer leaves it where it is, with the reason, to be
// tried again later. The nonce stays held whatever the answer.
func (r Rules) sent(t Tx, res SendResult, head Header, now time.Time) Tx {
	if res.Acknowledged() {
		return r.acknowledge(t, head, now)
	}
	t.LastError = res.Class.String() + ": " + res.Text
	if res.Class == SendInvalid {
		t.State, t.Sub, t.NextResubmitAt = Stuck, "", nil
		return r.checkNext(t, now.Add(10*r.BlockTime))
	}
	again := now.Add(r.patience(t.SubmitAttempts))
	t.NextResubmitAt = &again
	return r.checkNext(t, r.afterBlocks(1, head, now))
}

// acknowledge is t once a node is known to hold its bytes.
func (r Rules) acknowledge(t Tx, head Header, now time.Time) Tx {
	again := now.Add(r.ResubmitEvery)
	t.NextResubmitAt, t.LastError = &again, ""
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

// signedAs is t with its bytes, and their first broadcast claimed.
func signedAs(t Tx, s Signed, now time.Time) Tx {
	t.State, t.Sub = Submitted, ""
	t.Versions, t.Raw = append(t.Versions[:len(t.Versions):len(t.Versions)], s.Hash), s.Raw
	t.SubmitAttempts++
	t.FirstSubmitAt, t.LastSubmitAt, t.NextResubmitAt, t.NextCheckAt = &now, &now, &now, &now
	return t
}
