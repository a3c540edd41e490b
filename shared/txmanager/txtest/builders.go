// Package txtest builds transactions, submitter states and chain observations for the tests of the
// transaction manager's packages.
package txtest

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const Alice = txmanager.Submitter("eip155:1337:0x00000000000000000000000000000000000a11ce")

// Now is the database's clock in every submitter state of these tests.
var Now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// StateOf is alice's submitter state with next_nonce and the open transactions given. Its database's clock
// stands still.
func StateOf(window, next uint64, unsettled ...txmanager.Tx) txmanager.SubmitterState {
	return txmanager.SubmitterState{
		Lease: lease.New(string(Alice), "node-1/a", 7, time.Now(), time.Hour),
		Now:   Now, Window: window, NextNonce: next, Open: unsettled,
	}.WithStandingClock()
}

func Queue(w txmanager.SubmitterState, queue ...txmanager.Tx) txmanager.SubmitterState {
	w.Queue = queue
	return w
}

func Ago(d time.Duration) *time.Time { return new(Now.Add(-d)) }

func In(d time.Duration) *time.Time { return new(Now.Add(d)) }

// VersionHash is the hash of a signed version of the transaction at nonce n.
func VersionHash(n uint64, version byte) txmanager.Hash {
	return txmanager.Hash{0: version, 30: byte(n >> 8), 31: byte(n)}
}

func Params(gas uint64, feeCapWei, valueWei int64) *txmanager.GasParams {
	return &txmanager.GasParams{Gas: gas, FeeCapWei: big.NewInt(feeCapWei), TipCapWei: big.NewInt(1), ValueWei: big.NewInt(valueWei)}
}

// Held is a transaction that holds nonce n in a state with signed bytes, checked and sent a moment
// ago: nothing is due for it.
func Held(n uint64, s txmanager.State, sub txmanager.SubState) txmanager.Tx {
	return txmanager.Tx{
		ID: fmt.Sprintf("tx-%d", n), Submitter: Alice, Payload: []byte("pay"), State: s, Sub: sub, Nonce: &n,
		Versions: []txmanager.Hash{VersionHash(n, 1)}, Raw: []byte{byte(n)}, Gas: Params(21_000, 100, 0),
		FirstSubmitAt: Ago(time.Minute), LastSubmitAt: Ago(time.Second), SubmitAttempts: 1,
		NextResubmitAt: In(50 * time.Second), LastCheckAt: Ago(time.Second), NextCheckAt: In(40 * time.Second),
	}
}

func Pending(n uint64) txmanager.Tx { return Held(n, txmanager.Tracking, txmanager.Pending) }

func Submitted(n uint64) txmanager.Tx { return Held(n, txmanager.Submitted, "") }

func Stuck(n uint64) txmanager.Tx { return Held(n, txmanager.Stuck, "") }

// Bare is a transaction whose nonce is bound and that has no signed version.
func Bare(n uint64) txmanager.Tx {
	return txmanager.Tx{ID: fmt.Sprintf("tx-%d", n), Submitter: Alice, Payload: []byte("pay"), State: txmanager.InFlight, Nonce: &n, Gas: Params(21_000, 100, 0)}
}

// Included is pending(n) with a receipt in the first block of list.
func Included(n uint64, list ...txmanager.Header) txmanager.Tx {
	t := Held(n, txmanager.Tracking, txmanager.Included)
	t.Receipt, t.Confirmations = new(ReceiptOf(t, list[0])), list
	return t
}

// Queued is the intent number seq of the queue, with a payload of that name.
func Queued(seq int64, payload string) txmanager.Tx {
	return txmanager.Tx{ID: fmt.Sprintf("q-%d", seq), Submitter: Alice, Seq: seq, Payload: []byte(payload), State: txmanager.Queued}
}

// Block is block number n of the chain of a name; blocks of two names differ at
// every height.
func Block(name byte, n uint64) txmanager.Header {
	h := txmanager.Header{Number: n, Hash: txmanager.Hash{0: name, 30: byte(n >> 8), 31: byte(n)}, Time: uint64(Now.Unix())}
	if n > 0 {
		h.Parent = txmanager.Hash{0: name, 30: byte((n - 1) >> 8), 31: byte(n - 1)}
	}
	return h
}

// Blocks are those of a chain from one height to another, both included.
func Blocks(name byte, from, to uint64) (list []txmanager.Header) {
	for n := from; n <= to; n++ {
		list = append(list, Block(name, n))
	}
	return list
}

func ReceiptOf(t txmanager.Tx, b txmanager.Header) txmanager.Receipt {
	return txmanager.Receipt{TxHash: t.Hash(), BlockNumber: b.Number, BlockHash: b.Hash, Succeeded: true}
}

// ViewOf is a healthy node's observation with the last of headers as its head. The account is
// rich, the base fee is 10 wei and the tip 2, and no receipt is found.
func ViewOf(w txmanager.SubmitterState, headers ...txmanager.Header) txmanager.ChainObservation {
	v := txmanager.ChainObservation{
		Node: "node-1", Head: headers[len(headers)-1], Headers: headers,
		Account: txmanager.Account{LatestCount: w.LowestOpenNonce(), PendingCount: w.NextNonce, BalanceWei: big.NewInt(1e18),
			BaseFeeWei: big.NewInt(10), TipWei: big.NewInt(2)},
		Receipts: map[txmanager.Hash]txmanager.ReceiptAnswer{},
	}
	for _, t := range w.Open {
		for _, h := range t.Versions {
			v.Receipts[h] = txmanager.ReceiptAnswer{Answer: txmanager.AnswerNotFound}
		}
	}
	return v
}

