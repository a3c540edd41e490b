package acceptance

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A restore is noticed 700 blocks later, when the node has counts of the last 128 blocks only.
// Background steps find the lost nonces in the blocks. The release waits for them and matches the
// request that ran. It reports no nonce's consumer as unknown, and nothing runs twice.
func TestLostNoncesOfOldBlocksAreFound(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	b.inFlight(t, worth(s, "first", 100))
	_, ran := b.post(t, worth(s, "ran later", 102))
	b.BackUp(t)
	b.Chain.StartMining()
	b.again(t, stack.CallerAccount, http.MethodPost, "/api/v1/tx", worth(s, "lost", 106))
	b.await(t, s, txmanager.Confirmed, 3)
	b.mine(t, 700)
	b.restore(t)

	swept := func(what string, met func() bool) {
		t.Helper()
		b.until(t, what, func() bool { _ = b.RunSweep(b.ctx); return met() })
	}
	swept("the restore is noticed", func() bool {
		return b.count(`select count(*) from protect_incident where submitter = $1 and closed_at is null`, s) == 1
	})
	b.operates(t, "/admin/v1/database/accept", map[string]any{"reason": "the restore of the test"})
	swept("what was in flight in the copy is final", func() bool {
		return b.count(`select count(*) from managed_tx where submitter = $1 and state = 'CONFIRMED'`, s) == 1
	})
	incident := b.inProtect(t, s)
	body := map[string]any{"incident": incident, "mode": "resync", "count": 3, "reason": "reconciled"}
	var status int
	var text string
	judged := func() bool {
		_ = b.RunSweep(b.ctx)
		if status, text = b.releaseOnce(t, s, body); status == http.StatusServiceUnavailable && !strings.Contains(text, "being read") || strings.Contains(text, "is not known") {
			t.Fatalf("release: got %d %s, want it to wait until all were read", status, text)
		}
		return status != http.StatusServiceUnavailable
	}
	if err := poll(b.ctx, judged); err != nil || status != http.StatusBadRequest || !strings.Contains(text, "ran later") || !strings.Contains(text, "nonce 1") {
		t.Fatalf("nothing named: got %d %s, %v; want 400 with what ran at nonce 1", status, text, err)
	}
	b.wantCount(t, "blocks read (the node has no counts of then)", 1, `select count(*) from foreign_reading where submitter = $1 and block > 0`, s)
	b.wantShown(t, s, map[uint64]string{1: "102", 2: "106"})
	body["others"] = "matching"
	if err := poll(b.ctx, judged); err != nil || status != http.StatusOK {
		t.Fatalf("others matching: got %d %s, %v", status, text, err)
	}
	b.wantRecorded(t, ran)
	_, last := b.post(t, worth(s, "last", 108))
	b.confirmed(t, last)
	same(t, "how often the chain has the intent of so many wei", b.minedWorth(t), map[int64]int{100: 1, 102: 1, 106: 1, 108: 1})
}

// A foreign transaction consumes a nonce, and a transaction of ours consumes the next. Both are in a
// block for which the node has no counts any more. The page shows only the foreign one: the other is
// not lost, and no background step would ever read it.
func TestAnOwnTransactionOfAnOldBlockIsNotShownAsLost(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Window: 8})
	s := b.Submitters()[0]
	b.inFlight(t, worth(s, "displaced", 100))
	_, behind := b.post(t, worth(s, "behind it", 102))
	b.await(t, s, txmanager.Tracking, 2)
	b.useTheKey(t, 0, 50)
	b.Chain.StartMining()
	incident := b.inProtect(t, s)
	b.mine(t, 700)
	var shown []client.LostNonce
	read := func() bool {
		_ = b.RunSweep(b.ctx)
		shown, _ = b.lostNonces(t, s)
		return len(shown) > 0 && shown[0].Nonce == 0 && shown[0].ConsumingTx != nil
	}
	if err := poll(b.ctx, read); err != nil || len(shown) != 1 {
		t.Fatalf("lost: got %+v, %v; want nonce 0 alone, with its taker", shown, err)
	}
	body := map[string]any{"incident": incident, "mode": "resync", "count": 2, "requests": map[string]string{"0": "none"}, "reason": "the key was shared"}
	b.released(t, s, "", body)
	b.confirmed(t, behind)
}

// wantShown checks the operator's page of lost nonces against the transactions that consumed them.
func (b bench) wantShown(t *testing.T, s txmanager.Submitter, want map[uint64]string) {
	t.Helper()
	shown, _ := b.lostNonces(t, s)
	got := make(map[uint64]string)
	for _, one := range shown {
		if one.ConsumingTx != nil {
			got[one.Nonce] = one.ConsumingTx.Value
		}
	}
	if same(t, "wei of the lost nonces' transactions", got, want); len(shown) != len(want) {
		t.Errorf("lost: got %+v, want %d nonces", shown, len(want))
	}
}
