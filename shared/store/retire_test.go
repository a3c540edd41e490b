package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func retirement(sub txmanager.Submitter) store.Retirement {
	return store.Retirement{Submitter: sub, By: "ann", Reason: "moved away"}
}

// A submitter without open work is retired for ever: it takes no intent, no holder of its lease writes, and it is
// not registered, resumed or changed again. It can be shown, and its callers can lose their rights.
func TestRetire(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	before := take(t, db, alice, "a/1")
	check.OK(t)(db.Store.Retire(t.Context(), retirement(alice)))
	check.Err(t, "create", store.ErrRetired)(db.Store.Create(t.Context(), intent(alice, "r"), 10))
	check.Err(t, "the holder of the lease writes", lease.ErrFenced)(db.Store.Commit(t.Context(), txmanager.Commit{Lease: before.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun}))
	if after := take(t, db, alice, "b/1"); !after.Suspended || len(after.Queue)+len(after.Open) != 0 {
		t.Errorf("the next session: got suspended %t, %d intents; want nothing to sign", after.Suspended, len(after.Queue)+len(after.Open))
	}
	same := store.Registration{Submitter: alice, Signer: "local", MaxInFlight: 10, Callers: storetest.Callers, CreatedBy: "test"}
	check.Err(t, "register again", store.ErrRetired)(db.Store.Register(t.Context(), same))
	for _, suspend := range []bool{true, false} {
		check.Err(t, fmt.Sprint("suspend ", suspend), store.ErrRetired)(db.Store.SetStatus(t.Context(), store.Suspension{Submitter: alice, Suspend: suspend, By: "ann", Reason: "r"}))
	}
	check.Err(t, "update", store.ErrRetired)(db.Store.UpdateSubmitter(t.Context(), window(1)))
	db.Run(t, openIncident, alice)
	lost := &txmanager.ReleaseRequest{Incident: 1, Mode: txmanager.Resync, By: "op", Reason: "restored", Count: 1,
		Requests: map[uint64]string{0: "lost"}, EndedRequests: []txmanager.Naming{{Nonce: 0, RequestID: "lost"}}}
	check.Err(t, "release, naming a lost request", store.ErrRetired)(db.Store.Commit(t.Context(), txmanager.Commit{
		Lease: take(t, db, alice, "b/1").Lease, LeaseEnd: txmanager.ReleaseUnlessRerun, Cursor: txmanager.CursorChange{CloseIncident: lost}}))
	check.Err(t, "again", store.ErrStatusUnchanged)(db.Store.Retire(t.Context(), retirement(alice)))
	check.Err(t, "no such submitter", store.ErrUnknownSubmitter)(db.Store.Retire(t.Context(), retirement(bob)))
	check.Equal(t, "status", check.Value(db.Store.Submitter(t.Context(), alice))(t).Status, "RETIRED")
	check.Equal(t, "changes", check.Value(db.Store.Changes(t.Context(), alice, 1<<62, 10))(t)[0].Action, "RETIRE")
}

// Open work keeps a submitter from being retired, and stays.
func TestRetireRefusesOpenWork(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	refused := func(want string) {
		t.Helper()
		check.Err(t, "retire", store.OpenWorkError{Work: want})(db.Store.Retire(t.Context(), retirement(alice)))
	}
	post(t, db, alice, "r")
	refused("queued intents")
	sendAll(t, db, alice)
	refused("open transactions")
	moveAll(t, db, alice, func(x *txmanager.Tx) { x.State, x.Sub = txmanager.Tracking, txmanager.Pending })
	moveAll(t, db, alice, func(x *txmanager.Tx) {
		x.State, x.Sub, x.Confirmations = txmanager.Confirmed, "", []txmanager.Header{{Number: 7}}
		x.Receipt = &txmanager.Receipt{TxHash: x.Hash(), BlockNumber: 7, Succeeded: true}
	})
	db.Run(t, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`, alice)
	refused("an open PROTECT incident")
	db.Run(t, `update protect_incident set closed_at = now(), closed_by = 'ann', mode = 'resume', reason = 'r'`)
	db.Run(t, `update submitter_nonce_cursor set suspected_violation = '{}' where submitter = $1`, alice)
	refused("a suspected violation")
	db.Run(t, `update submitter_nonce_cursor set suspected_violation = null where submitter = $1`, alice)
	check.OK(t)(db.Store.Retire(t.Context(), retirement(alice)))
}

// A create that began before a retirement is seen by it. A create that it does not see is refused.
func TestRetirementsAndCreatesAtOnce(t *testing.T) {
	t.Parallel()
	const rounds, creators = 40, 4
	all := numbers(rounds)
	db := registered(t, 10, all...)
	other := storetest.Open(t, storetest.Options(db.URL, storetest.Rules))
	retired, accepted := 0, 0
	for i, sub := range all {
		first := i % (creators + 1) // so many creators begin before the retirement, the others with it
		begun, retiring := make(chan struct{}, creators), make(chan struct{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		for c := range creators {
			wg.Go(func() {
				if c >= first {
					<-retiring
				}
				begun <- struct{}{}
				_, err := other.Create(t.Context(), intent(sub, fmt.Sprint(c)), 100)
				if err != nil && !errors.Is(err, store.ErrRetired) && !errors.Is(err, store.ErrMoved) {
					t.Errorf("create: got %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					accepted++
				}
			})
		}
		wg.Go(func() {
			for range first {
				<-begun
			}
			close(retiring)
			err := db.Store.Retire(t.Context(), retirement(sub))
			if _, ok := errors.AsType[store.OpenWorkError](err); err != nil && !ok {
				t.Errorf("retire: got %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				retired++
			}
		})
		wg.Wait()
	}
	t.Logf("%d of %d retired, %d creates accepted", retired, rounds, accepted)
	check.Equal(t, "intents of retired submitters", value[int](t, db, `select count(*)::int from managed_tx join submitter using (submitter) where status = 'RETIRED'`), 0)
}

// A retirement that is refused for open work waits for no create. Without open work it waits for a
// create that is under way, and then sees its intent.
func TestRetirementWaitsForACreate(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice, bob)
	post(t, db, alice, "r")
	tx := check.Value(db.DB.Begin(t.Context()))(t)
	for _, sub := range []txmanager.Submitter{alice, bob} {
		check.OK(t)(tx.Exec(t.Context(), `with m as (insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint) values (gen_random_uuid(), $1, 'under way', 'shop', sha256('r')) returning tx_id)
			insert into tx_document (tx_id, name, body) select tx_id, 'payload', '{}' from m`, sub))
	}
	done := make(chan error, 1)
	go func() { done <- db.Store.Retire(t.Context(), retirement(alice)) }()
	waits := func() bool {
		return value[bool](t, db, `select exists (select from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database()))`)
	}
	storetest.Await(t, "the retirement is refused", func() bool {
		if waits() {
			t.Fatal("the retirement with open work waits for the create")
		}
		return len(done) == 1
	})
	refused := store.OpenWorkError{Work: "queued intents"}
	check.Err(t, "with open work", refused)(<-done)
	go func() { done <- db.Store.Retire(t.Context(), retirement(bob)) }()
	storetest.Await(t, "the retirement without open work waits", waits)
	check.OK(t)(tx.Commit(t.Context()))
	check.Err(t, "once the create has ended", refused)(<-done)
}
