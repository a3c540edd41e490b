package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// waitsFor makes the head of sub's queue wait for a cause.
func waitsFor(t *testing.T, db storetest.Bundle, sub txmanager.Submitter, cause txmanager.WaitCause) {
	t.Helper()
	w := take(t, db, sub, "a/1")
	to := w.Queue[0]
	to.Explain(cause, string(cause))
	write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{{From: txmanager.Queued, To: to}}, LeaseEnd: txmanager.ReleaseUnlessRerun})
}

// A cause is stored with the time at which it began, which stays while the cause does. It comes with
// the load, and an allocation or a cancel clears both.
func TestCauseIsStoredSinceItBegan(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	for _, s := range []txmanager.Submitter{alice, bob} {
		post(t, db, s, "1")
	}
	since := func() time.Time {
		return value[time.Time](t, db, `select waiting_since from managed_tx where submitter = $1`, alice)
	}
	waitsFor(t, db, alice, txmanager.WaitBalance)
	began := since()
	waitsFor(t, db, alice, txmanager.WaitBalance)
	check.Equal(t, "the same cause again: since", since(), began)
	waitsFor(t, db, alice, txmanager.WaitNodes)
	if changed := since(); !changed.After(began) {
		t.Errorf("another cause: got since %s, want later than %s", changed, began)
	}
	w := take(t, db, alice, "a/2")
	check.Equal(t, "loaded", w.Queue[0].Cause, txmanager.WaitNodes)
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
	waitsFor(t, db, bob, txmanager.WaitBalance)
	id := value[string](t, db, `select tx_id::text from managed_tx where submitter = $1`, bob)
	check.OK(t)(decide(t, db, id, operator, txmanager.ActionCancel))
	check.Equal(t, "rows with a cause", value[int](t, db, `select count(*)::int from managed_tx where wait_cause is not null or waiting_since is not null`), 0)
}

// why is the wait of a request as v sees it.
func why(t *testing.T, db storetest.Bundle, requestID string, v store.Viewer) *store.Waiting {
	t.Helper()
	id := value[string](t, db, `select tx_id::text from managed_tx where submitter = $1 and request_id = $2`, alice, requestID)
	_, w, err := db.TxWaiting(t.Context(), id, v)
	check.OK(t)(err)
	return w
}

// Each transaction of a queue shows its position, its cause and what blocks it, as its submitter and
// the transactions before it change.
func TestWaitIsDerived(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	postAll(t, db, alice, "1", "2", "3")
	is := func(what, requestID string, cause txmanager.WaitCause, position int, by txmanager.WaitCause) {
		t.Helper()
		w := why(t, db, requestID, operator)
		got := struct {
			Cause    txmanager.WaitCause
			Position int
			By       txmanager.WaitCause
		}{Cause: w.Cause}
		if w.Position != nil {
			got.Position = *w.Position
		}
		if w.BlockedBy != nil {
			got.By = w.BlockedBy.Cause
		}
		if got.Cause != cause || got.Position != position || got.By != by || w.Since.IsZero() || w.Since.After(w.Now) {
			t.Errorf("%s: got %+v since %s, want %s at %d, blocked by %q", what, got, w.Since, cause, position, by)
		}
	}
	is("the head", "1", txmanager.WaitNext, 1, "")
	is("behind it", "2", txmanager.WaitEarlier, 2, txmanager.WaitNext)
	waitsFor(t, db, alice, txmanager.WaitBalance)
	is("a poor head", "1", txmanager.WaitBalance, 1, "")
	is("behind the poor head", "3", txmanager.WaitEarlier, 3, txmanager.WaitBalance)
	db.Run(t, `update submitter set status = 'SUSPENDED'`)
	is("suspended", "2", txmanager.WaitSuspended, 2, "")
	db.Run(t, `update submitter set status = 'ACTIVE'`)
	sendAll(t, db, alice)
	is("sent", "1", txmanager.WaitBroadcast, 0, "")
	is("the next head", "2", txmanager.WaitWindowFull, 1, txmanager.WaitBroadcast)
	is("behind the full window", "3", txmanager.WaitEarlier, 2, txmanager.WaitWindowFull)
	db.Run(t, `update managed_tx set state = 'TRACKING', sub_state = 'PENDING' where open`)
	is("acknowledged", "1", txmanager.WaitInclusion, 0, "")
	db.Run(t, `update managed_tx set held = true where request_id = '2'`)
	is("held", "2", txmanager.WaitHeld, 0, "")
	db.Run(t, `update managed_tx set deferred_at = now(), blocked_since = now(), wait_cause = 'OWN_BOUNDS', waiting_since = now(), held = false where request_id = '2'`)
	is("deferred", "2", txmanager.WaitOwnBounds, 1, "")
	is("behind its caller's deferred intent", "3", txmanager.WaitEarlier, 2, txmanager.WaitOwnBounds)
	db.Run(t, openIncident, alice)
	is("in PROTECT", "3", txmanager.WaitProtect, 2, "")
	db.Run(t, `update managed_tx set state = 'FAILED', sub_state = 'REVERTED', receipt = '{}', confirmed_at = now() where open`)
	if w := why(t, db, "1", operator); w != nil {
		t.Errorf("ended: got %+v, want nothing", w)
	}
}

