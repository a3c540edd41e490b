package acceptance

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// TX-001: 100 concurrent posts of one (submitter, requestId) make one row and
// get one txId.
func TestTX001ConcurrentPostsOfOneRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Processes: 3})
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
	rows := value[int](t, b, `select count(*) from managed_tx`)
	if len(ids) != 1 || rows != 1 || created != 1 {
		t.Errorf("100 posts of one request: got txIds %v, %d rows, %d answered 202; want one of each", ids, rows, created)
	}
	b.await(t, s, txmanager.Confirmed, 1)
	b.wantContiguous(t, s, 1)
}

// TX-002: 1,000 concurrent creates for one submitter are all accepted, and end
// with strictly contiguous nonces, none repeated.
func TestTX002ThousandConcurrentCreates(t *testing.T) {
	t.Parallel()
	const n = 1000
	b := setup(t, stack.Options{Processes: 3, Window: 500, BlockTime: time.Second})
	s := b.Submitters()[0]
	b.createTogether(t, s, n)
	b.await(t, s, txmanager.Confirmed, n)
	b.wantContiguous(t, s, n)
}

// TX-002 in the default window, where one nonce at a time is open: 1,000 concurrent creates are all
// accepted and queued in one order. Nonces are allocated in that order, from 0 on without a gap.
// Confirming all 1,000 would take 2,000 blocks, so the test ends at the 40th.
func TestTX002ThousandConcurrentCreatesInTheDefaultWindow(t *testing.T) {
	t.Parallel()
	const n, ended = 1000, 40
	b := setup(t, stack.Options{Processes: 3, BlockTime: 50 * time.Millisecond})
	s := b.Submitters()[0]
	b.createTogether(t, s, n)
	b.await(t, s, txmanager.Confirmed, ended)
	var stored, open, outOfOrder int
	var gaps bool
	err := b.DB.QueryRow(b.ctx, `
		select count(*), count(*) filter (where open), count(*) filter (where nonce is distinct from place and (nonce is not null or place < bound)),
		       max(nonce) + 1 <> count(nonce) or count(nonce) <> count(distinct nonce)
		  from (select *, row_number() over (order by seq) - 1 as place, count(nonce) over () as bound
		          from managed_tx where submitter = $1) as m`, s).Scan(&stored, &open, &outOfOrder, &gaps)
	if err != nil || stored != n || open > 1 || outOfOrder != 0 || gaps {
		t.Errorf("got %d stored, %d with an open nonce, %d out of the queue's order, gaps %t, %v; want %d, at most 1, 0, none", stored, open, outOfOrder, gaps, err, n)
	}
	equal(t, "nonces bound while the one before was open", b.boundEarly(s), 0)
	if got := b.allMined(t, s.ChainID())[s.Address()]; len(got) < ended || !slices.IsSorted(got) || got[len(got)-1] != uint64(len(got)-1) {
		t.Errorf("nonces on chain: got %v, want 0 to %d or more, each once and in order", got, ended-1)
	}
}

// boundEarly counts the nonces of s that were allocated before the preceding nonce had ended, by the
// history of their transactions. The history also has the transactions' waits in the queue.
func (b bench) boundEarly(s txmanager.Submitter) int {
	return b.count(`
		select count(*)
		  from managed_tx m
		  join managed_tx below on below.submitter = m.submitter and below.nonce = m.nonce - 1
		 where m.submitter = $1
		   and (select min(id) from tx_history where tx_id = m.tx_id and from_state = 'QUEUED' and state <> 'QUEUED')
		     < coalesce((select min(id) from tx_history where tx_id = below.tx_id and state in ('CONFIRMED', 'FAILED')), 'infinity'::float8)`, s)
}

// createTogether posts n intents, 64 at a time, each of which must be accepted.
func (b bench) createTogether(t *testing.T, s txmanager.Submitter, n int) {
	t.Helper()
	slots := make(chan struct{}, 64)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			b.wantPost(t, fmt.Sprint("create ", i), transfer(s, fmt.Sprintf("r-%d", i)), http.StatusAccepted)
		})
	}
	wg.Wait()
}

// TX-003: the intents of two submitters, posted interleaved, end as chain nonces
// 0 to N-1 of each, with no gap.
func TestTX003ContiguousOnChain(t *testing.T) {
	t.Parallel()
	const n = 6
	b := setup(t, stack.Options{})
	for i := range n {
		for _, s := range b.Submitters() {
			b.wantPost(t, fmt.Sprint("create ", i), transfer(s, fmt.Sprintf("r-%d", i)), http.StatusAccepted)
		}
	}
	for _, s := range b.Submitters() {
		b.await(t, s, txmanager.Confirmed, n)
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
	b.await(t, s, txmanager.Tracking, 1)

	b.mine(t, 1) // included, but not final before one confirmation
	b.becomes(t, first, "INCLUDED", func(r record) bool { return text(r.SubState) == string(txmanager.Included) })
	_, r := b.ask(t, stack.OperatorAccount, second)
	if r.State != string(txmanager.Queued) || r.Nonce != nil || r.TxHash != nil {
		t.Errorf("the second while the first is not final: got %s, nonce %v, hash %v; want QUEUED without either", r.State, r.Nonce, r.TxHash)
	}

	b.mine(t, 1)
	r = b.becomes(t, second, "with a nonce", func(r record) bool { return r.Nonce != nil })
	equal(t, "the second's nonce", *r.Nonce, 1)
	b.wantState(t, "the first once the second has a nonce", first, string(txmanager.Confirmed))
	b.Chain.StartMining()
	b.await(t, s, txmanager.Confirmed, 2)
	b.wantContiguous(t, s, 2)
}

// mine adds blocks to a chain whose own mining is stopped.
func (b bench) mine(t *testing.T, n int) {
	t.Helper()
	check(t, b.Chain.Mine(n))
}
