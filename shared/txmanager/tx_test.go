package txmanager

import (
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Amounts of any size survive JSON, and are never JSON numbers.
func TestGasParamsKeepEveryWei(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amount := func(name string) *big.Int {
			return new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 32).Draw(t, name))
		}
		want := GasParams{Gas: rapid.Uint64().Draw(t, "gas"), FeeCapWei: amount("cap"), TipCapWei: amount("tip"), ValueWei: amount("value")}
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got GasParams
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if d := diff(want, got); d != "" {
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
		var g GasParams
		if err := json.Unmarshal([]byte(text), &g); err == nil {
			t.Errorf("%s: got %+v, want an error", text, g)
		}
	}
	var g GasParams
	if err := json.Unmarshal([]byte(`{"gas":1}`), &g); err != nil || g.ValueWei.Sign()+g.FeeCapWei.Sign()+g.TipCapWei.Sign() != 0 {
		t.Errorf("amounts left out: got %+v, %v; want zeros", g, err)
	}
}

// H26: the worst cost is the whole gas limit at the fee cap, plus the value; a placeholder must
// pay an eighth more.
func TestH26WorstCosts(t *testing.T) {
	t.Parallel()
	g := params(50_000, 300, 7)
	if got, want := g.worstCostWei(), big.NewInt(50_000*300+7); got.Cmp(want) != 0 {
		t.Errorf("worst cost: got %s, want %s", got, want)
	}
	if got, want := placeholderCostWei(big.NewInt(800)), big.NewInt(21_000*900); got.Cmp(want) != 0 {
		t.Errorf("placeholder: got %s, want %s", got, want)
	}
	if got, want := costWithPlaceholder(*g), big.NewInt(50_000*300+7+21_000*300*9/8); got.Cmp(want) != 0 {
		t.Errorf("together: got %s, want %s", got, want)
	}
	if g.FeeCapWei.Int64() != 300 || g.ValueWei.Int64() != 7 {
		t.Errorf("adding up changed what is added: %+v", g)
	}
}

func TestRoomIsTheWindowLessWhatIsHeld(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		window, next uint64
		unsettled    []Tx
		want         int
	}{
		{1, 0, nil, 1}, {1, 6, nil, 1}, {8, 6, nil, 8},
		{1, 6, []Tx{pending(5)}, 0},
		{3, 6, []Tx{pending(5)}, 2},
		{3, 8, []Tx{pending(5)}, 0}, // 6 and 7 are final, 5 is not: the window is counted from the lowest
		{3, 8, []Tx{pending(5), pending(6), pending(7)}, 0},
		{1, 8, []Tx{pending(5), pending(6), pending(7)}, 0}, // narrowed: nothing is withdrawn
	} {
		if got := (SubmitterState{Window: c.window, NextNonce: c.next, Open: c.unsettled}).roomInWindow(); got != c.want {
			t.Errorf("window %d, next %d, %d held: got %d, want %d", c.window, c.next, len(c.unsettled), got, c.want)
		}
	}
}

// The process's monotonic clock extrapolates the database's clock.
func TestStateExtrapolatesTheDatabasesClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := stateOf(1, 0)
		time.Sleep(3 * time.Second) // of the bubble's clock
		if got, want := w.now(), dbNow.Add(3*time.Second); !got.Equal(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// The state after a commit has the changed rows and the new allocations, without terminal
// transactions.
func TestStateAfterACommit(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		load := func() SubmitterState {
			return queue(stateOf(4, 7, pending(5), bare(6)), queued(1, "pay"), queued(2, "pay"), queued(3, "pay"), queued(4, "pay"))
		}
		w := load()
		final, rejected, aside, first := endedByReceipt(pending(5), Receipt{Succeeded: true}), queued(1, "pay"), queued(2, "pay"), queued(3, "pay")
		rejected.State, rejected.Sub = Failed, Rejected
		aside.DeferredUntilNonce = new(uint64(6))
		first.State, first.Nonce = Submitted, new(uint64(7))
		signed := withVersion(bare(6), VersionOriginal, Signed{Hash: versionHash(6, 1)}, dbNow)
		after := w.afterCommit(Commit{
			Transitions: []Transition{{From: Tracking, To: final}, {From: Queued, To: rejected}, {From: Queued, To: aside}},
			Versions:    []Version{{Tx: signed}},
			Allocations: []Allocation{{Tx: first, Nonce: 7}},
			Cursor:      CursorChange{FinalHead: 100},
		})
		if d := diff([]Tx{signed, first}, after.Open); d != "" {
			t.Errorf("unsettled (-want +got):\n%s", d)
		}
		if d := diff([]Tx{queued(4, "pay")}, after.Queue); d != "" {
			t.Errorf("queue (-want +got):\n%s", d)
		}
		if after.NextNonce != 8 || after.FinalHead != 100 || after.Protected || after.lowestOpenNonce() != 6 {
			t.Errorf("got next %d, final head %d, protected %v, lowest %d; want 8, 100, false, 6", after.NextNonce, after.FinalHead, after.Protected, after.lowestOpenNonce())
		}
		if d := diff(load(), w); d != "" {
			t.Errorf("the work before changed (-want +got):\n%s", d)
		}
	})
}

