package acceptance

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func (b bench) raw(t *testing.T, txID, kind string) []byte {
	t.Helper()
	return value[[]byte](t, b, `
		select d.bytes
		  from tx_version v
		  join tx_document d on d.tx_id = v.tx_id and d.name = 'version:' || v.version
		 where v.tx_id = $1 and v.kind = $2`, txID, kind)
}

// wantEnd checks how a transaction ended, and by which of its versions.
func (b bench) wantEnd(t *testing.T, name, txID, end, kind string) {
	t.Helper()
	var gotEnd, gotKind string
	err := b.DB.QueryRow(b.ctx, `
		select concat_ws('/', m.state, m.sub_state), v.kind
		  from managed_tx m
		  join tx_version v on v.tx_id = m.tx_id and v.tx_hash = m.receipt ->> 'txHash'
		 where m.tx_id = $1`, txID).Scan(&gotEnd, &gotKind)
	if err != nil || gotEnd != end || gotKind != kind {
		t.Errorf("%s: got %s by %s, %v; want %s by %s", name, gotEnd, gotKind, err, end, kind)
	}
}

// fates names what a reorg does to four transactions of separate submitters. One comes back in another
// block, one vanishes, one is replaced by the placeholder, and one replaces the placeholder.
type fates struct{ back, vanished, cancelled, executed string }

// In a reorg less deep than finality, each list of confirming blocks is replaced, never spliced. A
// transaction that comes back is followed, one that vanished is sent again, and the version that is
// mined in the end decides.
func TestReorgsShallowerThanFinality(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{1, 2, 5, 12, 32} {
		parallel(t, fmt.Sprintf("depth %d", depth), func(t *testing.T) {
			b := setup(t, stack.Options{Submitters: 4, Settings: withSettings(quick, map[string]string{
				"FENCEPOST_CONFIRMATIONS_REQUIRED": strconv.Itoa(depth + 3), "FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "1s",
			})})
			x := b.beforeReorg(t)
			original, placeholder := b.raw(t, x.cancelled, "ORIGINAL"), b.raw(t, x.cancelled, "PLACEHOLDER")
			executed, filler := b.raw(t, x.executed, "ORIGINAL"), b.raw(t, x.executed, "PLACEHOLDER")
			back := b.raw(t, x.back, "ORIGINAL")
			check(t, b.Chain.MineExactly(back, b.raw(t, x.vanished, "ORIGINAL"), original, filler))
			b.mine(t, depth-1)
			b.confirmedBy(t, depth)
			blocks := b.blocks(t)

			after := make([][][]byte, depth+1)
			after[0], after[depth] = [][]byte{placeholder, executed}, [][]byte{back}
			check(t, b.Chain.Reorg(uint64(depth), after...))
			b.Chain.DropPool()
			b.elsewhere(t, blocks)
			b.mine(t, depth+4)
			b.Chain.StartMining()
			b.ends(t, b.each(1))
			b.wantEnd(t, "came back in another block", x.back, "CONFIRMED", "ORIGINAL")
			b.wantEnd(t, "vanished", x.vanished, "CONFIRMED", "ORIGINAL")
			b.wantEnd(t, "replaced by its placeholder", x.cancelled, "FAILED/PLACEHOLDER", "PLACEHOLDER")
			b.wantEnd(t, "put in its placeholder's place", x.executed, "CONFIRMED", "ORIGINAL")
			b.noBlockOf(t, blocks)
		})
	}
}

// beforeReorg posts the four, and cancels two of them, while no block comes.
func (b bench) beforeReorg(t *testing.T) (x fates) {
	t.Helper()
	b.Chain.StopMining()
	for i, id := range []*string{&x.back, &x.vanished, &x.cancelled, &x.executed} {
		*id = b.postUntilAnswered(t, transfer(b.Submitters()[i], "r"))
		b.await(t, b.Submitters()[i], txmanager.Tracking, 1)
	}
	for i, id := range []string{x.cancelled, x.executed} {
		b.cancel(t, id)
		b.versions(t, id, "ORIGINAL", "PLACEHOLDER")
		b.await(t, b.Submitters()[2+i], txmanager.Tracking, 1)
	}
	return x
}

// blocks returns the hashes in all lists of confirming blocks.
func (b bench) blocks(t *testing.T) (hashes []string) {
	t.Helper()
	err := b.DB.QueryRow(b.ctx, `
		select array_agg(distinct c ->> 'hash') from managed_tx, jsonb_array_elements(confirmations) as c`).Scan(&hashes)
	if err != nil || slices.Contains(hashes, "") {
		t.Fatalf("confirming blocks: got %v, %v", hashes, err)
	}
	return hashes
}

// elsewhere waits until no transaction is recorded in one of the blocks.
func (b bench) elsewhere(t *testing.T, blocks []string) {
	t.Helper()
	b.awaitCount(t, "transactions are still held to be in replaced blocks", 0, `select count(*) from managed_tx where receipt ->> 'blockHash' = any($1)`, blocks)
}

// noBlockOf checks that no list still has a replaced block.
func (b bench) noBlockOf(t *testing.T, blocks []string) {
	t.Helper()
	if kept := slices.DeleteFunc(b.blocks(t), func(block string) bool { return !slices.Contains(blocks, block) }); len(kept) > 0 {
		t.Errorf("replaced blocks in the lists of confirming blocks: got %v, want none", kept)
	}
}
