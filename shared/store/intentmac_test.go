package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/intentmac"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// marking is a second store of db, which makes MACs and checks them.
func marking(t *testing.T, db storetest.Bundle, anyCaller bool) (*store.Store, *intentmac.Keys) {
	t.Helper()
	keys := check.Value(intentmac.New([]string{base64.StdEncoding.EncodeToString(make([]byte, 32))}, nil))(t)
	marks := func(o *store.Options) { o.MACs, o.MACKeys, o.AnyCaller = keys, keys.IDs(), anyCaller }
	return reopened(t, db, marks).Store, keys
}

// queueOf is what an advance loads of alice's queue.
func queueOf(t *testing.T, s *store.Store) []txmanager.Tx {
	t.Helper()
	taken, err := s.Acquire(t.Context(), alice, "node/1", true)
	if err != nil || !taken.Held {
		t.Fatalf("take: got %+v, %v", taken, err)
	}
	check.OK(t)(s.Commit(t.Context(), txmanager.Commit{Lease: taken.State.Lease, LeaseEnd: txmanager.ReleaseAnyway}))
	return taken.State.Queue
}

// verified checks the MAC of a row as it was loaded.
func verified(keys *intentmac.Keys, x txmanager.Tx) error {
	return keys.Verify(context.Background(), txmanager.IntentTerms{TxID: x.ID, Submitter: x.Submitter, RequestID: x.RequestID,
		Caller: x.Caller, Handler: x.Handler, Fingerprint: x.Fingerprint}, x.MAC)
}

// An intent has the MAC of the name that is stored, whichever of its names the submitter's
// callers list, with a policy and without, alone and with others.
func TestMACIsOfTheCallerThatIsStored(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]bool{"without a policy": false, "with one": true} {
		db := registered(t, 9, alice)
		db.Run(t, `update submitter set callers = array['*', 'sub:2', 'handler:wage', 'email:one@x'] where submitter = $1`, alice)
		if policy {
			db.Run(t, `insert into submitter_policy (submitter, max_per_minute) values ($1, 100)`, alice)
		}
		s, keys := marking(t, db, true)
		payload := []byte(`{"to":"0x00000000000000000000000000000000000000ff","value":"1"}`)
		var all []store.Intent
		for request, names := range map[string][]string{
			"one": {"email:one@x", "sub:1", "*"}, "two": {"email:two@x", "sub:2", "*"}, "three": {"email:three@x", "sub:3", "*"},
		} {
			all = append(all, store.Intent{TxID: uuid.NewString(), Submitter: alice, RequestID: request, Caller: names[0], Names: names,
				Payload: payload, Fingerprint: sha256.Sum256(payload)})
		}
		all = append(all, store.Intent{TxID: uuid.NewString(), Submitter: alice, RequestID: "wage", Caller: "handler:wage", Handler: "wage",
			Payload: payload, Fingerprint: txmanager.Fingerprint("wage", payload)})
		check.OK(t)(s.Create(t.Context(), all[0], 100))
		created, err := s.CreateAll(t.Context(), all, 100)
		for _, c := range created {
			err = errors.Join(err, c.Err)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		stored := map[string]string{}
		for _, x := range queueOf(t, s) {
			stored[x.RequestID] = x.Caller
			check.Err(t, fmt.Sprintf("%s: the MAC of %s, stored for %s", name, x.RequestID, x.Caller), nil)(verified(keys, x))
		}
		for request, caller := range map[string]string{"one": "email:one@x", "two": "sub:2", "three": "email:three@x", "wage": "handler:wage"} {
			if stored[request] != caller {
				t.Errorf("%s: %s is stored for %q, want %s", name, request, stored[request], caller)
			}
		}
	}
}

