package txmanager

import (
	"errors"
	"fmt"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/shared/lease"
)

const alice = Submitter("eip155:1337:0x00000000000000000000000000000000000a11ce")

// dbNow is the database's clock in every submitter state of these tests.
var dbNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func rulesOf(confirmations uint64) Rules {
	return Rules{
		Finality: ByConfirmations, Confirmations: confirmations, BlockTime: 12 * time.Second,
		Resubmit: true, ResubmitEvery: time.Minute, MaxResubmits: 20, StuckAfter: 30 * time.Minute,
	}
}

// testTiming are the time limits of every lease session of these tests.
var testTiming = Timing{
	Lease:       lease.Rules{Duration: 10 * time.Second, RenewBelow: 5 * time.Second, ClockSkewAllowance: time.Second},
	CallTimeout: 10 * time.Second, IterationsEndAfter: 30 * time.Second,
}

// frozen runs f with a clock that stands still, so that SubmitterState.now is dbNow.
func frozen(t *testing.T, f func(*testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// stateOf is alice's submitter state with next_nonce and the open transactions given.
func stateOf(window, next uint64, unsettled ...Tx) SubmitterState {
	w := SubmitterState{
		Lease: lease.New(string(alice), "node-1/a", 7, time.Now(), time.Hour),
		Now:   dbNow, Window: window, NextNonce: next, Open: unsettled,
	}
	return w.WithLoadTime(time.Now())
}

func queue(w SubmitterState, queue ...Tx) SubmitterState {
	w.Queue = queue
	return w
}

func ago(d time.Duration) *time.Time { return new(dbNow.Add(-d)) }
func in(d time.Duration) *time.Time  { return new(dbNow.Add(d)) }

// versionHash is the hash of a signed version of the transaction at nonce n.
func versionHash(n uint64, version byte) Hash { return Hash{0: version, 30: byte(n >> 8), 31: byte(n)} }

func params(gas uint64, feeCapWei, valueWei int64) *GasParams {
	return &GasParams{Gas: gas, FeeCapWei: big.NewInt(feeCapWei), TipCapWei: big.NewInt(1), ValueWei: big.NewInt(valueWei)}
}

// held is a transaction that holds nonce n in a state with signed bytes, checked and sent a moment
// ago: nothing is due for it.
func held(n uint64, s State, sub SubState) Tx {
	return Tx{
		ID: fmt.Sprintf("tx-%d", n), Submitter: alice, Payload: []byte("pay"), State: s, Sub: sub, Nonce: &n,
		Versions: []Hash{versionHash(n, 1)}, Raw: []byte{byte(n)}, Gas: params(21_000, 100, 0),
		FirstSubmitAt: ago(time.Minute), LastSubmitAt: ago(time.Second), SubmitAttempts: 1,
		NextResubmitAt: in(50 * time.Second), LastCheckAt: ago(time.Second), NextCheckAt: in(40 * time.Second),
	}
}

func pending(n uint64) Tx   { return held(n, Tracking, Pending) }
func submitted(n uint64) Tx { return held(n, Submitted, "") }
func stuck(n uint64) Tx     { return held(n, Stuck, "") }

// bare is a transaction whose nonce is bound and that has no signed version.
func bare(n uint64) Tx {
	return Tx{ID: fmt.Sprintf("tx-%d", n), Submitter: alice, Payload: []byte("pay"), State: InFlight, Nonce: &n, Gas: params(21_000, 100, 0)}
}

// included is pending(n) with a receipt in the first block of list.
func included(n uint64, list ...Header) Tx {
	t := held(n, Tracking, Included)
	t.Receipt, t.Confirmations = new(receiptOf(t, list[0])), list
	return t
}

// queued is the intent number seq of the queue, with a payload of that name.
func queued(seq int64, payload string) Tx {
	return Tx{ID: fmt.Sprintf("q-%d", seq), Submitter: alice, Seq: seq, Payload: []byte(payload), State: Queued}
}

// block is block number n of the chain of a name; blocks of two names differ at
// every height.
func block(name byte, n uint64) Header {
	h := Header{Number: n, Hash: Hash{0: name, 30: byte(n >> 8), 31: byte(n)}, Time: uint64(dbNow.Unix())}
	if n > 0 {
		h.Parent = Hash{0: name, 30: byte((n - 1) >> 8), 31: byte(n - 1)}
	}
	return h
}

// blocks are those of a chain from one height to another, both included.
func blocks(name byte, from, to uint64) (list []Header) {
	for n := from; n <= to; n++ {
		list = append(list, block(name, n))
	}
	return list
}

func receiptOf(t Tx, b Header) Receipt {
	return Receipt{TxHash: t.Hash(), BlockNumber: b.Number, BlockHash: b.Hash, Succeeded: true}
}

// viewOf is a healthy node's observation with the last of headers as its head. The account is
// rich, the base fee is 10 wei and the tip 2, and no receipt is found.
func viewOf(w SubmitterState, headers ...Header) ChainObservation {
	v := ChainObservation{
		Node: "node-1", Head: headers[len(headers)-1], Headers: headers,
		Account: Account{LatestCount: w.lowestOpenNonce(), PendingCount: w.NextNonce, BalanceWei: big.NewInt(1e18),
			BaseFeeWei: big.NewInt(10), TipWei: big.NewInt(2)},
		Receipts: map[Hash]ReceiptAnswer{},
	}
	for _, t := range w.Open {
		for _, h := range t.Versions {
			v.Receipts[h] = ReceiptAnswer{Answer: AnswerNotFound}
		}
	}
	return v
}

// finding is v with receipts.
func finding(v ChainObservation, receipts ...Receipt) ChainObservation {
	for _, r := range receipts {
		v.Receipts[r.TxHash] = ReceiptAnswer{Answer: AnswerFound, Receipt: r}
	}
	return v
}

// asking is a query about every version of every open transaction.
func asking(w SubmitterState) ChainQuery {
	q := ChainQuery{Submitter: alice, Account: true}
	for _, t := range w.Open {
		q.Receipts = append(q.Receipts, t.Versions...)
	}
	return q
}

// payloads parses payloads by name. It stands for the part of a connector that never leaves the
// process; any other call is a nil dereference.
type payloads struct {
	ChainConnector
	calls map[string]Call
}

func (p payloads) ParsePayload(payload []byte) (Call, error) {
	if c, ok := p.calls[string(payload)]; ok {
		return c, nil
	}
	return Call{}, errors.New("no such payload")
}

// reader knows "pay" (a plain transfer with gas), "call" (gas to be estimated), and the calls in
// more.
func reader(more map[string]Call) payloads {
	to := Address{19: 0xb0}
	p := payloads{calls: map[string]Call{
		"pay":  {To: &to, Value: big.NewInt(1), Gas: 21_000},
		"call": {To: &to, Value: big.NewInt(0), Data: []byte{1}},
	}}
	for name, c := range more {
		p.calls[name] = c
	}
	return p
}

// diff compares by value, big integers by their amount.
func diff(want, got any) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty(),
		cmp.Comparer(func(a, b *big.Int) bool { return (a == nil) == (b == nil) && (a == nil || a.Cmp(b) == 0) }),
		cmp.AllowUnexported(SubmitterState{}), cmpopts.IgnoreUnexported(lease.Lease{}))
}
