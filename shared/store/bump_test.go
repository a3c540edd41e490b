package store_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// replacement is a further version of x, which costs so much more at worst.
func replacement(x txmanager.Tx, version string, extra *big.Int, at time.Time) txmanager.Version {
	x.State, x.Sub, x.NextBumpAt = txmanager.Submitted, "", &at
	gas := *x.Gas
	x.Gas = &gas
	signed := storetest.Signed(x.Submitter, *x.Nonce, x.ID)
	signed.Hash = sha256.Sum256([]byte(x.ID + version))
	return txmanager.Version{Tx: x, From: txmanager.Submitted, Kind: txmanager.VersionBump, ExtraWei: extra, Signed: signed}
}

// A gas bump keeps the transaction's first broadcast time and counts against the submitter's
// budget for 24 hours. A replacement by a decision resets that time and costs no budget. With
// gas bumps off, nothing is read for them.
func TestReplacementsAreCharged(t *testing.T) {
	t.Parallel()
	off := registered(t, 2, alice, bob)
	db := reopened(t, off, func(o *store.Options) { o.GasBumpAfter = time.Minute })
	for _, s := range []txmanager.Submitter{alice, bob} {
		post(t, db, s, "1")
		w := take(t, db, s, "a/1")
		if w.BumpBudgetUsedWei == nil || w.BumpBudgetUsedWei.Sign() != 0 {
			t.Errorf("before any: got %v spent, want 0", w.BumpBudgetUsedWei)
		}
		write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
	}
	db.Run(t, `update managed_tx set first_submit_at = first_submit_at - interval '1 h'`)
	huge, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	for i, extra := range []*big.Int{huge, big.NewInt(5), nil} {
		w := take(t, db, alice, "a/2")
		x, bumpAt := w.Open[0], time.Now().Add(time.Hour).Truncate(time.Second)
		write(t, db, txmanager.Commit{Lease: w.Lease, Versions: []txmanager.Version{replacement(x, string(rune('2'+i)), extra, bumpAt)}, LeaseEnd: txmanager.ReleaseUnlessRerun})
		w = take(t, db, alice, "a/3")
		got := w.Open[0]
		if got.NextBumpAt == nil || !got.NextBumpAt.Equal(bumpAt) || len(got.Versions) != i+2 {
			t.Errorf("version %d: got next bump %v, %d versions; want %v, %d", i+2, got.NextBumpAt, len(got.Versions), bumpAt, i+2)
		}
		if anew := !got.FirstSubmitAt.Equal(*x.FirstSubmitAt); anew != (extra == nil) {
			t.Errorf("version %d: its life began anew: %v, want %v", i+2, anew, extra == nil)
		}
		write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})
	}
	want := new(big.Int).Add(huge, big.NewInt(5))
	check.Equal(t, "spent", take(t, db, alice, "a/4").BumpBudgetUsedWei.String(), want.String())
	check.Equal(t, "spent of another submitter", take(t, db, bob, "a/4").BumpBudgetUsedWei.String(), "0")
	db.Run(t, `alter table tx_version disable trigger user`)
	db.Run(t, `update tx_version set created_at = created_at - interval '24 h' where extra_wei > 5`)
	db.Run(t, `update submitter_lease set owner_node = ''`)
	check.Equal(t, "spent, a day later", take(t, db, alice, "a/5").BumpBudgetUsedWei.String(), "5")
	db.Run(t, `update submitter_lease set owner_node = ''`)
	if w := take(t, off, alice, "a/6"); w.BumpBudgetUsedWei != nil {
		t.Errorf("off: got %s spent, want nothing read", w.BumpBudgetUsedWei)
	}
}

