package txmanager_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// Amounts of any size survive JSON, and are never JSON numbers.
func TestGasParamsKeepEveryWei(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amount := func(name string) *big.Int {
			return new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 32).Draw(t, name))
		}
		want := txmanager.GasParams{Gas: rapid.Uint64().Draw(t, "gas"), FeeCapWei: amount("cap"), TipCapWei: amount("tip"), ValueWei: amount("value")}
		text := check.Value(json.Marshal(want))(t)
		var got txmanager.GasParams
		check.OK(t)(json.Unmarshal(text, &got))
		if d := txtest.Diff(want, got); d != "" {
			t.Fatalf("through %s (-want +got):\n%s", text, d)
		}
		if !strings.Contains(string(text), `"value":"`+want.ValueWei.String()+`"`) {
			t.Fatalf("%s: want the value as a string", text)
		}
	})
}

func TestGasParamsRefuseWhatIsNoAmount(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"value":1}`, `{"value":"1.5"}`, `{"value":""}`, `{"maxFeePerGas":"x"}`, `{"gas":"1"}`, `[]`} {
		var g txmanager.GasParams
		if err := json.Unmarshal([]byte(text), &g); err == nil {
			t.Errorf("%s: got %+v, want an error", text, g)
		}
	}
	var g txmanager.GasParams
	if err := json.Unmarshal([]byte(`{"gas":1}`), &g); err != nil || g.ValueWei.Sign()+g.FeeCapWei.Sign()+g.TipCapWei.Sign() != 0 {
		t.Errorf("amounts left out: got %+v, %v; want zeros", g, err)
	}
}

// The process's monotonic clock extrapolates the database's clock.
func TestStateExtrapolatesTheDatabasesClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := txtest.StateOf(1, 0).WithLoadTime(time.Now())
		time.Sleep(3 * time.Second) // of the bubble's clock
		check.Equal(t, "database's time", w.DatabaseTime(), txtest.Now.Add(3*time.Second))
	})
}

func TestEmptyWrites(t *testing.T) {
	t.Parallel()
	check.Equal(t, "nothing is empty", (txmanager.Commit{}).Empty(), true)
	for name, w := range map[string]txmanager.Commit{
		"a move": {Transitions: []txmanager.Transition{{}}}, "an allocation": {Allocations: []txmanager.Allocation{{}}}, "a version": {Versions: []txmanager.Version{{}}},
		"final head": {Cursor: txmanager.CursorChange{FinalHead: 1}}, "trust": {Cursor: txmanager.CursorChange{ClearSuspected: true}},
		"suspicion": {Cursor: txmanager.CursorChange{Suspect: &txmanager.Violation{}}}, "a release": {LeaseEnd: txmanager.ReleaseUnlessRerun}, "giving up": {LeaseEnd: txmanager.ReleaseAnyway},
	} {
		check.Equal(t, name+" is empty, and would not be written", w.Empty(), false)
	}
}

func TestOnlyAdvanceMaySign(t *testing.T) {
	t.Parallel()
	for kind, want := range map[txmanager.Kind]bool{txmanager.KindAdvance: true, txmanager.KindReceipt: false, txmanager.KindConfirm: false, txmanager.KindResubmit: false, "": false} {
		check.Equal(t, fmt.Sprintf("%q", kind), kind.MaySign(), want)
	}
}

func TestOnlyAcceptedAndKnownAcknowledge(t *testing.T) {
	t.Parallel()
	for class := txmanager.SendUnknown; class <= txmanager.SendInvalid; class++ {
		want := class == txmanager.SendAccepted || class == txmanager.SendAlreadyKnown
		check.Equal(t, class.String(), (txmanager.SendResult{Class: class}).Acknowledged(), want)
	}
	check.Equal(t, "no answer", (txmanager.SendResult{}).Acknowledged(), false)
}

// Texts stored before node texts were separated are recognised by their class.
func TestOldNodeTextsAreForOperators(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"nonce_too_high: nonce too high: tx nonce 0, gapped, next nonce 7": {txmanager.SendNonceTooHigh.Description(), "nonce too high: tx nonce 0, gapped, next nonce 7"},
		txmanager.SendPoolFull.Description():                               {txmanager.SendPoolFull.Description(), ""},
		"balance: the account is empty":                                    {"balance: the account is empty", ""},
		"":                                                                 {"", ""},
	} {
		said, detail := txmanager.CallerText(text)
		check.Equal(t, fmt.Sprintf("%q: for the caller, and for operators", text), [2]string{said, detail}, want)
	}
}

// Legacy parameters are stored under their own name, and read back unchanged.
func TestLegacyParametersAreKept(t *testing.T) {
	t.Parallel()
	want := txmanager.GasParams{Gas: 7, Legacy: true, FeeCapWei: big.NewInt(9), TipCapWei: big.NewInt(9), ValueWei: big.NewInt(1)}
	text := check.Value(json.Marshal(want))(t)
	check.Equal(t, "as JSON", string(text), `{"gas":7,"gasPrice":"9","value":"1"}`)
	var got txmanager.GasParams
	check.OK(t)(json.Unmarshal(text, &got))
	txtest.Same(t, "read back", got, want)
}

// The pure function checks value and receiver too.
func TestBoundsOfValueAndTarget(t *testing.T) {
	t.Parallel()
	b := txmanager.Bounds{ValueWei: txtest.Wei(5), Targets: []string{"0xa"}}
	for want, a := range map[string]txmanager.BoundedTerms{
		"":                 {ValueWei: txtest.Wei(5), Target: "0xa"},
		"at most 5 wei":    {ValueWei: txtest.Wei(6), Target: "0xa"},
		"not allow this t": {ValueWei: txtest.Wei(5), Target: "deploy"},
	} {
		if got := b.RefusalReason(a); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%+v: got %q, want %q in it", a, got, want)
		}
	}
	check.Equal(t, "what is not known yet", b.RefusalReason(txmanager.BoundedTerms{}), "")
}

// Each combination of handler, payload and time has a different fingerprint, also where some are
// missing. The time's offset does not matter.
func TestFingerprintUntil(t *testing.T) {
	t.Parallel()
	at := time.Date(2027, 1, 31, 12, 0, 0, 1000, time.UTC)
	seen := map[[32]byte]string{}
	for _, handler := range []string{"", "wage"} {
		for _, payload := range []string{`{}`, `{"a":1}`} {
			for _, until := range []*time.Time{nil, &at, new(at.Add(time.Microsecond))} {
				what := fmt.Sprint(handler, payload, until)
				print := txmanager.FingerprintUntil(handler, []byte(payload), until)
				if other, taken := seen[print]; taken {
					t.Errorf("%s has the fingerprint of %s", what, other)
				}
				seen[print] = what
			}
		}
	}
	if txmanager.FingerprintUntil("", []byte(`{}`), nil) != txmanager.Fingerprint("", []byte(`{}`)) || txmanager.FingerprintUntil("w", []byte(`{}`), nil) != txmanager.Fingerprint("w", []byte(`{}`)) {
		t.Error("without a time: got another fingerprint than before")
	}
	elsewhere := at.In(time.FixedZone("", 3600))
	check.Equal(t, "the same moment in another offset", txmanager.FingerprintUntil("", []byte(`{}`), &elsewhere), txmanager.FingerprintUntil("", []byte(`{}`), &at))
}
