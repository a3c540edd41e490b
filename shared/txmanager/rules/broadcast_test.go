package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// Only an acknowledgement makes a transaction TRACKING, and no answer frees the nonce or ends the
// transaction.
func TestEachAnswerToABroadcast(t *testing.T) {
	t.Parallel()
	r, head := rulesOf(3), txtest.Block('a', 100)
	for class, want := range map[txmanager.SendClass]txmanager.State{
		txmanager.SendAccepted: txmanager.Tracking, txmanager.SendAlreadyKnown: txmanager.Tracking, txmanager.SendInvalid: txmanager.Stuck,
		txmanager.SendUnknown: txmanager.Submitted, txmanager.SendNonceTooLow: txmanager.Submitted, txmanager.SendNonceTooHigh: txmanager.Submitted, txmanager.SendUnderpriced: txmanager.Submitted,
		txmanager.SendFeeTooLow: txmanager.Submitted, txmanager.SendInsufficientFunds: txmanager.Submitted, txmanager.SendPoolFull: txmanager.Submitted,
	} {
		before := txtest.Submitted(5)
		after := r.AfterBroadcast(before, txmanager.SendResult{Class: class, Text: "the node's words"}, head, txtest.Now)
		if after.State != want || !before.State.MayBecome(after.State) {
			t.Errorf("%s: got %s, want %s", class, after.State, want)
		}
		if *after.Nonce != 5 || after.SubmitAttempts != before.SubmitAttempts || after.Hash() != before.Hash() {
			t.Errorf("%s: nonce, attempts or version changed: %+v", class, after)
		}
		check.Equal(t, fmt.Sprintf("%s: the next check is later", class), after.NextCheckAt.After(txtest.Now), true)
		if want == txmanager.Tracking {
			if after.Sub != txmanager.Pending || after.LastError != "" || !after.NextResubmitAt.Equal(txtest.Now.Add(r.ResubmitEvery)) {
				t.Errorf("%s: got %s, %q, resubmit %v; want PENDING, no error, after an interval", class, after.Sub, after.LastError, after.NextResubmitAt)
			}
			continue
		}
		if after.Sub != "" || !strings.Contains(after.LastError, class.String()) || !strings.Contains(after.LastError, "the node's words") {
			t.Errorf("%s: got %s %q, want the class and the node's words", class, after.Sub, after.LastError)
		}
		if want == txmanager.Submitted && !after.NextResubmitAt.Equal(txtest.Now.Add(time.Second)) {
			t.Errorf("%s: resubmit %v, want after a second", class, after.NextResubmitAt)
		}
	}
}

// A failed rebroadcast does not change a transaction that a node holds.
func TestFailedResendKeepsTracking(t *testing.T) {
	t.Parallel()
	for class := txmanager.SendUnknown; class <= txmanager.SendPoolFull; class++ {
		after := rulesOf(3).AfterBroadcast(txtest.Pending(5), txmanager.SendResult{Class: class}, txtest.Block('a', 100), txtest.Now)
		check.Equal(t, class.String(), after.State, txmanager.Tracking)
		check.Equal(t, class.String()+": sub-state", after.Sub, txmanager.Pending)
	}
}

// Retry delays grow with each failure, up to the resubmission interval.
func TestPatienceGrowsToTheInterval(t *testing.T) {
	t.Parallel()
	r := rulesOf(3)
	for failures, want := range map[int]time.Duration{
		-1: time.Second, 0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 6: 32 * time.Second,
		7: time.Minute, 20: time.Minute, 1 << 40: time.Minute,
	} {
		check.Equal(t, fmt.Sprintf("%d failures", failures), r.retryDelay(failures), want)
	}
	r.ResubmitEvery = 0
	check.Equal(t, "without an interval", r.retryDelay(5), time.Second)
}

// H10: our own record of the hash proves nothing; the chain must know a version.
func TestH10NonceTooLowIsOursOnlyIfTheChainKnowsAVersion(t *testing.T) {
	t.Parallel()
	tx := txtest.Pending(5)
	tx.Versions = append(tx.Versions, txtest.VersionHash(5, 2))
	first, second, foreign := tx.Versions[0], tx.Versions[1], txtest.VersionHash(5, 9)
	for _, c := range []struct {
		name string
		v    txmanager.ChainObservation
		want bool
	}{
		{"silence", txmanager.ChainObservation{}, false},
		{"not found", txmanager.ChainObservation{Known: map[txmanager.Hash]txmanager.Answer{first: txmanager.AnswerNotFound, second: txmanager.AnswerNotFound}}, false},
		{"no answer", txmanager.ChainObservation{Known: map[txmanager.Hash]txmanager.Answer{first: txmanager.AnswerUnknown}}, false},
		{"another transaction is known", txmanager.ChainObservation{Known: map[txmanager.Hash]txmanager.Answer{foreign: txmanager.AnswerFound}}, false},
		{"the first version is known", txmanager.ChainObservation{Known: map[txmanager.Hash]txmanager.Answer{first: txmanager.AnswerFound}}, true},
		{"the second version is known", txmanager.ChainObservation{Known: map[txmanager.Hash]txmanager.Answer{first: txmanager.AnswerNotFound, second: txmanager.AnswerFound}}, true},
		{"a version has a receipt", txmanager.ChainObservation{Receipts: map[txmanager.Hash]txmanager.ReceiptAnswer{second: {Answer: txmanager.AnswerFound}}}, true},
	} {
		check.Equal(t, c.name, IsKnownToChain(tx, c.v), c.want)
	}
}

