package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// H8: a database that was restored from a backup runs on another timeline. It is
// noticed before any row is believed: every submitter is in PROTECT, creates are
// refused, "not found" is no answer, and only a named person accepts it.
func TestH08RestoredDatabase(t *testing.T) {
	t.Parallel()
	db, cluster := ownCluster(t)
	db.Register(t, alice, 1)
	db.Register(t, bob, 1)
	kept := post(t, db, alice, "kept")
	recoverElsewhere(t, db, cluster)

	storetest.Await(t, "a new intent is refused, once connections from before the restart are gone", func() bool {
		_, err := db.Create(t.Context(), intent(alice, "new"), 10)
		if err == nil {
			t.Fatal("a new intent in a restored database: got it accepted")
		}
		return errors.Is(err, store.ErrProtected)
	})
	check.Equal(t, "what is stored", check.Value(db.Create(t.Context(), intent(alice, "kept"), 10))(t).TxID, kept.TxID)
	who := store.Viewer{Caller: "shop"}
	check.Err(t, "a request that may be lost", store.ErrInDoubt)(store.RecordOf(db.TxWaitingByRequest(t.Context(), alice, "lost", who)))
	check.Equal(t, "protected, in a foreign database", take(t, db, bob, "a/1").Protected, true)
	check.Equal(t, "submitters in PROTECT", value[int](t, db, `select count(*) from protect_incident where closed_at is null`), 2)

	before := value[string](t, db, `select epoch from database_identity`)
	check.OK(t)(db.AcceptDatabase(t.Context(), "operator", "restored after the outage, reconciled"))
	check.Err(t, "accept again", store.ErrDatabaseAccepted)(db.AcceptDatabase(t.Context(), "operator", "again"))
	check.Equal(t, "submitters in PROTECT once the database is accepted", value[int](t, db, `select count(*) from protect_incident where closed_at is null`), 2)
	if after := value[string](t, db, `select epoch from database_identity`); after == before {
		t.Error("the epoch: got the old one, want another, so that no name is met again")
	}
}

// ownCluster is a migrated database in a separate cluster, which may be restarted.
func ownCluster(t *testing.T) (storetest.Bundle, *pgcluster.Cluster) {
	t.Helper()
	cluster := check.Value(pgcluster.Start(t.Context(), pgcluster.Options{}))(t)
	t.Cleanup(func() { _ = cluster.Stop() })
	return storetest.NewIn(t, cluster), cluster
}

// recoverElsewhere makes the cluster recover from its write-ahead log as after a restore, and
// end on a new timeline.
func recoverElsewhere(t *testing.T, db storetest.Bundle, cluster *pgcluster.Cluster) {
	t.Helper()
	db.Run(t, `alter system set restore_command = 'false'`)
	db.Run(t, `copy (select '') to program 'cat > recovery.signal'`)
	check.OK(t)(cluster.Restart(t.Context(), false))
	db.DB.Reset()
	fresh := check.Value(pgxpool.New(t.Context(), db.URL))(t)
	defer fresh.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for recovering := true; recovering; {
		if err := fresh.QueryRow(ctx, `select pg_is_in_recovery()`).Scan(&recovering); err != nil && ctx.Err() != nil {
			t.Fatalf("the recovery never ended: %v", err)
		}
	}
	var ours bool
	if err := fresh.QueryRow(t.Context(), `select is_accepted_database()`).Scan(&ours); err != nil || ours {
		t.Fatalf("after the recovery: got authority %v, %v; want another timeline", ours, err)
	}
}