// Finding is v with receipts.
func Finding(v txmanager.ChainObservation, receipts ...txmanager.Receipt) txmanager.ChainObservation {
	for _, r := range receipts {
		v.Receipts[r.TxHash] = txmanager.ReceiptAnswer{Answer: txmanager.AnswerFound, Receipt: r}
	}
	return v
}

// Asking is a query about every version of every open transaction.
func Asking(w txmanager.SubmitterState) txmanager.ChainQuery {
	q := txmanager.ChainQuery{Submitter: Alice, Account: true}
	for _, t := range w.Open {
		q.Receipts = append(q.Receipts, t.Versions...)
	}
	return q
}

// Payloads parses payloads by name. It stands for the part of a connector that never leaves the
// process; any other call is a nil dereference.
type Payloads struct {
	txmanager.ChainConnector
	calls map[string]txmanager.Call
}

func (p Payloads) ParsePayload(payload []byte) (txmanager.Call, error) {
	if c, ok := p.calls[string(payload)]; ok {
		return c, nil
	}
	return txmanager.Call{}, errors.New("no such payload")
}

// Reader knows "pay" (a plain transfer with gas), "call" (gas to be estimated), and the calls in
// more.
func Reader(more map[string]txmanager.Call) Payloads {
	to := eip155.Address([20]byte{19: 0xb0})
	p := Payloads{calls: map[string]txmanager.Call{
		"pay":  {To: &to, Value: big.NewInt(1), Gas: 21_000},
		"call": {To: &to, Value: big.NewInt(0), Data: []byte{1}},
	}}
	maps.Copy(p.calls, more)
	return p
}

// Diff compares by value, big integers by their amount.
func Diff(want, got any) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), check.BigInts, cmp.AllowUnexported(txmanager.SubmitterState{}), cmpopts.IgnoreUnexported(lease.Lease{}))
}

// Same reports how a value differs from the wanted one, by [Diff].
func Same(t check.TB, what string, got, want any) {
	t.Helper()
	if diff := Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// WithVersions is t with n signed versions.
func WithVersions(t txmanager.Tx, n int) txmanager.Tx {
	t.Versions = nil
	for v := range n {
		t.Versions = append(t.Versions, VersionHash(*t.Nonce, byte(v+1)))
	}
	return t
}

func Estimated(gas uint64) txmanager.Estimate {
	return txmanager.Estimate{Outcome: txmanager.Done, Gas: gas}
}

func Reverts() txmanager.Estimate {
	return txmanager.Estimate{Outcome: txmanager.Refused, Reason: "execution reverted"}
}

func Wei(n int64) *big.Int { return big.NewInt(n) }

// Of is t as an intent of the caller.
func Of(caller string, t txmanager.Tx) txmanager.Tx {
	t.Caller, t.PresentCaller = caller, caller
	return t
}

// OfHandler is alice's transaction with bound nonce n, whose handler is to be called.
func OfHandler(n uint64) txmanager.Tx {
	t := Bare(n)
	t.Handler, t.Payload = "wage", []byte(`{}`)
	return t
}

// Watching is v with the hashes of these blocks at their heights.
func Watching(v txmanager.ChainObservation, blocks ...txmanager.Header) txmanager.ChainObservation {
	v.HashesAt = make(map[uint64]txmanager.Hash)
	for _, b := range blocks {
		v.HashesAt[b.Number] = b.Hash
	}
	return v
}

// Lent is alice's nonce n, reserved for x until then.
func Lent(n uint64, s txmanager.ReservationState, until time.Duration) txmanager.Tx {
	t := Bare(n)
	t.Payload = []byte(`{"reservation": true}`)
	t.Reservation = &txmanager.Reservation{State: s, Owner: "x", Until: Now.Add(until)}
	t.NextCheckAt = &t.Reservation.Until
	return t
}

// UsedBy is a transaction of bytes that x signed.
func UsedBy(t txmanager.Tx) txmanager.Tx {
	t.Payload, t.Reservation = []byte(`{"reservation": true}`), &txmanager.Reservation{State: txmanager.Used, Owner: "x", Until: Now}
	return t
}

// Outline summarises what a plan does with each queued transaction.
func Outline(allocations []txmanager.Allocation, transitions []txmanager.Transition) string {
	var parts []string
	for _, a := range allocations {
		parts = append(parts, fmt.Sprintf("%s=%d", a.Tx.ID, a.Nonce))
	}
	for _, m := range transitions {
		what := "waits"
		switch {
		case m.From != txmanager.Queued:
			what = "moves from " + string(m.From)
		case m.To.State == txmanager.Failed && m.To.Sub == txmanager.Rejected:
			what = "rejected"
		case m.To.DeferredUntilNonce != nil:
			what = fmt.Sprintf("aside until %d", *m.To.DeferredUntilNonce)
		}
		parts = append(parts, m.To.ID+" "+what)
	}
	return strings.Join(parts, ", ")
}
