package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// What consumed a nonce is kept as it was read, under the fence; of one nonce what was
// read last.
func TestForeignTransactionsAreKept(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	run(t, db, openEpisode, alice)
	foreign := func(n uint64, to *nonce.Address, hash byte) nonce.ForeignTransaction {
		f := nonce.ForeignTransaction{Nonce: n, Episode: 1, Succeeded: n == 2, Receipt: []byte(`{"status": "0x1"}`), Taker: nonce.Taker{
			Hash: nonce.Hash{hash}, BlockNumber: 7, BlockHash: nonce.Hash{9}, Node: "node-1", To: to, ValueWei: "1000000000000000000000", Data: []byte{1, 2}}}
		f.CallDigest = f.Taker.CallDigest()
		return f
	}
	first := []nonce.ForeignTransaction{foreign(1, nil, 1), foreign(2, &nonce.Address{5}, 2), foreign(4, nil, 4)}
	first[2].Taker.Data = nil // too long
	w := take(t, db, alice, "a/1")
	if err := db.StoreForeign(t.Context(), w.Lease, first); err != nil {
		t.Fatal(err)
	}
	later := foreign(1, &nonce.Address{6}, 5)
	if err := db.StoreForeign(t.Context(), w.Lease, []nonce.ForeignTransaction{later}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		from, below uint64
		want        []nonce.ForeignTransaction
	}{
		{0, 5, []nonce.ForeignTransaction{later, first[1], first[2]}},
		{2, 4, []nonce.ForeignTransaction{first[1]}},
		{5, 9, nil},
	} {
		got, err := db.ForeignTransactions(t.Context(), alice, r.from, r.below)
		if diff := cmp.Diff(r.want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(nonce.ForeignTransaction{}, "ReadAt")); err != nil || diff != "" {
			t.Errorf("from %d below %d: %v (-want +got)\n%s", r.from, r.below, err, diff)
		}
		for _, f := range got {
			if time.Since(f.ReadAt) > time.Hour {
				t.Errorf("nonce %d: read at %v, want now", f.Nonce, f.ReadAt)
			}
		}
	}
	write(t, db, nonce.Write{Lease: w.Lease, Release: nonce.Abandon})
	if err := db.StoreForeign(t.Context(), w.Lease, first); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("without the lease: got %v, want it fenced", err)
	}
}
