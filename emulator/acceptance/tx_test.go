package acceptance

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/nonce"
)

// TX-001: 100 concurrent posts of one (submitter, requestId) make one row and
// get one txId.
func TestTX001ConcurrentPostsOfOneRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	var mu sync.Mutex
	ids, created := make(map[string]int), 0
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			status, id := b.post(t, transfer(s, "once"))
			mu.Lock()
			defer mu.Unlock()
			ids[id]++
			if status == http.StatusAccepted {
				created++
			}
		})
	}
	wg.Wait()
	var rows int
	if err := b.DB.QueryRow(b.ctx, `select count(*) from managed_tx`).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	if len(ids) != 1 || rows != 1 || created != 1 {
		t.Errorf("100 posts of one request: got txIds %v, %d rows, %d answered 202; want one of each", ids, rows, created)
	}
	b.await(t, s, nonce.Confirmed, 1)
	b.wantContiguous(t, s, 1)
}

// TX-002: 1,000 concurrent creates for one submitter are all accepted, and end
// with strictly contiguous nonces, none repeated.
func TestTX002ThousandConcurrentCreates(t *testing.T) {
	t.Parallel()
	const n = 1000
	b := setup(t, stack.Options{Window: 500, BlockTime: time.Second})
	s := b.Submitters()[0]
	slots := make(chan struct{}, 64)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if status, _ := b.post(t, transfer(s, fmt.Sprintf("r-%d", i))); status != http.StatusAccepted {
				t.Errorf("create %d: got status %d, want 202", i, status)
			}
		})
	}
	wg.Wait()
	b.await(t, s, nonce.Confirmed, n)
	b.wantContiguous(t, s, n)
}

// TX-003: the intents of two submitters, posted interleaved, end as chain nonces
// 0 to N-1 of each, with no gap.
func TestTX003ContiguousOnChain(t *testing.T) {
	t.Parallel()
	const n = 6
	b := setup(t, stack.Options{})
	for i := range n {
		for _, s := range b.Submitters() {
			if status, _ := b.post(t, transfer(s, fmt.Sprintf("r-%d", i))); status != http.StatusAccepted {
				t.Fatalf("create %d: got status %d, want 202", i, status)
			}
		}
	}
	for _, s := range b.Submitters() {
		b.await(t, s, nonce.Confirmed, n)
		b.wantContiguous(t, s, n)
	}
}

// TX-004: with window 1 the second intent stays QUEUED, without a nonce, until
// the first is final.
func TestTX004SecondWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	b.Chain.StopMining()
	_, first := b.post(t, transfer(s, "first"))
	_, second := b.post(t, transfer(s, "second"))
	b.await(t, s, nonce.Tracking, 1)

	b.mine(t, 1) // included, and not yet final: one confirmation is wanted
	err := poll(b.ctx, func() bool {
		_, r := b.ask(t, stack.OperatorAccount, first)
		return r.SubState != nil && *r.SubState == string(nonce.Included)
	})
	if err != nil {
		t.Fatalf("the first never became INCLUDED: %v", err)
	}
	_, r := b.ask(t, stack.OperatorAccount, second)
	if r.State != string(nonce.Queued) || r.Nonce != nil || r.TxHash != nil {
		t.Errorf("the second while the first is not final: got %s, nonce %v, hash %v; want QUEUED without either", r.State, r.Nonce, r.TxHash)
	}

	b.mine(t, 1)
	err = poll(b.ctx, func() bool {
		_, r = b.ask(t, stack.OperatorAccount, second)
		return r.Nonce != nil
	})
	if err != nil || *r.Nonce != 1 {
		t.Fatalf("the second's nonce: got %v, %v; want 1", r.Nonce, err)
	}
	if _, r = b.ask(t, stack.OperatorAccount, first); r.State != string(nonce.Confirmed) {
		t.Errorf("the first once the second has a nonce: got %s, want CONFIRMED", r.State)
	}
	b.Chain.StartMining()
	b.await(t, s, nonce.Confirmed, 2)
	b.wantContiguous(t, s, 2)
}

// mine adds blocks to a chain whose own mining is stopped.
func (b bench) mine(t *testing.T, n int) {
	t.Helper()
	if err := b.Chain.Mine(n); err != nil {
		t.Fatal(err)
	}
}