// Only its callers and operators learn that a submitter is registered or in PROTECT. After a
// restore, while any submitter waits for its release, no caller gets "not found": the list of
// callers may be older than the caller.
func TestDoubtIsShownToCallersOnly(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	const unregistered = txmanager.Submitter("eip155:1337:0x00000000000000000000000000000000000000ff")
	for statement, args := range map[string][]any{
		`update submitter set callers = '{shop}'`:                                           nil,
		`insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`: {alice},
	} {
		check.OK(t)(db.DB.Exec(t.Context(), statement, args...))
	}
	stranger, operator := store.Viewer{Caller: "email:stranger@elsewhere.example"}, store.Viewer{Caller: "email:ann@fencepost.example", Operator: true}
	asks := func(when string, want map[txmanager.Submitter][3]error) {
		t.Helper()
		for s, each := range want {
			for i, who := range []store.Viewer{shop, stranger, operator} {
				check.Err(t, fmt.Sprintf("%s, %s, asked by %s", when, s, who.Caller), each[i])(store.RecordOf(db.TxWaitingByRequest(t.Context(), s, "none", who)))
			}
		}
	}
	none, doubt := store.ErrNotFound, store.ErrInDoubt
	asks("in PROTECT", map[txmanager.Submitter][3]error{alice: {doubt, none, doubt}, bob: {none, none, none}, unregistered: {none, none, none}})
	check.OK(t)(migrations.Distrust(t.Context(), db.URL, "a copy"))
	asks("restored", map[txmanager.Submitter][3]error{alice: {doubt, doubt, doubt}, bob: {doubt, doubt, doubt}, unregistered: {doubt, doubt, doubt}})
	check.OK(t)(db.AcceptDatabase(t.Context(), "operator", "reconciled"))
	for _, s := range []txmanager.Submitter{alice, bob} {
		asks("accepted", map[txmanager.Submitter][3]error{s: {doubt, doubt, doubt}, unregistered: {doubt, doubt, none}})
		check.OK(t)(db.DB.Exec(t.Context(), `update protect_incident set closed_at = clock_timestamp(), closed_by = 'ann', mode = 'resume', reason = 'found whole' where submitter = $1 and closed_at is null`, s))
	}
	asks("released", map[txmanager.Submitter][3]error{alice: {none, none, none}, bob: {none, none, none}, unregistered: {none, none, none}})
}

// H8: a caller of a restored database must get no definite answer from a cancel,
// and no "not found", before a named person has accepted the database.
func TestH08CancelAndQueryInARestoredDatabase(t *testing.T) {
	t.Parallel()
	db, cluster := ownCluster(t)
	db.Register(t, alice, 1)
	held, queued, ran := post(t, db, alice, "held"), post(t, db, alice, "queued"), post(t, db, alice, "ran")
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)[:1], LeaseEnd: txmanager.ReleaseUnlessRerun})
	recoverElsewhere(t, db, cluster)
	storetest.Await(t, "connections from before the restart are gone", func() bool { return db.Ping(t.Context()) == nil })

	unknown := uuid.NewString()
	for _, id := range []string{held.TxID, queued.TxID} {
		before := contents(t, db, "managed_tx", "tx_decision")
		check.Err(t, "cancel by a caller", store.ErrInDoubt)(decide(t, db, id, shop, txmanager.ActionCancel))
		check.Same(t, "a cancel in doubt wrote", contents(t, db, "managed_tx", "tx_decision"), before)
	}
	check.Err(t, "a txId that may be lost", store.ErrInDoubt)(store.RecordOf(db.TxWaiting(t.Context(), unknown, shop)))
	check.Equal(t, "a txId that is stored", check.Value(store.RecordOf(db.TxWaiting(t.Context(), queued.TxID, shop)))(t).State, txmanager.Queued)
	check.Equal(t, "cancel by an operator, who reconciles", check.Value(decide(t, db, ran.TxID, operator, txmanager.ActionCancel))(t).SubState, txmanager.Cancelled)
	check.Err(t, "cancel by a caller of what an operator cancelled because it ran", store.ErrInDoubt)(decide(t, db, ran.TxID, shop, txmanager.ActionCancel))

	check.OK(t)(db.AcceptDatabase(t.Context(), "operator", "reconciled"))
	check.Equal(t, "cancel in the queue, accepted and in PROTECT", check.Value(decide(t, db, queued.TxID, shop, txmanager.ActionCancel))(t).State, txmanager.Queued)
	check.Equal(t, "cancel of what has a nonce, once accepted", check.Value(decide(t, db, held.TxID, shop, txmanager.ActionCancel))(t).RequestedAction, txmanager.ActionCancel)
	check.Err(t, "a txId that nobody has, once accepted", store.ErrNotFound)(store.RecordOf(db.TxWaiting(t.Context(), unknown, shop)))
	check.Err(t, "a request that may be lost, accepted and in PROTECT", store.ErrInDoubt)(store.RecordOf(db.TxWaitingByRequest(t.Context(), alice, "lost", shop)))
	db.Run(t, releaseAll)
	check.Equal(t, "cancel in the queue, once released", check.Value(decide(t, db, queued.TxID, shop, txmanager.ActionCancel))(t).SubState, txmanager.Cancelled)
}

