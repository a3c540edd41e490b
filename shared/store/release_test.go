package store_test

import (
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// H8: a request that an operator names as what a lost nonce carried must not run a
// second time: not when it is posted again, nor out of the queue. Its caller never
// hears "there is no such request".
func TestH08ANamedLostRequestNeverRunsAgain(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	waiting, later := post(t, db, alice, "waiting"), post(t, db, alice, "later")
	elsewhere := post(t, db, bob, "lost")
	db.Run(t, openIncident, alice)
	foreign := txmanager.ForeignTransaction{Nonce: 0, Incident: 1, Succeeded: true, Receipt: []byte(`{"status": "0x1"}`),
		Tx: txmanager.ConsumingTx{Hash: txmanager.Hash{1}, BlockNumber: 7, BlockHash: txmanager.Hash{9}, Node: "node-1", ValueWei: "7"}}
	reverted := foreign
	reverted.Nonce, reverted.Succeeded, reverted.Tx.Hash = 1, false, txmanager.Hash{2}
	check.OK(t)(releases(t, db, alice, txmanager.ReleaseRequest{
		Incident: 1, Mode: txmanager.Resync, By: "op", Reason: "restored", Count: 5,
		Requests:      map[uint64]string{0: "lost", 1: "waiting"},
		EndedRequests: []txmanager.Naming{{Nonce: 0, RequestID: "lost"}, {Nonce: 1, RequestID: "waiting", TxID: waiting.TxID}},
	}, foreign, reverted))

	for query, want := range map[string]string{
		`select string_agg(case when request_id like 'displaced:%' then 'none' else request_id end, ' ' order by nonce)
		   from managed_tx where nonce is not null`: "lost waiting none none none",
		`select string_agg(state || '/' || sub_state, ' ' order by nonce) from managed_tx where nonce is not null`:                           "CONFIRMED/RECORDED FAILED/REVERTED FAILED/DISPLACED FAILED/DISPLACED FAILED/DISPLACED",
		`select string_agg(event_sequence::text, ' ' order by nonce) from managed_tx where nonce is not null`:                                "3 4 1 1 1",
		`select string_agg(nonce || ':' || coalesce(prev_nonce::text, 'first'), ' ' order by nonce) from managed_tx where nonce is not null`: "0:first 1:0 2:1 3:2 4:3",
		`select next_nonce::text from submitter_nonce_cursor where submitter like '%a11ce'`:                                                  "5",
		`select last_error from managed_tx where nonce = 2`:                                                                                  "the chain has this nonce, and nothing here does; its request is not known",
		`select bool_and(substr(tx_id::text, 15, 1) = '7' and tx_id > tx_id_at(now() - interval '1 minute') and tx_id <= tx_id_at(now() + interval '1 second'))::text from managed_tx where request_id like 'displaced:%' or request_id = 'lost' and nonce is not null`: "true",
		`select last_error from managed_tx where nonce = 3`: "the chain has this nonce, and nothing here does; its request is not known",
		`select string_agg(coalesce(from_state, 'new') || ' ' || state, ', ' order by id) from tx_history where tx_id = '` + waiting.TxID + `'`: "new QUEUED, QUEUED FAILED",
	} {
		check.Same(t, query, value[string](t, db, query), want)
	}
	check.Err(t, "posted again", store.ErrRecorded)(db.Create(t.Context(), intent(alice, "lost"), 100))
	for _, v := range []store.Viewer{shop, operator} {
		r, _, err := db.TxWaitingByRequest(t.Context(), alice, "lost", v)
		if err != nil || r.State != txmanager.Confirmed || r.SubState == nil || *r.SubState != "RECORDED" || r.TxHash == nil || *r.TxHash != foreign.Tx.Hash.String() || r.Receipt == nil {
			t.Errorf("by request, for %+v: got %+v, %v; want it RECORDED with its hash and its receipt", v, r, err)
		}
		if d, err := decide(t, db, r.TxID, v, txmanager.ActionCancel); err != nil || d.State != txmanager.Confirmed || d.Stated {
			t.Errorf("cancel, for %+v: got %+v, %v; want it CONFIRMED, by its receipt", v, d, err)
		}
	}
	if r, _, err := db.TxWaitingByRequest(t.Context(), alice, "waiting", shop); err != nil || r.TxID != waiting.TxID || r.State != txmanager.Failed {
		t.Errorf("what waited: got %+v, %v; want it FAILED", r, err)
	}
	next := take(t, db, alice, "a/1")
	if len(next.Queue) != 1 || next.Queue[0].ID != later.TxID || next.NextNonce != 5 || len(next.Open) != 0 {
		t.Errorf("what is left: got %+v; want the later one alone, at nonce 5", next)
	}
	if r, _, err := db.TxWaitingByRequest(t.Context(), bob, "lost", shop); err != nil || r.TxID != elsewhere.TxID || r.State != txmanager.Queued {
		t.Errorf("another submitter's: got %+v, %v; want it untouched", r, err)
	}
}

// What an operator is shown as lost leaves out the nonces that a version stored for them
// consumed.
func TestOwnVersionsAreThoseOfTheNonces(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	postAll(t, db, alice, "a", "b", "c")
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
	db := registered(t, 1, alice)
	waiting := post(t, db, alice, "waiting")
	db.Run(t, openIncident, alice)
	check.OK(t)(releases(t, db, alice, txmanager.ReleaseRequest{
		Incident: 1, Mode: txmanager.Resync, By: "op", Reason: "restored", Count: 2,
		Requests: map[uint64]string{0: "lost", 1: "waiting"}, Executed: map[uint64]string{0: "the explorer", 1: "the receipt on paper"},
		EndedRequests: []txmanager.Naming{{Nonce: 0, RequestID: "lost"}, {Nonce: 1, RequestID: "waiting", TxID: waiting.TxID}},
	}))
	for _, id := range []string{"lost", "waiting"} {
		r, _, err := db.TxWaitingByRequest(t.Context(), alice, id, shop)
		if err != nil || r.State != txmanager.Confirmed || r.Receipt != nil || r.ConfirmedAt != nil || r.LastError == nil || *r.LastError != txmanager.StatedAsExecuted {
			t.Errorf("%s: got %+v, %v; want it CONFIRMED on a statement, without a receipt", id, r, err)
		}
		check.Equal(t, "stated, as the cancel of "+id, check.Value(decide(t, db, r.TxID, shop, txmanager.ActionCancel))(t).Stated, true)
	}
	check.Equal(t, "on record", value[string](t, db, `select released ->> 'executed' from protect_incident`), `{"0": "the explorer", "1": "the receipt on paper"}`)
}

// A release by resync draws a name epoch, and the process that released names its next
// task by it: no load of the submitter follows before that. Another process has it with
// its next create. Each release draws another one, and a resume draws none.
func TestReleaseDrawsANameEpoch(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	other := storetest.At(t, db.URL, storetest.Rules)
	db.Register(t, alice, 1)
	check.Equal(t, "before any release", db.NameEpoch(alice), "")
	lost(t, db, alice, nil, 5)
	first := value[string](t, db, `select name_epoch from submitter_lease where submitter = $1`, alice)
	if got := db.NameEpoch(alice); len(first) != 8 || got != first {
		t.Errorf("the process that released: got %q, want %q, of 8 characters", got, first)
	}
	if _, err := other.Create(t.Context(), intent(alice, "next"), 10); err != nil || other.NameEpoch(alice) != first {
		t.Errorf("another process after a create: got %q, %v; want %q", other.NameEpoch(alice), err, first)
	}

	db.Run(t, `insert into protect_incident (submitter, incident, evidence) values ($1, 2, '{}')`, alice)
	check.OK(t)(releases(t, db, alice, txmanager.ReleaseRequest{Incident: 2, Mode: txmanager.Resume, By: "ann", Reason: "a false alarm"}))
	check.Equal(t, "after a resume", db.NameEpoch(alice), first)
	db.Run(t, `insert into protect_incident (submitter, incident, evidence) values ($1, 3, '{}')`, alice)
	check.OK(t)(releases(t, db, alice, txmanager.ReleaseRequest{Incident: 3, Mode: txmanager.Resync, By: "ann", Reason: "another loss", Count: 1, Matching: true}))
	if got := db.NameEpoch(alice); got == first || got != value[string](t, db, `select name_epoch from submitter_lease where submitter = $1`, alice) {
		t.Errorf("after the next resync: got %q, want what was drawn, and another than %q", got, first)
	}
	others := `select string_agg(coalesce(released ->> 'others', 'named'), ' ' order by incident) from protect_incident where submitter = $1 and mode = 'resync'`
	check.Equal(t, "how the nonces without a name were judged, on record", value[string](t, db, others, alice), "named matching")
}

// A process in which an operator or a caller decides names its task by the current name epoch.
// That also holds if another process has released the submitter since this process last loaded
// it.
func TestADecisionBringsTheNameEpoch(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	lost(t, db, alice, nil, 5, 6)
	five, _ := mustCreate(t, db, worth(alice, "five", 5))
	six, _ := mustCreate(t, db, worth(alice, "six", 6))
	unknown, _ := mustCreate(t, db, handled(alice, "unknown"))
	want := value[string](t, db, `select name_epoch from submitter_lease where submitter = $1`, alice)
	brings := func(what string, s storetest.Bundle) func(results ...any) {
		return func(results ...any) {
			t.Helper()
			check.Err(t, what, nil)(results...)
			check.Equal(t, what+": name epoch", s.NameEpoch(alice), want)
		}
	}
	s := storetest.At(t, db.URL, storetest.Rules)
	brings("a match", s)(s.MatchHold(t.Context(), store.HoldDecision{Submitter: alice, Nonce: new(uint64(0)), By: "ann", Reason: "r"}, five.TxID))
	s = storetest.At(t, db.URL, storetest.Rules)
	brings("proceed", s)(s.Proceed(t.Context(), unknown.TxID, "ann", "r"))
	s = storetest.At(t, db.URL, storetest.Rules)
	brings("proceed of all", s)(s.ProceedAll(t.Context(), alice, unknown.TxID, "ann", "r", 10))
	s = storetest.At(t, db.URL, storetest.Rules)
	brings("a write-off", s)(s.WriteOff(t.Context(), store.HoldDecision{Submitter: alice, Nonce: new(uint64(1)), Limit: 1, By: "ann", Reason: "r"}))
	s = storetest.At(t, db.URL, storetest.Rules)
	brings("a cancel", s)(decide(t, s, six.TxID, shop, txmanager.ActionCancel))
	s = storetest.At(t, db.URL, storetest.Rules)
	brings("a suspension", s)(s.SetStatus(t.Context(), store.Suspension{Submitter: alice, Suspend: true, By: "ann", Reason: "r"}))
}