// What blocks is shown only to its caller and to operators. Others learn that there is something.
func TestBlockerOfAnotherCallerIsNotShown(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	db.Run(t, `update submitter set callers = '{email:a@x,email:b@x}'`)
	for i, caller := range []string{"email:a@x", "email:b@x", "email:b@x"} {
		create(t, db, of(caller, intent(alice, fmt.Sprint(i+1))))
	}
	b := store.Viewer{Caller: "email:b@x", Names: []string{"email:b@x", "*"}}
	if got := why(t, db, "3", b).BlockedBy; got == nil || *got != (store.Blocker{}) {
		t.Errorf("behind another's: got %+v, want nothing about it", got)
	}
	if got := why(t, db, "3", operator).BlockedBy; got == nil || got.TxID == nil {
		t.Errorf("an operator: got %+v, want its txId", got)
	}
	db.Run(t, `update managed_tx set held = true where request_id = '1'`)
	if got := why(t, db, "3", b).BlockedBy; got == nil || got.TxID == nil {
		t.Errorf("behind its own: got %+v, want its txId", got)
	}
}

// A position is exact up to MaxPosition. Behind 1,500 intents no more rows are read than that.
func TestPositionIsBounded(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	for first := range 3 {
		check.OK(t)(db.CreateAll(t.Context(), intents(alice, string(rune('a'+first)), 500), 10_000))
	}
	for requestID, want := range map[string]struct {
		position int
		more     bool
	}{"a0": {1, false}, "b499": {1000, false}, "c0": {1000, true}, "c499": {1000, true}} {
		if w := why(t, db, requestID, operator); *w.Position != want.position || w.PositionMore != want.more {
			t.Errorf("%s: got %d, more %t; want %d, %t", requestID, *w.Position, w.PositionMore, want.position, want.more)
		}
	}
}

// The past of a sent transaction has its changes with their tokens, and its versions with their fees.
func TestPastOfATransaction(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	post(t, db, alice, "1")
	sendAll(t, db, alice)
	id := value[string](t, db, `select tx_id::text from managed_tx`)
	changes, err := db.TxHistory(t.Context(), id, -1, 1)
	if err != nil || len(changes) != 1 || changes[0].State != txmanager.Queued {
		t.Fatalf("first page: got %+v, %v; want QUEUED", changes, err)
	}
	changes, err = db.TxHistory(t.Context(), id, changes[0].Number(), 2)
	if err != nil || len(changes) != 1 || changes[0].State != txmanager.Submitted || changes[0].TxHash == nil || changes[0].FencingToken == nil {
		t.Errorf("last page: got %+v, %v; want SUBMITTED with hash and token", changes, err)
	}
	versions, err := db.TxVersions(t.Context(), id, 0, 10)
	if err != nil || len(versions) != 1 || versions[0].TxHash != *changes[0].TxHash || len(versions[0].Fees) == 0 {
		t.Errorf("versions: got %+v, %v; want the one that was sent", versions, err)
	}
	check.Equal(t, "number of versions above 1", len(check.Value(db.TxVersions(t.Context(), id, 1, 10))(t)), 0)
	if _, err := db.TxVersions(t.Context(), "01a1fda0-b1f9-7b07-a2c1-57c667e395bc", 0, 10); err == nil {
		t.Error("an unknown transaction: got no error")
	}
}