// heldByCopy checks that an intent is held as the queue of a restored copy is.
func heldByCopy(t *testing.T, db storetest.Bundle, txID string) bool {
	t.Helper()
	return value[bool](t, db, `select held and held_for is null and coalesce(last_error like 'held: the database was restored%', false) from managed_tx where tx_id = $1`, txID)
}

// An intent that was held beside a foreign transaction at a further restore may have run after
// that backup, or been cancelled. The end of that hold does not let it proceed. Only its
// caller or an operator does, as for the rest of the copy's queue.
func TestAHoldOfBeforeARestoreLetsNothingGoOn(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	lost(t, db, alice, nil, 5, 6)
	five, _ := mustCreate(t, db, worth(alice, "five", 5))
	six, _ := mustCreate(t, db, worth(alice, "six", 6))
	unknown, _ := mustCreate(t, db, handled(alice, "unknown"))
	other, _ := mustCreate(t, db, handled(alice, "other"))
	acceptRestored(t, db)
	later, held := mustCreate(t, db, handled(alice, "posted after the restore"))
	check.Equal(t, "posted after the restore: held", held, true)

	d := store.HoldDecision{Submitter: alice, Nonce: new(uint64(0)), Limit: 1, By: "ann", Reason: "as the log has it"}
	check.Equal(t, "write off", check.Value(db.WriteOff(t.Context(), d))(t), store.WriteOffResult{WrittenOff: 1, Remaining: 1, Token: 1})
	d.Nonce = new(uint64(1))
	check.OK(t)(db.MatchHold(t.Context(), d, unknown.TxID))
	for name, txID := range map[string]string{"five": five.TxID, "six": six.TxID, "other": other.TxID} {
		check.Equal(t, fmt.Sprintf("%s: held as the queue of the copy is", name), heldByCopy(t, db, txID), true)
	}
	check.Equal(t, "posted after the restore", subState(t, db, later.TxID), "")
	again := worth(alice, "five", 5)
	again.TxID = uuid.NewString()
	if a, err := db.Create(t.Context(), again, 100); err != nil || a.TxID != five.TxID || !a.Queued {
		t.Errorf("posted again by its caller: got %+v, %v; want it let go on", a, err)
	}
	out := check.Value(decide(t, db, six.TxID, operator, txmanager.ActionCancel))(t)
	check.Equal(t, "sub-state after the cancel", out.SubState, txmanager.Cancelled)
	check.Equal(t, "let go on, on record", value[int](t, db, `select count(*) from tx_decision where action = 'PROCEED'`), 2)
}

// A payout that was held beside a foreign transaction at a further restore is in doubt. It
// proceeds only once an operator has stated that it was not paid.
func TestAHoldOfBeforeARestoreLetsNoPayoutGoOn(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1, store.PayoutCaller)
	lost(t, db, alice, nil, 5, 6, 7)
	payouts := make(map[int]string)
	for value, reqID := range map[int]string{5: "01ARZ3NDEKTSV4RRFFQ69G5FA5", 6: "01ARZ3NDEKTSV4RRFFQ69G5FA6", 7: "01ARZ3NDEKTSV4RRFFQ69G5FA7"} {
		in := worth(alice, reqID, value)
		in.Caller = store.PayoutCaller
		a, held := mustCreate(t, db, in)
		if payouts[value] = a.TxID; !held {
			t.Fatalf("payout of %d is not held", value)
		}
	}
	acceptRestored(t, db)
	db.Run(t, `alter table payout_statement drop constraint statement_of_a_transfer`)
	state := func(reqID string, refund bool) {
		db.Run(t, `insert into payout_statement (req_id, of_confirmed, paid, refund, nonces_below, other_payments, by, reason, change, acted_at)
			select $1, false, false, $2, 0, '{}', 'ann', 'r', max(id), clock_timestamp() from identity_change`, reqID, refund)
	}
	state("01ARZ3NDEKTSV4RRFFQ69G5FA6", false)
	state("01ARZ3NDEKTSV4RRFFQ69G5FA7", true)
	d := store.HoldDecision{Submitter: alice, Through: new(uint64(2)), Limit: 10, By: "ann", Reason: "as the log has it"}
	// The one goes on that was stated not paid, and to be paid.
	check.Equal(t, "write off", check.Value(db.WriteOff(t.Context(), d))(t), store.WriteOffResult{WrittenOff: 3, Proceeded: 1, Token: 1})
	check.Equal(t, "the payout in doubt: held", heldByCopy(t, db, payouts[5]), true)
	check.Equal(t, "the payout to be given back: held", heldByCopy(t, db, payouts[7]), true)
	check.Equal(t, "the payout that was not paid and is to be paid: held", value[bool](t, db, `select held from managed_tx where tx_id = $1`, payouts[6]), false)
}