func TestStateAfterACommitKeepsProtectAndFinalHead(t *testing.T) {
	t.Parallel()
	w := SubmitterState{FinalHead: 100}
	if after := w.afterCommit(Commit{Cursor: CursorChange{FinalHead: 90}}); after.FinalHead != 100 || after.Protected {
		t.Errorf("got final head %d, protected %v; want 100, false", after.FinalHead, after.Protected)
	}
	if after := w.afterCommit(Commit{Cursor: CursorChange{OpenIncident: &Violation{}}}); !after.Protected || !after.afterCommit(Commit{}).Protected {
		t.Error("PROTECT was opened and is not kept")
	}
}

// H5: of the requested allocations only the bound ones count.
func TestH05OnlyBoundAllocationsCount(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := queue(stateOf(3, 5), queued(1, "pay"), queued(2, "pay"), queued(3, "pay"))
		var wr Commit
		for i, q := range w.Queue {
			n := 5 + uint64(i)
			q.Nonce, q.State = &n, Submitted
			wr.Allocations = append(wr.Allocations, Allocation{Tx: q, Nonce: n, Signed: &Signed{}})
		}
		for bound := range 4 {
			after := w.afterCommit(wr.onlyBound(CommitResult{Allocated: bound}))
			if len(after.Open) != bound || after.NextNonce != 5+uint64(bound) || len(after.Queue) != 3-bound {
				t.Errorf("%d bound: got %d held, next %d, %d queued", bound, len(after.Open), after.NextNonce, len(after.Queue))
			}
			if got := len(after.openByID(wr.signedIDs())); got != bound {
				t.Errorf("%d bound: got %d to send, want only those", bound, got)
			}
		}
	})
}

func TestOpenByIDKeepsNonceOrder(t *testing.T) {
	t.Parallel()
	w := SubmitterState{Open: []Tx{pending(5), pending(6), pending(7)}}
	var got []string
	for _, x := range w.openByID([]string{"tx-7", "tx-5", "tx-99"}) {
		got = append(got, x.ID)
	}
	if want := []string{"tx-5", "tx-7"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestEmptyWrites(t *testing.T) {
	t.Parallel()
	if !(Commit{}).Empty() {
		t.Error("nothing is not empty")
	}
	for name, w := range map[string]Commit{
		"a move": {Transitions: []Transition{{}}}, "an allocation": {Allocations: []Allocation{{}}}, "a version": {Versions: []Version{{}}},
		"final head": {Cursor: CursorChange{FinalHead: 1}}, "trust": {Cursor: CursorChange{ClearSuspected: true}},
		"suspicion": {Cursor: CursorChange{Suspect: &Violation{}}}, "a release": {LeaseEnd: ReleaseUnlessRerun}, "giving up": {LeaseEnd: ReleaseAnyway},
	} {
		if w.Empty() {
			t.Errorf("%s is empty: it would not be written", name)
		}
	}
}

func TestOnlyAdvanceMaySign(t *testing.T) {
	t.Parallel()
	for kind, want := range map[Kind]bool{KindAdvance: true, KindReceipt: false, KindConfirm: false, KindResubmit: false, "": false} {
		if got := kind.MaySign(); got != want {
			t.Errorf("%q: got %v, want %v", kind, got, want)
		}
	}
}
