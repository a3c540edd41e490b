package functions_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// Each try to take or extend a lease is counted by what came of it, and each write
// that the fence refuses by what it was. It runs alone: the metrics are the process'.
func TestLeasesAreCounted(t *testing.T) {
	told := told()
	told.take()
	db := storetest.NewWith(t, lease.Rules{Duration: 100 * time.Millisecond, ClockSkewAllowance: time.Millisecond})
	s := nonce.Submitter("eip155:1337:0x00000000000000000000000000000000000a11ce")
	db.Register(t, s, 1)
	book := functions.Watched(db.Store)
	take := func(owner string) nonce.Taken {
		t.Helper()
		taken, err := book.Take(t.Context(), s, owner, true)
		if err != nil {
			t.Fatal(err)
		}
		return taken
	}
	held := take("a/1")
	if take("b/1").Held {
		t.Fatal("a lease that is held: got taken by another")
	}
	await(t, "the lease ran out", func() bool { return take("b/1").Held })
	tried := told.take()
	if tried["lease_acquire_total{result=not_owner}"] < 1 {
		t.Errorf("tries while another held it: got %v, want some", tried)
	}
	delete(tried, "lease_acquire_total{result=not_owner}")
	if diff := cmp.Diff(map[string]int64{"lease_acquire_total{result=inserted}": 1, "lease_acquire_total{result=taken_over}": 1}, tried); diff != "" {
		t.Errorf("two tenures (-want +got):\n%s", diff)
	}
	_, again := book.Again(t.Context(), held.Work.Lease, true)
	_, renew := book.Renew(t.Context(), held.Work.Lease)
	_, release := book.Write(t.Context(), nonce.Write{Lease: held.Work.Lease, Release: nonce.GiveBack})
	_, cursor := book.Write(t.Context(), nonce.Write{Lease: held.Work.Lease, Cursor: nonce.CursorChange{Trust: true}})
	for _, err := range []error{again, renew, release, cursor} {
		if !errors.Is(err, lease.ErrFenced) {
			t.Errorf("by the former holder: got %v, want ErrFenced", err)
		}
	}
	want := map[string]int64{"lease_fenced_total{op=again}": 1, "lease_fenced_total{op=renew}": 1, "lease_fenced_total{op=release}": 1, "lease_fenced_total{op=cursor}": 1}
	if diff := cmp.Diff(want, told.take()); diff != "" {
		t.Errorf("the former holder (-want +got):\n%s", diff)
	}
}
