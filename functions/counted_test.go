package functions_test

import (
	"crypto/ecdsa"
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/functions/counted"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Each attempt to acquire or renew a lease is counted by its result, and each write that the fence
// refuses by its operation. The test runs alone, since the metrics belong to the process.
func TestLeasesAreCounted(t *testing.T) {
	recorded := metricSeries()
	recorded.take()
	db := storetest.At(t, storetest.URL(t), lease.Rules{Duration: 500 * time.Millisecond, ClockSkewAllowance: time.Millisecond})
	s := txmanager.Submitter("eip155:1337:0x00000000000000000000000000000000000a11ce")
	db.Register(t, s, 1)
	book := counted.Store{Store: db.Store}
	take := func(owner string) txmanager.AcquireResult {
		t.Helper()
		return check.Value(book.Acquire(t.Context(), s, owner, true))(t)
	}
	held := take("a/1")
	if take("b/1").Held {
		t.Fatal("a lease that is held: got taken by another")
	}
	await(t, "the lease ran out", func() bool { return take("b/1").Held })
	tried := recorded.take()
	if tried["fencepost_lease_acquire_total{result=not_owner}"] < 1 {
		t.Errorf("tries while another held it: got %v, want some", tried)
	}
	delete(tried, "fencepost_lease_acquire_total{result=not_owner}")
	check.Same(t, "two lease sessions", tried, map[string]int64{"fencepost_lease_acquire_total{result=inserted}": 1, "fencepost_lease_acquire_total{result=taken_over}": 1})
	b := take("b/1").State.Lease // its own lease, acquired again
	check.OK(t)(book.Commit(t.Context(), txmanager.Commit{Lease: b, LeaseEnd: txmanager.ReleaseUnlessRerun}))
	if !take("c/1").Held {
		t.Fatal("a lease that was given back: got it refused")
	}
	check.Same(t, "its own, and one that was released", recorded.take(), map[string]int64{"fencepost_lease_acquire_total{result=reacquired}": 2})
	check.Err(t, "again by the former holder", lease.ErrFenced)(book.BeginIteration(t.Context(), held.State.Lease, true))
	check.Err(t, "renew by the former holder", lease.ErrFenced)(book.Renew(t.Context(), held.State.Lease))
	former := txmanager.Commit{Lease: held.State.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun}
	check.Err(t, "release by the former holder", lease.ErrFenced)(book.Commit(t.Context(), former))
	former = txmanager.Commit{Lease: held.State.Lease, Cursor: txmanager.CursorChange{ClearSuspected: true}}
	check.Err(t, "cursor by the former holder", lease.ErrFenced)(book.Commit(t.Context(), former))
	check.Same(t, "the former holder", recorded.take(), map[string]int64{"fencepost_lease_fenced_total{op=again}": 1, "fencepost_lease_fenced_total{op=renew}": 1,
		"fencepost_lease_fenced_total{op=release}": 1, "fencepost_lease_fenced_total{op=cursor}": 1})
}

// Each signature is counted by its signer and its result. The test runs alone, since the metrics
// belong to the process.
func TestSignaturesAreCounted(t *testing.T) {
	recorded := metricSeries()
	key := check.Value(crypto.GenerateKey())(t)
	s := eip155.NewSubmitter(1337, eip155.Address(crypto.PubkeyToAddress(key.PublicKey)))
	local := check.Value(signer.NewLocal(map[txmanager.Submitter]*ecdsa.PrivateKey{s: key}))(t)
	d := check.Value(signer.NewDirectory(signer.LocalKind(local)))(t)
	recorded.take()
	one := big.NewInt(1)
	for _, name := range []string{"local", "local", "remote:treasury"} {
		_, _ = counted.NewSigner(d, name).Sign(t.Context(), s,
			txmanager.Unsigned{ChainID: 1337, To: new(eip155.Address([20]byte{9})), Value: one, Gas: 21_000, FeeCapWei: one, TipCapWei: one})
	}
	signed := recorded.take()
	check.Equal(t, "signed", signed["fencepost_tx_sign_total{result=signed,signer=local}"], 2)
	check.Equal(t, "unknown, by a signer that is not there", signed["fencepost_tx_sign_total{result=unknown,signer=remote}"], 1)
	if _, told := signed["fencepost_tx_sign_seconds_total{result=signed,signer=local}"]; !told {
		t.Errorf("time: got none told, want some: %v", signed)
	}
}