// Where MACs are required, the database takes no intent without one, and binds none that it
// has. Those that an older release stored before get their nonces.
func TestIntentsWithoutAMAC(t *testing.T) {
	t.Parallel()
	db := registered(t, 9, alice)
	unmarked := func() (store.StoredIntent, error) {
		return db.Create(t.Context(), intent(alice, uuid.NewString()), 100)
	}
	old := check.Value(unmarked())(t).TxID
	first, err := migrations.RequireMACs(t.Context(), db.URL, true, "ann", "the last old function has ended")
	if err != nil || !first.Changed || first.Unmarked != 1 {
		t.Fatalf("require MACs: got %+v, %v; want it changed, with one intent that has none", first, err)
	}
	check.Equal(t, "an intent without a MAC", storetest.Violated(unmarked()), "intents_have_a_mac")
	s, _ := marking(t, db, false)
	created := check.Value(s.Create(t.Context(), store.Intent{TxID: uuid.NewString(), Submitter: alice, RequestID: "new", Caller: "shop", Payload: []byte(`{}`), Fingerprint: sha256.Sum256([]byte(`{}`))}, 100))(t)
	again, err := migrations.RequireMACs(t.Context(), db.URL, true, "ann", "to be sure")
	if err != nil || again.Changed || again.Upto != first.Upto {
		t.Errorf("again: got %+v, %v; want nothing changed, and the same last intent as %+v", again, err, first)
	}
	needsNone := map[string]bool{}
	for _, x := range queueOf(t, s) {
		needsNone[x.ID] = x.NeedsNoMAC
	}
	check.Same(t, "may be without a MAC", needsNone, map[string]bool{old: true, created.TxID: false})
	taken := check.Value(s.Acquire(t.Context(), alice, "node/1", true))(t)
	if done := write(t, db, txmanager.Commit{Lease: taken.State.Lease, Allocations: allocations(taken.State, true), LeaseEnd: txmanager.ReleaseAnyway}); done.Allocated != 2 {
		t.Errorf("bound: got %d, want both", done.Allocated)
	}
	check.Equal(t, "the rule is changed back", check.Value(migrations.RequireMACs(t.Context(), db.URL, false, "ann", "back to the old release"))(t).Changed, true)
	check.Err(t, "an intent without a MAC, allowed again", nil)(unmarked())
}

// A queued intent whose key is not here is loaded once, and then passed over until its key
// is. A process that signs nothing loads all.
func TestWhatWaitsForAKeyIsPassedOver(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	s, keys := marking(t, db, false)
	for range 3 {
		db.Run(t, withPayload(`insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, mac, mac_key)
			values (gen_random_uuid(), $1, gen_random_uuid()::text, 'shop', sha256('{}'), sha256('x'), 'key-that-never-was')`), alice)
	}
	good := check.Value(s.Create(t.Context(), store.Intent{TxID: uuid.NewString(), Submitter: alice, RequestID: "good", Caller: "shop", Payload: []byte(`{}`), Fingerprint: sha256.Sum256([]byte(`{}`))}, 100))(t)
	if got := queueOf(t, s); len(got) != 1 || got[0].MAC.Key != "key-that-never-was" {
		t.Fatalf("before a look: got %+v, want one of those without a key", got)
	}
	db.Run(t, `update managed_tx set next_check_at = clock_timestamp() where mac_key = 'key-that-never-was'`)
	got := queueOf(t, s)
	if len(got) != 1 || got[0].ID != good.TxID || verified(keys, got[0]) != nil {
		t.Errorf("after it: got %+v, want the one whose key is here", got)
	}
	if got := queueOf(t, db.Store); len(got) != 1 || got[0].ID == good.TxID {
		t.Errorf("without keys: got %+v, want the head of the queue", got)
	}
}

// Tombstones and a release's rows have no MAC, are final, and are never bound, whichever role
// writes.
func TestWhatHasNoMACIsNeverBound(t *testing.T) {
	t.Parallel()
	db := registered(t, 9, alice)
	check.OK(t)(migrations.RequireMACs(t.Context(), db.URL, true, "ann", "a test"))
	for what, row := range map[string]string{
		"a tombstone":         `values (gen_random_uuid(), $1, 'stone', 'transfer', sha256('{}'), 'FAILED', 'CANCELLED')`,
		"a request of a loss": `values (gen_random_uuid(), $1, 'named', '', sha256('recorded'), 'QUEUED', null)`,
	} {
		var id string
		if err := db.DB.QueryRow(t.Context(), `with inserted as (insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, state, sub_state) `+row+` returning tx_id),
			document as (insert into tx_document (tx_id, name, body) select tx_id, 'payload', '{}' from inserted) select tx_id from inserted`, alice).Scan(&id); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for _, state := range []string{"IN_FLIGHT", "SUBMITTED"} {
			_, err := db.DB.Exec(t.Context(), `update managed_tx set state = $2, sub_state = null, nonce = 0, first_submit_at = now(), last_submit_at = now(),
				tx_hash = case $2 when 'SUBMITTED' then '0x' || repeat('a', 64) end where tx_id = $1`, id, state)
			if got := storetest.Violated(err); got != "intents_have_a_mac" && got != "final_never_changes" {
				t.Errorf("%s bound as %s: got %v, want it refused", what, state, err)
			}
		}
	}
	s, _ := marking(t, db, false)
	for _, x := range queueOf(t, s) {
		if x.NeedsNoMAC || x.MAC.Key != "" {
			t.Errorf("%s: may be without a MAC, or has one; want neither", x.RequestID)
		}
	}
}
