package chaintest

import (
	"encoding/json"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/shared/nonce"
)

// The hash of each watched height that the chain has comes with the look, in the
// same round trip; heights that it does not have are absent.
func testWatch(t *testing.T, b *bundle) {
	b.mine(t, 8)
	head := b.look(t, nonce.Look{}).Head
	before := b.proxy.RoundTrips()
	v := b.look(t, nonce.Look{Watch: []uint64{head.Number + 1, head.Number, 2, 3, 2, head.Number + 99}})
	if got := b.proxy.RoundTrips() - before; got != 1 {
		t.Errorf("round trips: got %d, want 1", got)
	}
	want := map[uint64]nonce.Hash{head.Number: head.Hash}
	for _, h := range b.look(t, nonce.Look{FromBlock: 2, ToBlock: 3}).Headers {
		want[h.Number] = h.Hash
	}
	if diff := cmp.Diff(want, v.Watched); diff != "" || len(want) != 3 {
		t.Errorf("watched (-want +got):\n%s", diff)
	}
	b.wantNoLook(t, "101 heights to watch", nonce.Look{Watch: make([]uint64, 101)})
	b.look(t, nonce.Look{Watch: make([]uint64, 100)})
}

// A block that is not given, is another, or contradicts the rest of the look is
// absent, and the others are not.
func testWatchSpoiled(t *testing.T, b *bundle) {
	b.mine(t, 8)
	head := b.look(t, nonce.Look{}).Head.Number
	for name, spoil := range map[string]func(block map[string]any) map[string]any{
		"missing": func(map[string]any) map[string]any { return map[string]any{"result": nil} },
		"refused": func(map[string]any) map[string]any { return NodeError("header not found") },
		"another height": func(b map[string]any) map[string]any {
			b["number"] = lower(b["number"])
			return map[string]any{"result": b}
		},
		"another fork": func(b map[string]any) map[string]any { b["hash"] = nobody; return map[string]any{"result": b} },
	} {
		for _, at := range []uint64{head, head - 1, head - 4, 0} {
			if name == "another fork" && at < head-1 {
				continue // nothing else shows it
			}
			b.proxy.Set(spoilHeader(at, spoil))
			v := b.look(t, nonce.Look{Watch: []uint64{at, head - 2}})
			if _, ok := v.Watched[at]; ok || len(v.Watched) != 1 {
				t.Errorf("%s at %d of %d: got %v, want only %d", name, at, head, v.Watched, head-2)
			}
		}
	}
	asked := 0
	b.proxy.Set(spoilHeader(head-4, func(block map[string]any) map[string]any {
		if asked++; asked == 2 { // the header goes before
			block["hash"] = nobody
		}
		return map[string]any{"result": block}
	}))
	v := b.look(t, nonce.Look{FromBlock: head - 5, ToBlock: head - 3, Watch: []uint64{head - 4, head - 2}})
	if _, ok := v.Watched[head-4]; ok || len(v.Watched) != 1 || len(v.Headers) != 3 {
		t.Errorf("another than the header: got %v and headers %v, want only %d", v.Watched, v.Headers, head-2)
	}
}

// Heights above the head, also above the head at the look's beginning, are
// absent.
func testWatchAboveTheHead(t *testing.T, b *bundle) {
	b.mine(t, 8)
	v := b.look(t, nonce.Look{FromBlock: 3, ToBlock: 3})
	third := v.Headers[0]
	b.proxy.Set(spoilBlock("latest", func(block map[string]any) map[string]any {
		block["number"], block["hash"], block["parentHash"] = "0x3", third.Hash, third.Parent
		return map[string]any{"result": block}
	}))
	if got, want := b.look(t, nonce.Look{Watch: []uint64{2, 3, 4}}).Watched, (map[uint64]nonce.Hash{2: third.Parent, 3: third.Hash}); !cmp.Equal(got, want) {
		t.Errorf("at head 3: got %v, want %v", got, want)
	}
	heads := 0
	b.proxy.Set(spoilBlock("latest", func(block map[string]any) map[string]any {
		if heads++; heads == 1 {
			block["number"], block["hash"] = lower(block["number"]), block["parentHash"]
			block["parentHash"] = nobody
		}
		return map[string]any{"result": block}
	}))
	n := v.Head.Number
	if got, want := b.look(t, nonce.Look{Watch: []uint64{n, n - 1}}).Watched, (map[uint64]nonce.Hash{n - 1: v.Head.Parent}); !cmp.Equal(got, want) {
		t.Errorf("a block came: got %v, want %v", got, want)
	}
}

