package moves

import (
	"fmt"
	"math/big"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// load posts intents for every submitter, and payouts, until it is stopped. Each has a unique value,
// by which the chain distinguishes it, and is posted once.
type load struct {
	d      *deployment
	stop   func()
	values atomic.Int64

	mu       sync.Mutex
	accepted []int64 // values
}

const (
	intentsTo = "0x00000000000000000000000000000000000cafe0"
	payoutsTo = "0x00000000000000000000000000000000000cafe1"
	userID    = 1001
	unit      = 10_000_000_000 // wei in the smallest unit of ETH that the ledgers have
)

// run starts the load.
func (d *deployment) run() *load {
	d.t.Helper()
	check(d.t, d.Deposit(d.ctx, transfer.Funding, userID, stack.ETH.ID, 1_000_000_000_000))
	l := &load{d: d}
	l.values.Store(1000)
	over := make(chan struct{})
	var group sync.WaitGroup
	work := func(post func()) {
		group.Go(func() {
			for tick := time.Tick(200 * time.Millisecond); ; {
				select {
				case <-over:
					return
				case <-tick:
					post()
				}
			}
		})
	}
	for _, s := range d.Submitters() {
		work(func() { l.post(s) })
	}
	work(func() { l.pay() })
	l.stop = sync.OnceFunc(func() {
		close(over)
		group.Wait()
	})
	d.t.Cleanup(l.stop)
	return l
}

// post posts one intent and returns the answer's status and text.
func (l *load) post(s txmanager.Submitter) (status int, text string) {
	v := l.values.Add(1)
	status, answer, err := l.d.Call(l.d.ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx", map[string]any{
		"submitter": s, "requestId": fmt.Sprintf("r-%d", v), "payload": map[string]any{"to": intentsTo, "value": fmt.Sprint(v)},
	})
	if err == nil && status == http.StatusAccepted {
		l.took(v)
	}
	return status, string(answer)
}

// pay posts one payout; its value in wei is that of its units.
func (l *load) pay() (status int, text string) {
	v := l.values.Add(1)
	status, answer, err := l.d.CallAsUser(l.d.ctx, userID, http.MethodPost, "/api/v1/payout", map[string]any{
		"asset": stack.ETH.Name, "amount": transfer.FormatUnits(uint64(v), stack.ETH.Precision), "address": payoutsTo, "cid": fmt.Sprintf("c-%d", v),
	})
	if err == nil && status == http.StatusAccepted {
		l.took(v * unit)
	}
	return status, string(answer)
}

func (l *load) took(v int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted = append(l.accepted, v)
}

// count is how many were accepted so far.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accepted)
}

// more waits until n more were accepted.
func (l *load) more(n int) {
	l.d.t.Helper()
	want := l.count() + n
	l.d.poll(fmt.Sprintf("%d more are accepted", n), func() bool { return l.count() >= want })
}

// mined is how often the chain has each value that was sent to the receivers of the load.
func (d *deployment) mined() map[int64]int {
	d.t.Helper()
	times := make(map[int64]int)
	for number := uint64(0); number <= d.Chain.Head(); number++ {
		block := must(d.Node.BlockByNumber(d.ctx, new(big.Int).SetUint64(number)))(d.t)
		for _, tx := range block.Transactions() {
			if to := tx.To(); to != nil && (*to == common.HexToAddress(intentsTo) || *to == common.HexToAddress(payoutsTo)) {
				times[tx.Value().Int64()]++
			}
		}
	}
	return times
}

// once holds the chain to the one promise: nothing ran twice.
func (d *deployment) once() {
	d.t.Helper()
	all := d.mined()
	for v, n := range all {
		if n > 1 {
			d.t.Errorf("the value %d: got it on the chain %d times, want once at most", v, n)
		}
	}
	if len(all) == 0 {
		d.t.Error("the chain has nothing of the load")
	}
}

// all waits until everything that was accepted is on the chain.
func (l *load) all() {
	l.d.t.Helper()
	l.mu.Lock()
	accepted := append([]int64(nil), l.accepted...)
	l.mu.Unlock()
	missing := 0
	l.d.poll("everything that was accepted is on the chain", func() bool {
		times := l.d.mined()
		missing = 0
		for _, v := range accepted {
			if times[v] == 0 {
				missing++
			}
		}
		return missing == 0
	})
}
