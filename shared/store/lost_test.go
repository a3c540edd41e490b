package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// H8: a request that an operator names as what a lost nonce carried must not run a
// second time: not when it is posted again, nor out of the queue. Its caller never
// hears "there is no such request".
func TestH08ANamedLostRequestNeverRunsAgain(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	db.Register(t, bob, 1)
	waiting, later := post(t, db, alice, "waiting"), post(t, db, alice, "later")
	elsewhere := post(t, db, bob, "lost")
	run(t, db, openIncident, alice)
	w := take(t, db, alice, "a/1")
	foreign := txmanager.ForeignTransaction{Nonce: 0, Incident: 1, Succeeded: true, Receipt: []byte(`{"status": "0x1"}`),
		Tx: txmanager.ConsumingTx{Hash: txmanager.Hash{1}, BlockNumber: 7, BlockHash: txmanager.Hash{9}, Node: "node-1", ValueWei: "7"}}
	reverted := foreign
	reverted.Nonce, reverted.Succeeded, reverted.Tx.Hash = 1, false, txmanager.Hash{2}
	if err := db.StoreForeignTransactions(t.Context(), w.Lease, []txmanager.ForeignTransaction{foreign, reverted}); err != nil {
		t.Fatal(err)
	}
	write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun, Cursor: txmanager.CursorChange{ClearSuspected: true, CloseIncident: &txmanager.ReleaseRequest{
		Incident: 1, Mode: txmanager.Resync, By: "op", Reason: "restored", Count: 5,
		Requests:      map[uint64]string{0: "lost", 1: "waiting"},
		EndedRequests: []txmanager.Naming{{Nonce: 0, RequestID: "lost"}, {Nonce: 1, RequestID: "waiting", TxID: waiting.TxID}},
	}}})

	for query, want := range map[string]string{
		`select string_agg(case when request_id like 'displaced:%' then 'none' else request_id end, ' ' order by nonce)
		   from managed_tx where nonce is not null`: "lost waiting none none none",
		`select string_agg(state || '/' || sub_state, ' ' order by nonce) from managed_tx where nonce is not null`:                              "CONFIRMED/RECORDED FAILED/REVERTED FAILED/DISPLACED FAILED/DISPLACED FAILED/DISPLACED",
		`select string_agg(event_sequence::text, ' ' order by nonce) from managed_tx where nonce is not null`:                                   "3 4 1 1 1",
		`select string_agg(nonce || ':' || coalesce(prev_nonce::text, 'first'), ' ' order by nonce) from managed_tx where nonce is not null`:    "0:first 1:0 2:1 3:2 4:3",
		`select next_nonce::text from submitter_nonce_cursor where submitter like '%a11ce'`:                                                     "5",
		`select last_error from managed_tx where nonce = 2`:                                                                                     "the chain has this nonce, and nothing here does; its request is not known",
		`select last_error from managed_tx where nonce = 3`:                                                                                     "the chain has this nonce, and nothing here does; its request is not known",
		`select string_agg(coalesce(from_state, 'new') || ' ' || state, ', ' order by id) from tx_history where tx_id = '` + waiting.TxID + `'`: "new QUEUED, QUEUED FAILED",
	} {
		if diff := cmp.Diff(want, value[string](t, db, query)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	if a, err := db.Create(t.Context(), intent(alice, "lost"), 100); !errors.Is(err, store.ErrRecorded) {
		t.Errorf("posted again: got %+v, %v; want it recorded", a, err)
	}
	for _, v := range []store.Viewer{shop, operator} {
		r, err := db.TxByRequest(t.Context(), alice, "lost", v)
		if err != nil || r.State != txmanager.Confirmed || r.SubState == nil || *r.SubState != "RECORDED" || r.TxHash == nil || *r.TxHash != foreign.Tx.Hash.String() || r.Receipt == nil {
			t.Errorf("by request, for %+v: got %+v, %v; want it RECORDED with its hash and its receipt", v, r, err)
		}
		if d, err := db.RecordDecision(t.Context(), store.Decision{TxID: r.TxID, By: v, Action: txmanager.ActionCancel, Reason: "r"}); err != nil || d.State != txmanager.Confirmed || d.Stated {
			t.Errorf("cancel, for %+v: got %+v, %v; want it CONFIRMED, by its receipt", v, d, err)
		}
	}
	if r, err := db.TxByRequest(t.Context(), alice, "waiting", shop); err != nil || r.TxID != waiting.TxID || r.State != txmanager.Failed {
		t.Errorf("what waited: got %+v, %v; want it FAILED", r, err)
	}
	next := take(t, db, alice, "a/1")
	if len(next.Queue) != 1 || next.Queue[0].ID != later.TxID || next.NextNonce != 5 || len(next.Open) != 0 {
		t.Errorf("what is left: got %+v; want the later one alone, at nonce 5", next)
	}
	if r, err := db.TxByRequest(t.Context(), bob, "lost", shop); err != nil || r.TxID != elsewhere.TxID || r.State != txmanager.Queued {
		t.Errorf("another submitter's: got %+v, %v; want it untouched", r, err)
	}
}

// What an operator is shown as lost leaves out the nonces that a version stored for them
// consumed.
func TestOwnVersionsAreThoseOfTheNonces(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 8)
	for _, name := range []string{"a", "b", "c"} {
		post(t, db, alice, name)
	}
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)})
	want := value[string](t, db, `select tx_hash from managed_tx where nonce = 1`)
	got, err := db.OwnVersions(t.Context(), alice, 1, 2)
	if err != nil || len(got) != 1 || len(got[1]) != 1 || got[1][0].String() != want {
		t.Errorf("versions of nonce 1: got %v, %v; want %s", got, err, want)
	}
}

// A request that ended on an operator's statement alone says so wherever it is asked for,
// and the release has the statement on record.
func TestRequestEndedByStatementReportsTheStatement(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	waiting := post(t, db, alice, "waiting")
	run(t, db, openIncident, alice)
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun, Cursor: txmanager.CursorChange{ClearSuspected: true, CloseIncident: &txmanager.ReleaseRequest{
		Incident: 1, Mode: txmanager.Resync, By: "op", Reason: "restored", Count: 2,
		Requests: map[uint64]string{0: "lost", 1: "waiting"}, Executed: map[uint64]string{0: "the explorer", 1: "the receipt on paper"},
		EndedRequests: []txmanager.Naming{{Nonce: 0, RequestID: "lost"}, {Nonce: 1, RequestID: "waiting", TxID: waiting.TxID}},
	}}})
	for _, id := range []string{"lost", "waiting"} {
		r, err := db.TxByRequest(t.Context(), alice, id, shop)
		if err != nil || r.State != txmanager.Confirmed || r.Receipt != nil || r.ConfirmedAt != nil || r.LastError == nil || *r.LastError != txmanager.StatedAsExecuted {
			t.Errorf("%s: got %+v, %v; want it CONFIRMED on a statement, without a receipt", id, r, err)
		}
		if d, err := db.RecordDecision(t.Context(), store.Decision{TxID: r.TxID, By: shop, Action: txmanager.ActionCancel, Reason: "r"}); err != nil || !d.Stated {
			t.Errorf("cancel of %s: got %+v, %v; want it told that it was stated", id, d, err)
		}
	}
	if got := value[string](t, db, `select released ->> 'executed' from protect_incident`); got != `{"0": "the explorer", "1": "the receipt on paper"}` {
		t.Errorf("on record: got %s, want both statements", got)
	}
}