// With gas bumps on, a transaction that may be replaced in this iteration is loaded with its
// payload. Every other one, and all with gas bumps off, are loaded without.
func TestWhatMayBeReplacedIsLoadedWhole(t *testing.T) {
	t.Parallel()
	off := registered(t, 3, alice)
	postAll(t, off, alice, "1", "2", "3")
	sendAll(t, off, alice)
	off.Run(t, `update managed_tx set state = 'TRACKING', sub_state = 'PENDING', next_resubmit_at = clock_timestamp() + interval '1 h',
		first_submit_at = clock_timestamp() - interval '2 min', next_bump_at = case nonce when 2 then clock_timestamp() + interval '1 h' end`)
	whole := func(bumpAfter time.Duration) (nonces []uint64) {
		db := reopened(t, off, func(o *store.Options) { o.GasBumpAfter, o.StuckAfter = bumpAfter, time.Hour })
		w := take(t, db, alice, "a/2")
		for _, x := range w.Open {
			if x.Payload != nil {
				nonces = append(nonces, *x.Nonce)
			}
		}
		write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})
		return nonces
	}
	for after, want := range map[time.Duration][]uint64{0: {0}, time.Minute: {0, 1}, time.Hour: {0}} { // the lowest always
		check.Same(t, fmt.Sprintf("bump after %s", after), whole(after), want)
	}
}

// A diagnosis is kept with the transaction and comes with it, to operators too; a move
// without one takes none away.
func TestDiagnosisIsKept(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	post(t, db, alice, "1")
	sendAll(t, db, alice)
	want := txmanager.Diagnosis{Signal: txmanager.PerhapsLost, Advice: txmanager.AdviseResubmit, Since: time.Now().UTC().Truncate(time.Second), Node: "node-1", Block: 7, LatestCount: 1, PendingCount: 2}
	for i, d := range []*txmanager.Diagnosis{&want, nil} {
		moveAll(t, db, alice, func(x *txmanager.Tx) { x.Diagnosis = d })
		w := take(t, db, alice, "a/1")
		check.Same(t, fmt.Sprint("move ", i), w.Open[0].Diagnosis, &want)
		write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})
	}
	var shown txmanager.Diagnosis
	check.OK(t)(json.Unmarshal(check.Value(store.RecordOf(db.TxWaitingByRequest(t.Context(), alice, "1", operator)))(t).Mempool, &shown))
	check.Same(t, "as an operator sees it", shown, want)
}

// Submitters are counted by what their queues wait for, and transactions whose
// replacement a bound forbids.
func TestBacklogOfWhatWaits(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	for _, s := range []txmanager.Submitter{alice, bob} {
		postAll(t, db, s, "1", "2", "3")
	}
	sendAll(t, db, bob)
	db.Run(t, `update managed_tx set wait_cause = 'BALANCE', waiting_since = now() where submitter = $1`, alice)
	db.Run(t, `update managed_tx set wait_cause = case when queued then 'FEE_CEILING' else 'GAS_BUMP' end, waiting_since = now() where submitter = $1`, bob)
	got, err := db.Backlog(t.Context())
	if err != nil || got.WaitBalance != 1 || got.WaitFee != 1 || got.BumpHeld != 1 {
		t.Errorf("got %+v, %v; want one of each", got, err)
	}
}

// The first active submitters of a chain are listed, and none of a chain whose id has the same
// prefix, or of another namespace.
func TestActiveOnAChain(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	var want []txmanager.Submitter
	for i, chain := range []uint64{1, 1, 1, 10, 2} {
		s := eip155.NewSubmitter(chain, eip155.Address([20]byte{19: byte(i + 1)}))
		db.Register(t, s, 1)
		if i == 0 || i == 2 {
			want = append(want, s)
		} else if i == 1 {
			db.Run(t, `update submitter set status = 'SUSPENDED' where submitter = $1`, s)
		}
	}
	for limit, want := range map[int][]txmanager.Submitter{1: want[:1], 2: want, 9: want} {
		check.Same(t, fmt.Sprint("at most ", limit), check.Value(db.ActiveOn(t.Context(), eip155.Namespace, 1, limit))(t), want)
	}
	check.Equal(t, "of another namespace", len(check.Value(db.ActiveOn(t.Context(), "mem", 1, 9))(t)), 0)
}
