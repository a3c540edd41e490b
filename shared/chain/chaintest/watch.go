package chaintest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The hash of each watched height of the chain is part of the observation, in the same round trip. Heights
// that the chain does not have are absent.
func (b contract) Watch(t *testing.T) {
	b.mine(t, 8)
	head := b.query(t, txmanager.ChainQuery{}).Head
	before := b.Family.RoundTrips()
	v := b.query(t, txmanager.ChainQuery{HashesAt: []uint64{head.Number + 1, head.Number, 2, 3, 2, head.Number + 99}})
	check.Equal(t, "round trips", b.Family.RoundTrips()-before, 1)
	want := map[uint64]txmanager.Hash{head.Number: head.Hash}
	for _, h := range b.query(t, txmanager.ChainQuery{FromBlock: 2, ToBlock: 3}).Headers {
		want[h.Number] = h.Hash
	}
	check.Same(t, "watched", v.HashesAt, want)
	check.Equal(t, "watched heights", len(want), 3)
	b.wantNoObservation(t, "101 heights to watch", txmanager.ChainQuery{HashesAt: make([]uint64, 101)})
	b.query(t, txmanager.ChainQuery{HashesAt: make([]uint64, 100)})
}

// A watched block that is missing, replaced, or contradicts the rest of the observation is absent. The others
// are not.
func (b overJSONRPC) FaultyWatchedBlocks(t *testing.T) {
	b.mine(t, 8)
	head := b.query(t, txmanager.ChainQuery{}).Head.Number
	for name, fault := range wrongBlocks {
		for _, at := range []uint64{head, head - 1, head - 4, 0} {
			if name == "another fork" && at < head-1 {
				continue // no other answer shows it
			}
			b.proxy.Set(fault(blockAt(at)))
			v := b.query(t, txmanager.ChainQuery{HashesAt: []uint64{at, head - 2}})
			if _, ok := v.HashesAt[at]; ok || len(v.HashesAt) != 1 {
				t.Errorf("%s at %d of %d: got %v, want only %d", name, at, head, v.HashesAt, head-2)
			}
		}
	}
	second := nth(2, blockAt(head-4)) // the header is requested first
	b.proxy.Set(changing(second, func(block map[string]any) { block["hash"] = absentHash }))
	v := b.query(t, txmanager.ChainQuery{FromBlock: head - 5, ToBlock: head - 3, HashesAt: []uint64{head - 4, head - 2}})
	if _, ok := v.HashesAt[head-4]; ok || len(v.HashesAt) != 1 || len(v.Headers) != 3 {
		t.Errorf("another than the header: got %v and headers %v, want only %d", v.HashesAt, v.Headers, head-2)
	}
}

// Heights above the head, also above the head at the query's beginning, are absent.
func (b overJSONRPC) WatchAboveTheHead(t *testing.T) {
	b.mine(t, 8)
	v := b.query(t, txmanager.ChainQuery{FromBlock: 3, ToBlock: 3})
	third := v.Headers[0]
	b.proxy.Set(changing(blockOf("latest"), func(block map[string]any) {
		block["number"], block["hash"], block["parentHash"] = "0x3", third.Hash, third.Parent
	}))
	got := b.query(t, txmanager.ChainQuery{HashesAt: []uint64{2, 3, 4}}).HashesAt
	check.Same(t, "at head 3", got, map[uint64]txmanager.Hash{2: third.Parent, 3: third.Hash})
	b.proxy.Set(changing(nth(1, blockOf("latest")), func(block map[string]any) {
		block["number"], block["hash"], block["parentHash"] = lower(block["number"]), block["parentHash"], absentHash
	}))
	n := v.Head.Number
	got = b.query(t, txmanager.ChainQuery{HashesAt: []uint64{n, n - 1}}).HashesAt
	check.Same(t, "a block came", got, map[uint64]txmanager.Hash{n - 1: v.Head.Parent})
}