// A request that a release names for another nonce is none of the foreign transaction
// that it was held for: that one holds the next intent with its call.
func TestANamedRequestLeavesItsHoldFree(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	lost(t, db, alice, nil, 5)
	five, _ := mustCreate(t, db, worth(alice, "five", 5))
	check.OK(t)(nameIn(t, db, "five", five.TxID))
	check.Equal(t, "the named request", value[string](t, db, `select state || '/' || sub_state || ' ' || recorded_nonce from managed_tx where tx_id = $1`, five.TxID), "CONFIRMED/RECORDED 1")
	lostToo, held := mustCreate(t, db, worth(alice, "lost too", 5))
	check.Equal(t, "another request with the call of nonce 0: held", held, true)
	check.Equal(t, "match", check.Value(db.MatchHold(t.Context(), store.HoldDecision{Submitter: alice, Nonce: new(uint64(0)), By: "ann", Reason: "r"}, lostToo.TxID))(t).SubState, txmanager.RecordedOnChain)
}

// A match that commits while a release is evaluated takes the request from it. The release of
// another nonce by that name then changes nothing.
func TestAReleaseNamesNothingThatWasMatchedMeanwhile(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	lost(t, db, alice, nil, 5)
	five, _ := mustCreate(t, db, worth(alice, "five", 5))
	check.OK(t)(db.MatchHold(t.Context(), store.HoldDecision{Submitter: alice, Nonce: new(uint64(0)), By: "ann", Reason: "r"}, five.TxID))
	if err := nameIn(t, db, "five", five.TxID); err == nil || !strings.Contains(err.Error(), "division by zero") {
		t.Errorf("release: got %v, want it refused whole", err)
	}
	check.Equal(t, "open incidents", value[int](t, db, `select count(*) from protect_incident where closed_at is null`), 1)
}

// nameIn has a second incident of alice released, in which nonce 1 was named the request.
func nameIn(t *testing.T, db storetest.Bundle, requestID, txID string) error {
	t.Helper()
	db.Run(t, `insert into protect_incident (submitter, incident, evidence) values ($1, 2, '{}')`, alice)
	return releases(t, db, alice, txmanager.ReleaseRequest{
		Incident: 2, Mode: txmanager.Resync, By: "ann", Reason: "another incident", Count: 2, Requests: map[uint64]string{1: requestID},
		EndedRequests: []txmanager.Naming{{Nonce: 1, RequestID: requestID, TxID: txID}},
	}, foreignAt(1, 2, 5, txmanager.Hash{9}))
}

// H8: an operator distrusts a copy that kept its server's identity. It accepts and serves
// nothing until an operator has accepted it, and each submitter is in PROTECT.
func TestH08ADistrustedDatabase(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	post(t, db, alice, "before")
	for range 2 {
		check.OK(t)(migrations.Distrust(t.Context(), db.URL, "a clone of the 21st"))
	}
	check.Err(t, "create", store.ErrProtected)(db.Create(t.Context(), intent(alice, "after"), 100))
	check.Err(t, "what may be lost", store.ErrInDoubt)(store.RecordOf(db.TxWaiting(t.Context(), "01a1fda0-b1f9-7b07-a2c1-57c667e395bc", shop)))
	check.OK(t)(db.AcceptDatabase(t.Context(), "operator", "reconciled"))
	check.Equal(t, "protected, once accepted", take(t, db, alice, "a/1").Protected, true)
}