// After a reorg the watched heights have other hashes, as deep as it went.
func testWatchAfterReorg(t *testing.T, b *bundle) {
	b.mine(t, 40)
	head := b.look(t, nonce.Look{}).Head.Number
	var heights []uint64
	for n := head - 33; n <= head; n++ {
		heights = append(heights, n)
	}
	for _, depth := range []uint64{1, 5, 32} {
		before := b.look(t, nonce.Look{Watch: heights})
		b.reorg(t, make([][][]byte, depth)...)
		after := b.look(t, nonce.Look{Watch: heights})
		if got := len(after.Watched); got != len(heights) {
			t.Errorf("depth %d: got %d heights, want %d", depth, got, len(heights))
		}
		for _, n := range heights {
			if same, want := before.Watched[n] == after.Watched[n], n+depth <= head; same != want {
				t.Errorf("depth %d: block %d of %d: got the same hash: %t, want %t", depth, n, head, same, want)
			}
		}
	}
}

// A node that lags says again what it said before: a lower head, lower counts,
// no receipt, no watched block above its head. That is a view like any other,
// and the healthy node's next answer is not touched by it.
func testLaggingNode(t *testing.T, b *bundle) {
	b.mine(t, 4)
	tx := b.tx(t, 0, nil)
	head := b.look(t, nonce.Look{}).Head.Number
	q := nonce.Look{Account: true, Receipts: []nonce.Hash{tx.Hash}, Known: []nonce.Hash{tx.Hash},
		FromBlock: head - 1, ToBlock: head + 3, Watch: []uint64{head, head + 1}}
	var recorder Recorder
	b.proxy.Set(recorder.Record())
	old := b.look(t, q)
	b.wantNotTaken(t, "before", 0)
	b.proxy.Set(Fault{})
	b.mustSend(t, tx)
	b.mine(t, 3)
	young := b.look(t, q)

	b.proxy.Set(recorder.Replay(nil))
	lagging := b.look(t, q)
	if diff := cmp.Diff(old, lagging, cmp.Comparer(equalWei), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(nonce.View{}, "Witnesses")); diff != "" {
		t.Errorf("lagging view (-before +now):\n%s", diff)
	}
	if _, ok := lagging.Watched[head+1]; ok || len(lagging.Watched) != 1 || lagging.Head.Number != head {
		t.Errorf("lagging view: got head %d and %v, want %d and nothing above it", lagging.Head.Number, lagging.Watched, head)
	}
	b.wantNotTaken(t, "lagging", 0)
	b.proxy.Set(Fault{})
	if diff := cmp.Diff(young, b.look(t, q), cmp.Comparer(equalWei), cmpopts.IgnoreFields(nonce.View{}, "Witnesses")); diff != "" || len(young.Watched) != 2 {
		t.Errorf("healthy view (-before +after the lagging one):\n%s", diff)
	}
	b.wantTaker(t, "healthy", 0, tx)
}

func equalWei(a, b *big.Int) bool { return a == b || (a != nil && b != nil && a.Cmp(b) == 0) }

// Behind one address two nodes answer, one of which lags. What it says of a part
// of a look never makes a wrong view: the look fails, or that part is missing.
func testLaggingNodeBehindOneAddress(t *testing.T, b *bundle) {
	b.mine(t, 4)
	head := b.look(t, nonce.Look{}).Head.Number
	q := nonce.Look{FromBlock: head + 1, ToBlock: head + 3, Watch: []uint64{head, head + 2}, Finality: "safe"}
	var recorder Recorder
	b.proxy.Set(recorder.Record())
	b.look(t, q)
	b.proxy.Set(Fault{})
	b.mustSend(t, b.tx(t, 0, nil))
	b.mine(t, 3)

	heads := 0
	b.proxy.Set(recorder.Replay(func(c Call) bool {
		if c.asksFor("latest") {
			heads++
		}
		return c.asksFor("latest") && heads == 2
	}))
	b.wantNoLook(t, "a head that went back", q)

	b.proxy.Set(recorder.Replay(func(c Call) bool { return !c.asksFor("latest") }))
	v := b.look(t, q)
	if _, ok := v.Watched[head+2]; ok || len(v.Watched) != 1 || len(v.Headers) > 0 || v.Head.Number != head+3 {
		t.Errorf("headers and watched blocks that lag: got %+v, want none above %d", v, head)
	}

	b.proxy.Set(Fault{Answer: func(call Call, _ json.RawMessage) map[string]any {
		if at, ok := call.countsAt(); !ok || at <= head {
			return nil
		}
		return NodeError("header not found")
	}})
	b.wantUntold(t, "counts above a nonce taken that lag", 0)
}