// The history keeps of each change the node that it rests on and what the nodes answered to the broadcast, and of no
// other change. Each version shows its last answers and when it was sent last.
func TestPastNamesNodes(t *testing.T) {
	t.Parallel()
	db := registered(t, 2, alice)
	postAll(t, db, alice, "1", "2")
	sendAll(t, db, alice)
	id := value[string](t, db, `select tx_id::text from managed_tx where request_id = '1'`)
	const one, two = "10.0.0.1:8545", "10.0.0.2:8545"
	accepted, refused := txmanager.NodeAnswer{Node: one, Class: txmanager.SendAccepted}, txmanager.NodeAnswer{Node: two, Class: txmanager.SendFeeTooLow}
	changes := func(change func(*txmanager.Transition)) {
		t.Helper()
		w := take(t, db, alice, "a/1")
		first, second := txmanager.Transition{From: w.Open[0].State, To: w.Open[0]}, txmanager.Transition{From: w.Open[1].State, To: w.Open[1]}
		second.To.LastError += "."
		change(&first)
		write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{first, second}, LeaseEnd: txmanager.ReleaseAnyway})
	}
	changes(func(m *txmanager.Transition) {
		m.To.LastError, m.Answers = "no node took it", []txmanager.NodeAnswer{refused}
	})
	changes(func(m *txmanager.Transition) { m.To.SubmitAttempts, m.To.LastError, m.Node = 2, "", one })
	again := value[time.Time](t, db, `select max(at) from tx_history where tx_id = $1`, id)
	changes(func(m *txmanager.Transition) {
		m.To.State, m.To.Sub, m.Answers = txmanager.Tracking, txmanager.Pending, []txmanager.NodeAnswer{accepted, accepted}
	})
	changes(func(m *txmanager.Transition) { m.Node, m.Answers = one, []txmanager.NodeAnswer{accepted, refused} }) // nothing else: not kept
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Versions: []txmanager.Version{placeholderFor(w.Open[0])}, LeaseEnd: txmanager.ReleaseAnyway})
	changes(func(m *txmanager.Transition) {
		m.To.State, m.To.Sub, m.Answers = txmanager.Tracking, txmanager.Pending, []txmanager.NodeAnswer{accepted, refused}
	})
	changes(func(m *txmanager.Transition) { inBlocks(true, block(7, 1))(&m.To); m.Node = two })
	said := func(node *string, b *store.Broadcast) string {
		text := "-"
		if node != nil {
			text = *node
		}
		if b != nil {
			text += fmt.Sprintf(" %d %v", b.Accepted, b.Answers)
		}
		return text
	}
	var got []string
	for _, c := range check.Value(db.TxHistory(t.Context(), id, -1, 20))(t) {
		got = append(got, string(c.State)+" "+said(c.Node, c.Broadcast))
	}
	check.Same(t, "history", got, []string{"QUEUED -", "SUBMITTED -", "SUBMITTED - 0 [{10.0.0.2:8545 fee_too_low}]", "SUBMITTED 10.0.0.1:8545", "TRACKING - 2 []",
		"SUBMITTED -", "TRACKING - 1 [{10.0.0.1:8545 accepted} {10.0.0.2:8545 fee_too_low}]", "TRACKING 10.0.0.2:8545"})
	check.Equal(t, "rows of the other with a node", value[int](t, db, `select count(*) from tx_history where tx_id <> $1 and coalesce(node, answers) is not null`, id), 0)
	versions := check.Value(db.TxVersions(t.Context(), id, 0, 10))(t)
	if len(versions) != 2 {
		t.Fatalf("versions: got %+v, want two", versions)
	}
	check.Equal(t, "first version", said(nil, versions[0].Broadcast), "- 2 []")
	check.Equal(t, "second version", said(nil, versions[1].Broadcast), "- 1 [{10.0.0.1:8545 accepted} {10.0.0.2:8545 fee_too_low}]")
	if !versions[0].LastSentAt.Equal(again) || versions[1].LastSentAt.Before(versions[1].SignedAt) || versions[1].LastSentAt.After(versions[1].SignedAt.Add(time.Minute)) {
		t.Errorf("sent: got %s and %s; want %s, and about %s", versions[0].LastSentAt, versions[1].LastSentAt, again, versions[1].SignedAt)
	}
}

