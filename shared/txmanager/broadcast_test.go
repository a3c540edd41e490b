package txmanager

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Only an acknowledgement makes a transaction TRACKING, and no answer frees the nonce or ends the
// transaction.
func TestEachAnswerToABroadcast(t *testing.T) {
	t.Parallel()
	r, head := rulesOf(3), block('a', 100)
	for class, want := range map[SendClass]State{
		SendAccepted: Tracking, SendAlreadyKnown: Tracking, SendInvalid: Stuck,
		SendUnknown: Submitted, SendNonceTooLow: Submitted, SendNonceTooHigh: Submitted, SendUnderpriced: Submitted,
		SendFeeTooLow: Submitted, SendInsufficientFunds: Submitted, SendPoolFull: Submitted,
	} {
		before := submitted(5)
		after := r.afterBroadcast(before, SendResult{Class: class, Text: "the node's words"}, head, dbNow)
		if after.State != want || !before.State.MayBecome(after.State) {
			t.Errorf("%s: got %s, want %s", class, after.State, want)
		}
		if *after.Nonce != 5 || after.SubmitAttempts != before.SubmitAttempts || after.Hash() != before.Hash() {
			t.Errorf("%s: nonce, attempts or version changed: %+v", class, after)
		}
		if !after.NextCheckAt.After(dbNow) {
			t.Errorf("%s: next check %v, want later", class, after.NextCheckAt)
		}
		if want == Tracking {
			if after.Sub != Pending || after.LastError != "" || !after.NextResubmitAt.Equal(dbNow.Add(r.ResubmitEvery)) {
				t.Errorf("%s: got %s, %q, resubmit %v; want PENDING, no error, after an interval", class, after.Sub, after.LastError, after.NextResubmitAt)
			}
			continue
		}
		if after.Sub != "" || !strings.Contains(after.LastError, class.String()) || !strings.Contains(after.LastError, "the node's words") {
			t.Errorf("%s: got %s %q, want the class and the node's words", class, after.Sub, after.LastError)
		}
		if want == Submitted && !after.NextResubmitAt.Equal(dbNow.Add(time.Second)) {
			t.Errorf("%s: resubmit %v, want after a second", class, after.NextResubmitAt)
		}
	}
}

// A failed rebroadcast does not change a transaction that a node holds.
func TestFailedResendKeepsTracking(t *testing.T) {
	t.Parallel()
	for class := SendUnknown; class <= SendPoolFull; class++ {
		after := rulesOf(3).afterBroadcast(pending(5), SendResult{Class: class}, block('a', 100), dbNow)
		if after.State != Tracking || after.Sub != Pending {
			t.Errorf("%s: got %s/%s, want TRACKING/PENDING", class, after.State, after.Sub)
		}
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
		if got := r.retryDelay(failures); got != want {
			t.Errorf("%d failures: got %v, want %v", failures, got, want)
		}
	}
	r.ResubmitEvery = 0
	if got := r.retryDelay(5); got != time.Second {
		t.Errorf("without an interval: got %v, want 1s", got)
	}
}

func TestOnlyAcceptedAndKnownAcknowledge(t *testing.T) {
	t.Parallel()
	for class := SendUnknown; class <= SendInvalid; class++ {
		want := class == SendAccepted || class == SendAlreadyKnown
		if got := (SendResult{Class: class}).Acknowledged(); got != want {
			t.Errorf("%s: got %v, want %v", class, got, want)
		}
	}
	if (SendResult{}).Acknowledged() {
		t.Error("no answer acknowledges, want it unknown")
	}
}

// H10: our own record of the hash proves nothing; the chain must know a version.
func TestH10NonceTooLowIsOursOnlyIfTheChainKnowsAVersion(t *testing.T) {
	t.Parallel()
	tx := pending(5)
	tx.Versions = append(tx.Versions, versionHash(5, 2))
	first, second, foreign := tx.Versions[0], tx.Versions[1], versionHash(5, 9)
	for _, c := range []struct {
		name string
		v    ChainObservation
		want bool
	}{
		{"silence", ChainObservation{}, false},
		{"not found", ChainObservation{Known: map[Hash]Answer{first: AnswerNotFound, second: AnswerNotFound}}, false},
		{"no answer", ChainObservation{Known: map[Hash]Answer{first: AnswerUnknown}}, false},
		{"another transaction is known", ChainObservation{Known: map[Hash]Answer{foreign: AnswerFound}}, false},
		{"the first version is known", ChainObservation{Known: map[Hash]Answer{first: AnswerFound}}, true},
		{"the second version is known", ChainObservation{Known: map[Hash]Answer{first: AnswerNotFound, second: AnswerFound}}, true},
		{"a version has a receipt", ChainObservation{Receipts: map[Hash]ReceiptAnswer{second: {Answer: AnswerFound}}}, true},
	} {
		if got := isKnownToChain(tx, c.v); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// A new version has its first broadcast claimed, and earlier versions stay unchanged.
func TestSignedBytesAreClaimedAtOnce(t *testing.T) {
	t.Parallel()
	before := bare(5)
	before.Versions = make([]Hash, 0, 4)
	one := withVersion(before, VersionOriginal, Signed{Hash: versionHash(5, 1), Raw: []byte{1}}, dbNow)
	other := withVersion(before, VersionOriginal, Signed{Hash: versionHash(5, 2), Raw: []byte{2}}, dbNow)
	if one.Hash() != versionHash(5, 1) || other.Hash() != versionHash(5, 2) || len(before.Versions) != 0 {
		t.Errorf("got versions %v and %v: want one each, not shared", one.Versions, other.Versions)
	}
	if one.State != Submitted || one.SubmitAttempts != 1 || !slices.Equal(one.Raw, []byte{1}) || before.State != InFlight {
		t.Errorf("got %s, attempt %d; want SUBMITTED, the first", one.State, one.SubmitAttempts)
	}
	for name, at := range map[string]*time.Time{"first": one.FirstSubmitAt, "last": one.LastSubmitAt, "next": one.NextResubmitAt, "check": one.NextCheckAt} {
		if at == nil || !at.Equal(dbNow) {
			t.Errorf("%s: got %v, want now: due until the outcome is recorded", name, at)
		}
	}
}
