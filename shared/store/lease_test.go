package store_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

const alice = nonce.Submitter("eip155:1337:0x00000000000000000000000000000000000a11ce")

// take takes the lease of sub for owner, or fails the test.
func take(t *testing.T, db storetest.Bundle, sub nonce.Submitter, owner string) nonce.Work {
	t.Helper()
	taken, err := db.Take(t.Context(), sub, owner, true)
	if err != nil || !taken.Held {
		t.Fatalf("take lease for %s: got held %v, error %v; want it held", owner, taken.Held, err)
	}
	return taken.Work
}

// post stores one intent.
func post(t *testing.T, db storetest.Bundle, sub nonce.Submitter, requestID string) store.Accepted {
	t.Helper()
	a, err := db.Create(t.Context(), intent(sub, requestID), 100)
	if err != nil {
		t.Fatalf("create %s: %v", requestID, err)
	}
	return a
}

func intent(sub nonce.Submitter, requestID string) store.Intent {
	return store.Intent{
		TxID: uuid.NewString(), Submitter: sub, RequestID: requestID, Caller: "shop",
		Payload: []byte(`{"to":"0x00000000000000000000000000000000000000b0","value":"1"}`), Fingerprint: [32]byte{1},
	}
}

// Whoever finds the lease held leaves a mark; the holder then goes round again
// under the next token instead of letting go.
func TestAcquireOrMark(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	first := take(t, db, alice, "a/1")
	if first.Lease.Token != 1 {
		t.Errorf("first token: got %d, want 1", first.Lease.Token)
	}
	met, err := db.Take(t.Context(), alice, "b/1", true)
	if err != nil || met.Held || met.Token != 1 || !met.FreeAt.After(met.ExpiresAt) {
		t.Fatalf("second taker: got %+v, %v; want not held, token 1, free after its expiry", met, err)
	}
	done, err := db.Write(t.Context(), nonce.Write{Lease: first.Lease, Release: nonce.GiveBack})
	if err != nil || done.Released {
		t.Fatalf("release with the mark set: got %+v, %v; want not released", done, err)
	}
	again, err := db.Again(t.Context(), first.Lease, true)
	if err != nil || again.Lease.Token != 2 {
		t.Fatalf("next round: got token %d, %v; want 2", again.Lease.Token, err)
	}
	if _, err := db.Write(t.Context(), nonce.Write{Lease: first.Lease, Release: nonce.GiveBack}); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("write under the round before: got %v, want fenced", err)
	}
	done, err = db.Write(t.Context(), nonce.Write{Lease: again.Lease, Release: nonce.GiveBack})
	if err != nil || !done.Released || done.Token != 2 {
		t.Errorf("release: got %+v, %v; want released under 2", done, err)
	}
	if third := take(t, db, alice, "b/1"); third.Lease.Token != 3 {
		t.Errorf("after the release: got token %d, want 3", third.Lease.Token)
	}
}

// A submitter that nobody registered has no lease.
func TestTakeUnknownSubmitter(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	if _, err := db.Take(t.Context(), alice, "a/1", true); !errors.Is(err, store.ErrUnknownSubmitter) {
		t.Errorf("take: got %v, want unknown submitter", err)
	}
}

// The load sees what was posted before it, in the order of the queue.
func TestTakeLoadsTheQueue(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 2)
	one := post(t, db, alice, "one")
	post(t, db, alice, "two")
	post(t, db, alice, "three")
	w := take(t, db, alice, "a/1")
	if len(w.Queue) != 2 || !w.QueueMore || w.Queue[0].ID != one.TxID || w.NextNonce != 0 || w.Window != 2 {
		t.Errorf("work: got %d queued, more %v, head %s, next %d, window %d; want 2, true, %s, 0, 2",
			len(w.Queue), w.QueueMore, w.Queue[0].ID, w.NextNonce, w.Window, one.TxID)
	}
}