// Each queue has one head with its cause, and deferred intents are listed beside it.
func TestBlockedHeads(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	for _, s := range []txmanager.Submitter{alice, bob} {
		postAll(t, db, s, "1", "2", "3")
	}
	sendAll(t, db, bob)
	db.Run(t, `update managed_tx set deferred_at = now(), blocked_since = now(), wait_cause = 'OWN_BOUNDS', waiting_since = now() - interval '1 hour' where submitter = $1 and request_id = '1'`, alice)
	heads := func() map[string]time.Duration {
		t.Helper()
		found := make(map[string]time.Duration)
		for _, h := range check.Value(db.BlockedHeads(t.Context()))(t) {
			found[string(h.Cause)+" "+string(h.Submitter)] = h.For
		}
		return found
	}
	found := heads()
	if full, ok := found["WINDOW_FULL "+string(bob)]; !ok || full > time.Minute || found["OWN_BOUNDS "+string(alice)] < time.Hour || len(found) != 2 {
		t.Errorf("got %v, want a full window and a deferred intent, behind which its caller's others wait", found)
	}
	db.Run(t, `update managed_tx set deferred_at = null, blocked_since = null, wait_cause = 'BALANCE' where submitter = $1 and request_id = '1'`, alice)
	if found := heads(); found["BALANCE "+string(alice)] < time.Hour || len(found) != 2 {
		t.Errorf("got %v, want a head without money for an hour", found)
	}
	db.Run(t, `update managed_tx set wait_cause = null, waiting_since = null, created_at = now() - interval '1 hour' where submitter = $1`, alice)
	if found := heads(); found["NEXT "+string(alice)] < time.Hour || len(found) != 2 {
		t.Errorf("got %v, want a head that waits for an hour", found)
	}
	db.Run(t, `update managed_tx set created_at = now() - interval '1 hour' where submitter = $1 and queued`, bob)
	db.Run(t, `update submitter set max_in_flight = 2 where submitter = $1`, bob)
	if found := heads(); found["NEXT "+string(bob)] > time.Minute || len(found) != 2 {
		t.Errorf("got %v, want a head that waits since the queue moved", found)
	}
	db.Run(t, openIncident, alice)
	if found := heads(); found["PROTECT "+string(alice)] > time.Minute || len(found) != 2 {
		t.Errorf("got %v, want PROTECT since now", found)
	}
}