// After a reorg the watched heights have other hashes, down to its depth.
func (b contract) WatchAfterReorg(t *testing.T) {
	b.mine(t, 40)
	head := b.query(t, txmanager.ChainQuery{}).Head.Number
	var heights []uint64
	for n := head - 33; n <= head; n++ {
		heights = append(heights, n)
	}
	for _, depth := range []uint64{1, 5, 32} {
		before := b.query(t, txmanager.ChainQuery{HashesAt: heights})
		b.reorg(t, make([][][]byte, depth)...)
		after := b.query(t, txmanager.ChainQuery{HashesAt: heights})
		check.Equal(t, fmt.Sprintf("depth %d: heights", depth), len(after.HashesAt), len(heights))
		for _, n := range heights {
			check.Equal(t, fmt.Sprintf("depth %d: block %d of %d has the same hash", depth, n, head), before.HashesAt[n] == after.HashesAt[n], n+depth <= head)
		}
	}
}

// A lagging node repeats earlier answers: a lower head, lower counts, no receipt, no watched block above its
// head. That is a valid observation, and does not affect the healthy node's next answer.
func (b overJSONRPC) LaggingNode(t *testing.T) {
	b.mine(t, 4)
	tx := b.tx(t, 0, nil)
	head := b.query(t, txmanager.ChainQuery{}).Head.Number
	q := txmanager.ChainQuery{Account: true, Receipts: []txmanager.Hash{tx.Hash}, Known: []txmanager.Hash{tx.Hash},
		FromBlock: head - 1, ToBlock: head + 3, HashesAt: []uint64{head, head + 1}}
	var old txmanager.ChainObservation
	replay := b.record(func() {
		old = b.query(t, q)
		b.wantNotConsumed(t, "before", 0)
	})
	b.include(t, 3, tx)
	young := b.query(t, q)

	b.proxy.Set(replay(nil))
	lagging := b.query(t, q)
	withoutOthers := cmpopts.IgnoreFields(txmanager.ChainObservation{}, "OtherNodes")
	check.Same(t, "lagging view, want that before", lagging, old, check.BigInts, cmpopts.EquateEmpty(), withoutOthers)
	if _, ok := lagging.HashesAt[head+1]; ok || len(lagging.HashesAt) != 1 || lagging.Head.Number != head {
		t.Errorf("lagging view: got head %d and %v, want %d and nothing above it", lagging.Head.Number, lagging.HashesAt, head)
	}
	b.wantNotConsumed(t, "lagging", 0)
	b.proxy.Set(Fault{})
	check.Same(t, "healthy view, want that before the lagging one", b.query(t, q), young, check.BigInts, withoutOthers)
	check.Equal(t, "heights in a healthy view", len(young.HashesAt), 2)
	b.wantConsumer(t, "healthy", 0, tx)
}

// Two nodes answer at one address, and one of them lags. Its answers never make a wrong observation: the
// query fails, or that part is missing.
func (b overJSONRPC) LaggingNodeAtASharedAddress(t *testing.T) {
	b.mine(t, 4)
	head := b.query(t, txmanager.ChainQuery{}).Head.Number
	q := txmanager.ChainQuery{FromBlock: head + 1, ToBlock: head + 3, HashesAt: []uint64{head, head + 2}, Finality: "safe"}
	replay := b.record(func() { b.query(t, q) })
	b.include(t, 3, b.tx(t, 0, nil))

	b.proxy.Set(replay(nth(2, blockOf("latest"))))
	b.wantNoObservation(t, "a head that went back", q)

	b.proxy.Set(replay(func(c Call) bool { return !c.asksFor("latest") }))
	v := b.query(t, q)
	if _, ok := v.HashesAt[head+2]; ok || len(v.HashesAt) != 1 || len(v.Headers) > 0 || v.Head.Number != head+3 {
		t.Errorf("headers and watched blocks that lag: got %+v, want none above %d", v, head)
	}

	b.proxy.Set(answering(countsWhere(func(at uint64) bool { return at > head }), NodeError("header not found")))
	b.wantUntold(t, "counts above a nonce taken that lag", 0)
}