// A new version has its first broadcast claimed, and earlier versions stay unchanged.
func TestSignedBytesAreClaimedAtOnce(t *testing.T) {
	t.Parallel()
	before := txtest.Bare(5)
	before.Versions = make([]txmanager.Hash, 0, 4)
	one := WithVersion(before, txmanager.VersionOriginal, txmanager.Signed{Hash: txtest.VersionHash(5, 1), Raw: []byte{1}}, txtest.Now)
	other := WithVersion(before, txmanager.VersionOriginal, txmanager.Signed{Hash: txtest.VersionHash(5, 2), Raw: []byte{2}}, txtest.Now)
	if one.Hash() != txtest.VersionHash(5, 1) || other.Hash() != txtest.VersionHash(5, 2) || len(before.Versions) != 0 {
		t.Errorf("got versions %v and %v: want one each, not shared", one.Versions, other.Versions)
	}
	if one.State != txmanager.Submitted || one.SubmitAttempts != 1 || !slices.Equal(one.Raw, []byte{1}) || before.State != txmanager.InFlight {
		t.Errorf("got %s, attempt %d; want SUBMITTED, the first", one.State, one.SubmitAttempts)
	}
	for name, at := range map[string]*time.Time{"first": one.FirstSubmitAt, "last": one.LastSubmitAt, "next": one.NextResubmitAt, "check": one.NextCheckAt} {
		if at == nil || !at.Equal(txtest.Now) {
			t.Errorf("%s: got %v, want now: due until the outcome is recorded", name, at)
		}
	}
}

// A node's text never appears in the text for callers, whatever happened to the transaction.
// Operators have all of it.
func TestNodeTextsAreForOperators(t *testing.T) {
	t.Parallel()
	const words = "nonce too high: tx nonce 31337, gapped, next nonce 31336; for operators: 31338"
	r, w := rulesOf(3), txtest.StateOf(1, 6)
	texts := map[string]string{}
	for class := txmanager.SendUnknown; class <= txmanager.SendInvalid; class++ {
		if res := (txmanager.SendResult{Class: class, Text: words}); !res.Acknowledged() {
			texts["sent, "+class.String()] = r.AfterBroadcast(txtest.Submitted(5), res, txtest.Block('a', 100), txtest.Now).LastError
		}
	}
	for name, e := range map[string]txmanager.Estimate{"reverts": {Outcome: txmanager.Refused, Reason: words}, "unknown": {Reason: words}} {
		for _, busy := range []bool{false, true} {
			work := txtest.Queue(w, txtest.Queued(1, "call"))
			if busy {
				work = txtest.Queue(txtest.StateOf(2, 6, txtest.Pending(5)), txtest.Queued(1, "call"))
			}
			p := r.PlanAllocations(work, txtest.Reader(nil), txtest.ViewOf(work, txtest.Block('a', 100)), map[string]txmanager.Estimate{work.Queue[0].ID: e})
			if len(p.Transitions) != 1 {
				t.Fatalf("%s, busy %v: got %d moves, want the one that says why", name, busy, len(p.Transitions))
			}
			texts[name+", prepared"] = p.Transitions[0].To.LastError
		}
	}
	for what, text := range texts {
		said, detail := txmanager.CallerText(text)
		if strings.Contains(said, "3133") || strings.Contains(said, strings.TrimSpace(txmanager.OperatorsOnly)) || said == "" {
			t.Errorf("%s: a caller reads %q, want nothing of the node's words", what, said)
		}
		check.Equal(t, what+": an operator reads", detail, words)
	}
}

// A broadcast without a recorded outcome: if the node holds the last version, the query records that.
// Otherwise the same bytes are sent again. Bytes that a node held before prove nothing about the last.
func TestAQueryFindsTheOutcomeOfABroadcast(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, last txmanager.Answer
		acked       bool
	}{
		"the node holds the last version":   {txmanager.AnswerNotFound, txmanager.AnswerFound, true},
		"the node holds the version before": {txmanager.AnswerFound, txmanager.AnswerNotFound, false},
		"the node holds none":               {txmanager.AnswerNotFound, txmanager.AnswerNotFound, false},
		"the node does not say":             {txmanager.AnswerUnknown, txmanager.AnswerUnknown, false},
	} {
		r, x := rulesOf(3), ClaimBroadcast(txtest.Submitted(5), txtest.Now)
		x.Versions, x.NextCheckAt = append(x.Versions, txtest.VersionHash(5, 2)), txtest.Ago(0)
		v := txtest.ViewOf(txtest.StateOf(1, 6, x), txtest.Block('a', 100))
		v.Known = map[txmanager.Hash]txmanager.Answer{x.Versions[0]: c.first, x.Versions[1]: c.last}
		after, j := evaluateOne(r, x, v)
		switch {
		case c.acked && (after.State != txmanager.Tracking || after.Sub != txmanager.Pending || len(j.Rebroadcasts) != 0 || !after.NextResubmitAt.Equal(txtest.Now.Add(r.ResubmitEvery))):
			t.Errorf("%s: got %s/%s, %d sent again, the next time %v; want TRACKING/PENDING, none, after an interval", name, after.State, after.Sub, len(j.Rebroadcasts), after.NextResubmitAt)
		case !c.acked && (after.State != txmanager.Submitted || len(j.Rebroadcasts) != 1):
			t.Errorf("%s: got %s, %d sent again; want SUBMITTED, one", name, after.State, len(j.Rebroadcasts))
		}
	}
}