// A row without a key for its MAC, and one caller's deferred intent with any number behind it, stand
// for no other caller's head. The load passes them too.
func TestHeadBehindPassedIntents(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	db.Run(t, `update submitter set callers = '{email:old@x,email:b@x}' where submitter = $1`, alice)
	create := func(caller, name string, n int) {
		t.Helper()
		all := intents(alice, name, n)
		for i := range all {
			all[i].Caller = caller
		}
		for _, c := range check.Value(db.CreateAll(t.Context(), all, 10_000))(t) {
			check.OK(t)(c.Err)
		}
	}
	create("email:old@x", "first", 1)
	db.Run(t, `update managed_tx set deferred_at = now(), blocked_since = now(), wait_cause = 'OWN_BOUNDS', waiting_since = now()`)
	db.Run(t, `update submitter set callers = '{email:a@x,email:b@x}', succeeded = '{"email:old@x": "email:a@x"}' where submitter = $1`, alice)
	for _, name := range []string{"i", "j", "k"} {
		create("email:a@x", name, store.MaxPosition/2)
	}
	create("email:b@x", "b", 2)
	db.Run(t, `update managed_tx set wait_cause = 'BALANCE', waiting_since = now() where request_id = 'b0'`)
	postAll(t, db, bob, "1", "2")
	db.Run(t, `update managed_tx set wait_cause = 'MAC_KEY', waiting_since = now() - interval '1 hour' where submitter = $1 and request_id = '1'`, bob)
	found := make(map[string]int)
	for _, h := range check.Value(db.BlockedHeads(t.Context()))(t) {
		found[string(h.Cause)+" "+string(h.Submitter)]++
	}
	want := map[string]int{"OWN_BOUNDS " + string(alice): 1, "BALANCE " + string(alice): 1, "MAC_KEY " + string(bob): 1, "NEXT " + string(bob): 1}
	check.Same(t, "heads", found, want)
	causes := make(map[string]txmanager.WaitCause)
	for _, q := range check.Value(db.Queue(t.Context(), alice, 0, 2*store.MaxPosition))(t) {
		causes[q.RequestID] = q.Cause
	}
	check.Equal(t, "in the queue: the deferred", causes["first0"], txmanager.WaitOwnBounds)
	check.Equal(t, "in the queue: the head", causes["b0"], txmanager.WaitBalance)
	check.Equal(t, "in the queue: behind the deferred", causes["i0"], txmanager.WaitEarlier)
	for _, c := range []struct {
		requestID string
		cause, by txmanager.WaitCause
	}{{"first0", txmanager.WaitOwnBounds, ""}, {"k1", txmanager.WaitEarlier, txmanager.WaitOwnBounds}, {"b0", txmanager.WaitBalance, ""}, {"b1", txmanager.WaitEarlier, txmanager.WaitBalance}} {
		w := why(t, db, c.requestID, operator)
		if w.Cause != c.cause || (w.BlockedBy == nil) != (c.by == "") || w.BlockedBy != nil && w.BlockedBy.Cause != c.by {
			t.Errorf("%s: got %+v, blocked by %+v; want %s, blocked by %q", c.requestID, w, w.BlockedBy, c.cause, c.by)
		}
	}
}

// A cause ends with what it was for: a decision that an operator made, transactions that an intent
// was deferred for, and a reserved nonce that was given out again.
func TestCausesEnd(t *testing.T) {
	t.Parallel()
	db := registered(t, 2, alice)
	postAll(t, db, alice, "1", "2")
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)[:1], LeaseEnd: txmanager.ReleaseUnlessRerun})
	db.Run(t, `update managed_tx set state = 'STUCK', wait_cause = 'OPERATOR', waiting_since = now() where open`)
	check.Equal(t, "stuck", why(t, db, "1", operator).Cause, txmanager.WaitForOperator)
	id := value[string](t, db, `select tx_id::text from managed_tx where open`)
	check.OK(t)(decide(t, db, id, operator, txmanager.ActionRebroadcast))
	check.Equal(t, "decided", why(t, db, "1", operator).Cause, txmanager.WaitNext)

	deferred := func() (found []string) {
		for _, h := range check.Value(db.BlockedHeads(t.Context()))(t) {
			found = append(found, string(h.Cause))
		}
		return found
	}
	db.Run(t, `update managed_tx set deferred_until_nonce = 0, wait_cause = 'DEFERRED', waiting_since = now() - interval '1 hour' where queued`)
	check.Same(t, "deferred: blocked", deferred(), []string{"DEFERRED"})
	check.Equal(t, "deferred", why(t, db, "2", operator).Cause, txmanager.WaitDeferred)
	db.Run(t, `update managed_tx set state = 'FAILED', sub_state = 'REVERTED', receipt = '{}', confirmed_at = now(), requested_action = null where open`)
	check.Same(t, "deferred no longer: blocked", deferred(), []string{"NEXT"})
	check.Equal(t, "deferred no longer: in the queue", check.Value(db.Queue(t.Context(), alice, 0, 1))(t)[0].Cause, txmanager.WaitNext)
	check.Equal(t, "deferred no longer", why(t, db, "2", operator).Cause, txmanager.WaitNext)
}
