package functions_test

import (
	"crypto/ecdsa"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/google/go-cmp/cmp"

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
	db := storetest.NewWith(t, lease.Rules{Duration: 500 * time.Millisecond, ClockSkewAllowance: time.Millisecond})
	s := txmanager.Submitter("eip155:1337:0x00000000000000000000000000000000000a11ce")
	db.Register(t, s, 1)
	book := counted.Store{Store: db.Store}
	take := func(owner string) txmanager.AcquireResult {
		t.Helper()
		taken, err := book.Acquire(t.Context(), s, owner, true)
		check.OK(t)(err)
		return taken
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
	if diff := cmp.Diff(map[string]int64{"fencepost_lease_acquire_total{result=inserted}": 1, "fencepost_lease_acquire_total{result=taken_over}": 1}, tried); diff != "" {
		t.Errorf("two tenures (-want +got):\n%s", diff)
	}
	b := take("b/1").State.Lease // its own lease, acquired again
	if _, err := book.Commit(t.Context(), txmanager.Commit{Lease: b, LeaseEnd: txmanager.ReleaseUnlessRerun}); err != nil {
		t.Fatal(err)
	}
	if !take("c/1").Held {
		t.Fatal("a lease that was given back: got it refused")
	}
	if diff := cmp.Diff(map[string]int64{"fencepost_lease_acquire_total{result=reacquired}": 2}, recorded.take()); diff != "" {
		t.Errorf("its own, and one that was given back (-want +got):\n%s", diff)
	}
	_, again := book.BeginIteration(t.Context(), held.State.Lease, true)
	_, renew := book.Renew(t.Context(), held.State.Lease)
	_, release := book.Commit(t.Context(), txmanager.Commit{Lease: held.State.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})
	_, cursor := book.Commit(t.Context(), txmanager.Commit{Lease: held.State.Lease, Cursor: txmanager.CursorChange{ClearSuspected: true}})
	for _, err := range []error{again, renew, release, cursor} {
		if !errors.Is(err, lease.ErrFenced) {
			t.Errorf("by the former holder: got %v, want ErrFenced", err)
		}
	}
	want := map[string]int64{"fencepost_lease_fenced_total{op=again}": 1, "fencepost_lease_fenced_total{op=renew}": 1, "fencepost_lease_fenced_total{op=release}": 1, "fencepost_lease_fenced_total{op=cursor}": 1}
	if diff := cmp.Diff(want, recorded.take()); diff != "" {
		t.Errorf("the former holder (-want +got):\n%s", diff)
	}
}

// Each signature is counted by its signer and its result. The test runs alone, since the metrics
// belong to the process.
func TestSignaturesAreCounted(t *testing.T) {
	recorded := metricSeries()
	key, err := crypto.GenerateKey()
	check.OK(t)(err)
	s := eip155.NewSubmitter(1337, eip155.Address(crypto.PubkeyToAddress(key.PublicKey)))
	local, err := signer.NewLocal(map[txmanager.Submitter]*ecdsa.PrivateKey{s: key})
	check.OK(t)(err)
	d, err := signer.NewDirectory(signer.LocalKind(local))
	check.OK(t)(err)
	recorded.take()
	one := big.NewInt(1)
	for _, name := range []string{"local", "local", "remote:treasury"} {
		_, _ = counted.NewSigner(d, name).Sign(t.Context(), s,
			txmanager.Unsigned{ChainID: 1337, To: new(eip155.Address([20]byte{9})), Value: one, Gas: 21_000, FeeCapWei: one, TipCapWei: one})
	}
	signed := recorded.take()
	check.Equal(t, "signed", signed["fencepost_tx_sign_total{result=signed,signer=local}"], int64(2))
	if got, want := signed["fencepost_tx_sign_total{result=unknown,signer=remote}"], int64(1); got != want {
		t.Errorf("by a signer that is not there: got %d unknown, want %d", got, want)
	}
	if _, told := signed["fencepost_tx_sign_seconds_total{result=signed,signer=local}"]; !told {
		t.Errorf("time: got none told, want some: %v", signed)
	}
}
