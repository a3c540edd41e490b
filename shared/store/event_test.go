package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	eventlog "github.com/fencepost/fencepost/shared/store/events"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// What the tables of events refuse, beside that of the other tables.
func init() {
	const (
		intoEvent  = `insert into event (position, tx_id, sequence, type, submitter, caller, body) values `
		anEvent    = intoEvent + `(1, $queued, 1, 'TxAccepted', $alice, 'shop', '{}')`
		newAct     = `insert into webhook_act (endpoint, action, by, reason) values `
		aTest      = newAct + `('hook', 'TEST', 'ann', 'r')`
		intoStream = `insert into event_delivery_queue (submitter, endpoint, delivered, last) values ($alice, 'hook', `
	)
	for name, r := range map[string]refusal{
		"event_pkey":                    {anEvent, intoEvent + `(1, $queued, 2, 'TxFailed', $alice, 'shop', '{}')`},
		"one_event_each":                {anEvent, intoEvent + `(2, $queued, 1, 'TxFailed', $alice, 'shop', '{}')`},
		"event_outbox_pkey":             {`insert into event_outbox (tx_id, sequence, type, submitter, caller, body) values ($queued, 1, 'TxAccepted', $alice, 'shop', '{}')`, `insert into event_outbox overriding system value select * from event_outbox`},
		"event_counter_pkey":            {"", `insert into event_counter (epoch) values ('x')`},
		"event_counter_singleton_check": {"", `insert into event_counter (singleton, epoch) values (false, 'x')`},
		"event_delivery_queue_pkey":     {intoStream + `0, 0)`, intoStream + `0, 0)`},
		"delivered_is_there":            {"", intoStream + `1, 0)`},
		"pause_is_complete":             {"", `insert into event_endpoint (endpoint, paused_at, paused_by) values ('hook', now(), 'ann')`},
		"one_number_per_webhook_act":    {aTest, `insert into webhook_act (id, endpoint, action, by, reason) overriding system value select id, endpoint, action, by, reason from webhook_act`},
		"webhook_act_is_known":          {"", newAct + `('hook', 'DELETE', 'ann', 'r')`},
		"webhook_act_of_a_person":       {"", newAct + `('hook', 'PAUSE', '', 'r')`},
		"redelivery_has_a_cursor":       {"", newAct + `('hook', 'REDELIVER', 'ann', 'r')`},
		"only_tests_are_answered":       {"", `insert into webhook_act (endpoint, action, by, reason, answered_at) values ('hook', 'PAUSE', 'ann', 'r', now())`},
		"event_endpoint_pkey":           {`insert into event_endpoint values ('hook', 1, now())`, `insert into event_endpoint values ('hook', 1, now())`},
	} {
		furtherNonsense[name] = []refusal{r}
	}
	guarded["guard_events"] = []duty{{"event", anEvent, `update event set type = 'TxFailed'`, byGuard}}
	guarded["guard_webhook_act"] = []duty{
		{"webhook_act", aTest, `update webhook_act set reason = 'another'`, byGuard},
		{"webhook_act", aTest, `delete from webhook_act`, byGuard},
	}
	guarded["guard_webhook_acts_truncate"] = []duty{{"webhook_act", "", `truncate webhook_act`, byGuard}}
	guarded["make_events"] = []duty{{"managed_tx", `update managed_tx set events_kept = true where tx_id = $queued`, isFinal, "events_are_counted"}}
}

// heard records the events that the store delivers.
type heard struct {
	mu   sync.Mutex
	news store.CommittedEvents
}

func (h *heard) tell(_ context.Context, news store.CommittedEvents) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.news.Of, h.news.Events = append(h.news.Of, news.Of...), append(h.news.Events, news.Events...)
}

// withEvents is a database with these submitters, whose store has that done with events.
func withEvents(t *testing.T, mode store.EventMode, subs ...txmanager.Submitter) (storetest.Bundle, *heard) {
	t.Helper()
	db, h := registered(t, 1, subs...), new(heard)
	return anotherStore(t, db, mode, h), h
}

func anotherStore(t *testing.T, db storetest.Bundle, mode store.EventMode, h *heard) storetest.Bundle {
	t.Helper()
	return reopened(t, db, func(o *store.Options) { o.Events, o.OnEvents = mode, h.tell })
}

// deliveredEvent is the body of an event as a webhook endpoint gets it.
type deliveredEvent struct {
	Type      string
	Sequence  int
	RequestID string
	Data      map[string]any
}

func read(t *testing.T, all []txmanager.Event) (out []deliveredEvent) {
	t.Helper()
	for _, e := range all {
		var one deliveredEvent
		check.OK(t)(json.Unmarshal(e.Body, &one))
		if one.Type != string(e.Type) || one.Sequence != e.Sequence {
			t.Errorf("event: got %s %d beside the body %s", e.Type, e.Sequence, e.Body)
		}
		out = append(out, one)
	}
	return out
}

// page is what v sees behind a position.
func page(t *testing.T, db storetest.Bundle, after uint64, v store.Viewer) []txmanager.Event {
	t.Helper()
	check.OK(t)(db.EventLog.NumberEvents(t.Context(), []string{"hook"}))
	all, _, err := db.EventLog.Events(t.Context(), eventlog.EventQuery{After: &after, Size: 500}, v)
	check.OK(t)(err)
	return all
}

// block is a block of the chain, or of its fork.
func block(n uint64, fork byte) txmanager.Header {
	return txmanager.Header{Number: n, Hash: txmanager.Hash{fork, byte(n)}}
}

// inBlocks is a receipt in the first of the blocks, with the others on top.
func inBlocks(ok bool, blocks ...txmanager.Header) func(*txmanager.Tx) {
	return func(x *txmanager.Tx) {
		x.State, x.Sub, x.Confirmations = txmanager.Tracking, txmanager.Included, blocks
		x.Receipt = &txmanager.Receipt{TxHash: x.Hash(), BlockNumber: blocks[0].Number, BlockHash: blocks[0].Hash, Succeeded: ok}
	}
}

// pends makes the transaction one that a node has.
func pends(x *txmanager.Tx) { x.State, x.Sub = txmanager.Tracking, txmanager.Pending }

// confirmedIn is the end by a receipt with that document in the first of the blocks, with the others on top.
func confirmedIn(document string, blocks ...txmanager.Header) func(*txmanager.Tx) {
	return func(x *txmanager.Tx) {
		inBlocks(true, blocks...)(x)
		x.State, x.Sub, x.Receipt.Document = txmanager.Confirmed, "", json.RawMessage(document)
	}
}

// endAll gives everything that waits for sub a nonce, and ends it in the block by a receipt with that document.
func endAll(t *testing.T, db storetest.Bundle, sub txmanager.Submitter, document string, in txmanager.Header) {
	t.Helper()
	sendAll(t, db, sub)
	moveAll(t, db, sub, confirmedIn(document, in))
}

// liveOnce is a life with a reorg in it, to its end.
func liveOnce(t *testing.T, db storetest.Bundle) store.StoredIntent {
	t.Helper()
	db.Register(t, alice, 1)
	in := post(t, db, alice, "r-1")
	sendAll(t, db, alice)
	moveAll(t, db, alice, pends)
	moveAll(t, db, alice, inBlocks(true, block(7, 1)))
	moveAll(t, db, alice, inBlocks(true, block(7, 1), block(8, 1), block(9, 1)))
	moveAll(t, db, alice, inBlocks(true, block(7, 1), block(8, 2)))
	moveAll(t, db, alice, func(x *txmanager.Tx) { pends(x); x.Receipt, x.Confirmations = nil, nil })
	moveAll(t, db, alice, confirmedIn("", block(8, 3), block(9, 3)))
	return in
}

// lifeOf are the expected events of that lifecycle.
func lifeOf(hash string) []deliveredEvent {
	of := func(n uint64, fork byte) any {
		return map[string]any{"number": float64(n), "hash": block(n, fork).Hash.String()}
	}
	receipt := func(n uint64, fork byte) map[string]any {
		return map[string]any{"txHash": hash, "blockNumber": float64(n), "blockHash": block(n, fork).Hash.String(), "status": "succeeded"}
	}
	confirmed := func(newFork, final bool, list ...any) map[string]any {
		if list == nil {
			list = []any{}
		}
		return map[string]any{"newFork": newFork, "final": final, "confirmations": list}
	}
	return []deliveredEvent{
		{"TxAccepted", 1, "r-1", map[string]any{}},
		{"TxSubmitted", 2, "r-1", map[string]any{"txHash": hash}},
		{"TxReceiptUpdated", 3, "r-1", receipt(7, 1)},
		{"TxConfirmed", 4, "r-1", confirmed(false, false, of(7, 1))},
		{"TxConfirmed", 5, "r-1", confirmed(false, false, of(8, 1), of(9, 1))},
		{"TxConfirmed", 6, "r-1", confirmed(true, false, of(7, 1), of(8, 2))},
		{"TxReceiptUpdated", 7, "r-1", map[string]any{"txHash": nil, "blockNumber": nil, "blockHash": nil, "status": "removed"}},
		{"TxConfirmed", 8, "r-1", confirmed(true, false)},
		{"TxReceiptUpdated", 9, "r-1", receipt(8, 3)},
		{"TxConfirmed", 10, "r-1", confirmed(false, true, of(8, 3), of(9, 3))},
	}
}

// A lifecycle's events have sequences without a gap. They are stored in the commit of each
// step, or delivered to the session that made it, or neither. The sequence continues in each case.
func TestEventsOfALife(t *testing.T) {
	t.Parallel()
	for _, mode := range []store.EventMode{store.EventsKept, store.EventsLogged, store.EventsDropped} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			db, h := withEvents(t, mode)
			in := liveOnce(t, db)
			want := lifeOf(value[string](t, db, `select tx_hash from managed_tx where tx_id = $1`, in.TxID))
			var kept, delivered []deliveredEvent
			var told []txmanager.Submitter
			switch mode {
			case store.EventsKept:
				kept, told = want, slices.Repeat([]txmanager.Submitter{alice}, 7) // once for each commit
			case store.EventsLogged:
				delivered = want
			}
			check.Same(t, "events kept", read(t, page(t, db, 0, operator)), kept)
			check.Same(t, "events delivered", read(t, h.news.Events), delivered)
			check.Same(t, "told of", h.news.Of, told)
			check.Equal(t, "counter of the row", value[int](t, db, `select event_sequence from managed_tx`), len(want))
		})
	}
}

// A session whose role or database suppresses notices still gets its events.
func TestEventsReachASessionThatSuppressesNotices(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Run(t, `do $$ begin execute format('alter database %I set client_min_messages = error', current_database()); end $$`)
	h := new(heard)
	db = anotherStore(t, db, store.EventsKept, h)
	db.Register(t, alice, 1)
	post(t, db, alice, "r-1")
	check.Same(t, "told of", h.news.Of, []txmanager.Submitter{alice})
}

// Whether events are kept is settled when a transaction is accepted: by processes of
// different settings side by side all of them are, or none.
func TestEventsOfOneTransactionAreKeptTogether(t *testing.T) {
	t.Parallel()
	keeping, _ := withEvents(t, store.EventsKept)
	dropping := anotherStore(t, keeping, store.EventsDropped, new(heard))
	keeping.Register(t, alice, 2)
	with, without := post(t, keeping, alice, "with"), post(t, dropping, alice, "without")
	for _, step := range []struct {
		by storetest.Bundle
		in store.StoredIntent
	}{{dropping, with}, {keeping, without}} {
		check.OK(t)(decide(t, step.by, step.in.TxID, operator, txmanager.ActionCancel))
	}
	var got []string
	for _, e := range page(t, keeping, 0, operator) {
		got = append(got, fmt.Sprint(e.TxID, e.Sequence, e.Type))
	}
	check.Same(t, "events", got, []string{with.TxID + "1TxAccepted", with.TxID + "2TxFailed"})
}

// An event whose transaction is rolled back is neither stored nor delivered.
func TestEventsOfWhatIsRolledBack(t *testing.T) {
	t.Parallel()
	for _, mode := range []store.EventMode{store.EventsKept, store.EventsLogged} {
		db, h := withEvents(t, mode, alice)
		post(t, db, alice, "r-1")
		w := take(t, db, alice, "a/1")
		before := len(page(t, db, 0, operator))
		h.news = store.CommittedEvents{}
		stale := lease.New(w.Lease.Submitter, w.Lease.Owner, w.Lease.Token-1, time.Now(), time.Second)
		check.Err(t, "write by an old token", lease.ErrFenced)(db.Commit(t.Context(), txmanager.Commit{Lease: stale, Allocations: allocations(w, true)}))
		broken := allocations(w, true)
		broken[0].Signed.Raw = []byte{1} // no transaction: the last statement of the batch refuses
		if _, err := db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Allocations: broken}); err == nil {
			t.Fatal("bytes that are none were stored")
		}
		if after := len(page(t, db, 0, operator)); after != before || len(h.news.Of)+len(h.news.Events) > 0 {
			t.Errorf("%s: got %d events, told of %v; want %d, nothing told", mode, after, h.news, before)
		}
	}
}

// A change whose events are not counted is refused: there would be a hole.
func TestEventsAreCounted(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept, alice)
	in := post(t, db, alice, "r-1")
	for _, raise := range []int{0, 2} {
		_, err := db.DB.Exec(t.Context(), `update managed_tx set state = 'FAILED', sub_state = 'CANCELLED', event_sequence = event_sequence + $2 where tx_id = $1`, in.TxID, raise)
		check.Equal(t, fmt.Sprintf("raised by %d for one event", raise), storetest.Violated(err), "events_are_counted")
	}
}

// A reader that has read to a position misses nothing that is committed later, even if its
// outbox number is lower.
func TestEventsCommittedLateComeLater(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept, alice)
	late := db.Connect(t)
	late.Do(`set fencepost.events = 'keep'`)
	late.Do(`begin`)
	late.Do(withPayload(`insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint) values (gen_random_uuid(), $1, 'late', 'shop', sha256('x'))`), alice)
	post(t, db, alice, "early")
	first := page(t, db, 0, operator)
	if got := requestIDsOf(t, first); !slices.Equal(got, []string{"early"}) {
		t.Fatalf("before the commit: got %v, want early alone", got)
	}
	late.Do(`commit`)
	if low := value[bool](t, db, `select o.id < 2 from event_outbox o`); !low {
		t.Fatal("the late one took no lower number: the test proves nothing")
	}
	check.Same(t, "behind what was read", requestIDsOf(t, page(t, db, first[0].Position, operator)), []string{"late"})
}

func requestIDsOf(t *testing.T, all []txmanager.Event) (ids []string) {
	t.Helper()
	for _, e := range read(t, all) {
		ids = append(ids, e.RequestID)
	}
	return ids
}

// Readers continue after their last position while many sessions create and several assign
// positions. Each reader sees each event once, and each transaction's events in order.
func TestEventsUnderLoadAreSeenOnce(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	const writers, each = 6, 40
	var posting sync.WaitGroup
	for n := range writers {
		db.Register(t, numbered(n), 1)
		posting.Go(func() {
			for i := range each {
				in := intent(numbered(n), fmt.Sprint(i))
				check.Err(t, "create", nil)(db.Create(t.Context(), in, 1000))
				check.Err(t, "cancel", nil)(decide(t, db, in.TxID, operator, txmanager.ActionCancel))
			}
		})
	}
	over := make(chan struct{})
	go func() { posting.Wait(); close(over) }()
	var reading sync.WaitGroup
	for range 3 {
		reading.Go(func() {
			next, seen, last := uint64(0), map[string]int{}, false
			for !last {
				select {
				case <-over:
					last = true
				default:
				}
				for _, e := range page(t, db, next, operator) {
					if e.Position <= next || e.Sequence != seen[e.TxID]+1 {
						t.Errorf("got event %d of %s at %d, behind %d with %d seen of it", e.Sequence, e.TxID, e.Position, next, seen[e.TxID])
					}
					next, seen[e.TxID] = e.Position, e.Sequence
				}
				if t.Failed() {
					return
				}
			}
			if len(seen) != writers*each || next != 2*writers*each {
				t.Errorf("got %d transactions, the last at %d; want %d and %d", len(seen), next, writers*each, 2*writers*each)
			}
		})
	}
	reading.Wait()
}

// A caller reads its transactions' events, an operator all, also by submitter. Positions that
// were never assigned, or whose events were deleted, give distinct errors.
func TestEventsWhoSeesWhich(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept, alice, bob)
	for i, in := range []store.Intent{intent(alice, "a"), intent(bob, "b"), intent(alice, "c"), intent(alice, "d")} {
		if i == 2 {
			in.Caller, in.Names = "rival", []string{"rival", "*"}
		}
		check.OK(t)(db.Create(t.Context(), in, 10))
	}
	page(t, db, 0, operator) // gives the positions
	other := store.Viewer{Caller: "nobody"}
	for _, c := range []struct {
		v     store.Viewer
		sub   txmanager.Submitter
		after uint64
		size  int
		want  string
	}{
		{operator, "", 0, 9, "a b c d"}, {operator, alice, 0, 9, "a c d"}, {shop, "", 0, 9, "a b d"}, {shop, alice, 0, 9, "a d"},
		{other, "", 0, 9, ""}, {other, alice, 0, 9, ""}, {shop, "", 1, 1, "b"}, {shop, "", 4, 9, ""}, {operator, "", 2, 1, "c"},
	} {
		got, _, err := db.EventLog.Events(t.Context(), eventlog.EventQuery{After: &c.after, Submitter: c.sub, Size: c.size}, c.v)
		if text := strings.Join(requestIDsOf(t, got), " "); err != nil || text != c.want {
			t.Errorf("%+v: got %q, %v; want %q", c, text, err, c.want)
		}
	}
	check.Err(t, "a position that was never given", store.ErrCursor)(db.EventLog.Events(t.Context(), eventlog.EventQuery{After: new(uint64(5)), Size: 9}, operator))
	check.OK(t)(db.DB.Exec(t.Context(), `alter table event disable trigger guard_events`))
	db.Run(t, `update event set at = clock_timestamp() - interval '2 hours' where position <= 2`)
	check.Equal(t, "forgotten", check.Value(db.EventLog.ForgetEvents(t.Context(), nil, time.Hour, 100))(t), 2)
	check.Err(t, "behind what is kept", eventlog.EventsDeletedError{Oldest: 2})(db.EventLog.Events(t.Context(), eventlog.EventQuery{After: new(uint64(1)), Size: 9}, operator))
	if got, _, err := db.EventLog.Events(t.Context(), eventlog.EventQuery{Size: 9}, operator); err != nil || len(got) != 2 {
		t.Errorf("from the oldest on: got %d, %v; want 2", len(got), err)
	}
}

// A reader without new events can continue after all others' events were deleted: it has
// missed none.
func TestEventsAreReadOnBehindThoseOfOthers(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept, alice)
	quiet := store.Viewer{Caller: "quiet"}
	postAll(t, db, alice, "1", "2", "3", "4")
	page(t, db, 0, operator) // gives the positions
	if _, next, err := db.EventLog.Events(t.Context(), eventlog.EventQuery{Size: 2}, operator); next != 2 || err != nil {
		t.Errorf("behind a full page: got %d, %v; want 2", next, err)
	}
	got, next, err := db.EventLog.Events(t.Context(), eventlog.EventQuery{Size: 2}, quiet)
	if len(got) != 0 || next != 4 || err != nil {
		t.Errorf("with no events of its own: got %d, on behind %d, %v; want none, behind 4", len(got), next, err)
	}
	check.Equal(t, "forgotten", check.Value(db.EventLog.ForgetEvents(t.Context(), nil, -time.Hour, 100))(t), 4)
	if got, _, err := db.EventLog.Events(t.Context(), eventlog.EventQuery{After: &next, Size: 2}, quiet); len(got) != 0 || err != nil {
		t.Errorf("once those of others are forgotten: got %d, %v; want none, and no error", len(got), err)
	}
}

// A reader gets all events, or an error if some were deleted while it read.
func TestEventsForgottenWhileRead(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept, alice)
	const all = 60
	postMany(t, db, alice, all)
	page(t, db, 0, operator) // gives the positions
	var forgetting sync.WaitGroup
	forgetting.Go(func() {
		for range all {
			check.Err(t, "forget", nil)(db.EventLog.ForgetEvents(t.Context(), nil, -time.Hour, 1))
		}
	})
	for after := uint64(0); after < all && !t.Failed(); {
		got, _, err := db.EventLog.Events(t.Context(), eventlog.EventQuery{After: &after, Size: 10}, operator)
		var forgotten eventlog.EventsDeletedError
		switch {
		case errors.As(err, &forgotten):
			after = forgotten.Oldest
		case err != nil:
			t.Fatal(err)
		case got[0].Position != after+1:
			t.Errorf("behind %d: got %d next, without a word", after, got[0].Position)
		}
	}
	forgetting.Wait()
}

// An event without a position waits since it was made. The sweep that assigns positions finds
// it and reports its age.
func TestEventsWaitSinceTheyWereMade(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept, alice)
	post(t, db, alice, "lost")
	db.Run(t, `update event_outbox set body = jsonb_set(body::jsonb, '{timestamp}', to_jsonb(clock_timestamp() - interval '9 minutes'))::json`)
	post(t, db, alice, "new")
	check.OK(t)(db.EventLog.NumberEvents(t.Context(), []string{"hook"}))
	if found, _, err := db.EventLog.OverdueStreams(t.Context(), []string{"hook"}, time.Minute, 10); len(found) != 1 || err != nil {
		t.Errorf("overdue: got %v, %v; want its stream", found, err)
	}
	if left, err := db.EventLog.EventBacklogs(t.Context(), []string{"hook"}); err != nil || left[0].Oldest < 9*time.Minute {
		t.Errorf("backlog: got %+v, %v; want it nine minutes old", left, err)
	}
}

// An event whose time lies in the future, because the clock was set back, has waited 0
// seconds.
func TestBacklogsAreNotNegativeAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept, alice)
	later := `clock_timestamp() + interval '9 minutes'`
	post(t, db, alice, "held")
	db.Run(t, `update managed_tx set held = true, updated_at = `+later)
	post(t, db, alice, "bound")
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, false)})
	db.Run(t, `update managed_tx set updated_at = `+later+` where open`)
	db.Run(t, `update event_outbox set body = jsonb_set(body::jsonb, '{timestamp}', to_jsonb(`+later+`))::json`)
	check.OK(t)(db.EventLog.NumberEvents(t.Context(), []string{"hook"}))
	if left, err := db.EventLog.EventBacklogs(t.Context(), []string{"hook"}); err != nil || left[0].Streams != 1 || left[0].Oldest != 0 {
		t.Errorf("events: got %+v, %v; want one that waits for 0", left, err)
	}
	if b, err := db.Backlog(t.Context()); err != nil || b.Held != 1 || b.HeldLongest != 0 || b.OldestHeld != 0 {
		t.Errorf("intents: got %+v, %v; want one that is held for 0, and a nonce for 0", b, err)
	}
}

// Positions of a database that was restored are never those that its predecessor gave,
// and until it is accepted it gives none.
func TestEventsOfARestoredDatabase(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept, alice)
	post(t, db, alice, "before")
	check.Equal(t, "first position", page(t, db, 0, operator)[0].Position, 1)
	post(t, db, alice, "unseen")
	db.Run(t, `update database_identity set timeline_id = timeline_id + 1`)
	check.Equal(t, "events in a database that nobody has accepted", len(page(t, db, 1, operator)), 0)
	db.Run(t, `update database_identity set timeline_id = current_timeline(), epoch = '0badcafe'`)
	if got := page(t, db, 1, operator); len(got) != 1 || got[0].Position <= 1_000_000_000 {
		t.Errorf("once it is accepted: got %+v, want one far above", got)
	}
}

// One lease holder at a time delivers a queue, under its token. The store keeps its outcomes
// and refuses those of a former holder.
func TestStreamsAreFenced(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept, alice)
	check.Equal(t, "there before anything happened", mustStream(t, db, "a/1").There, false)
	postAll(t, db, alice, "1", "2", "3")
	page(t, db, 0, operator)
	old := mustStream(t, db, "a/1")
	if !old.Held || old.Token != 1 || len(old.Page.Events) != 3 || old.Page.To != 3 {
		t.Fatalf("first: got %+v, want it held with all three", old)
	}
	if met := mustStream(t, db, "b/1"); met.Held || met.Token != 1 || !met.FreeAt.After(met.ExpiresAt) {
		t.Errorf("held by another: got %+v, want it marked", met)
	}
	check.Equal(t, "released with the mark set", check.Value(db.EventLog.ReleaseDeliveryQueue(t.Context(), old.Lease, "hook", false))(t), false)
	settled := check.Value(db.EventLog.Settle(t.Context(), old.Lease, "hook", events.Outcome{To: 2}))(t)
	check.Equal(t, "left after a settlement", len(settled.Page.Events), 1)
	if again := mustStream(t, db, "a/1"); !again.Held || again.Token != 2 || len(again.Page.Events) != 1 {
		t.Errorf("gone round: got %+v, want the next token", again)
	}
	check.Err(t, "settle by the old token", lease.ErrFenced)(db.EventLog.Settle(t.Context(), old.Lease, "hook", events.Outcome{To: 3}))
	check.Equal(t, "delivered", value[int](t, db, `select delivered from event_delivery_queue`), 2)
}

func mustStream(t *testing.T, db storetest.Bundle, owner string) events.AcquireResult {
	t.Helper()
	return check.Value(db.EventLog.AcquireDeliveryQueue(t.Context(), alice, "hook", owner))(t)
}

// The sweep finds the delivery queues that wait without a lease holder. Of an endpoint that
// gives no answer it finds one queue, once it may be tried. It reports how many events wait
// and for how long.
func TestOverdueStreams(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	hooks := []string{"hook", "mute"}
	for n := range 3 {
		db.Register(t, numbered(n), 1)
		post(t, db, numbered(n), "r")
	}
	check.OK(t)(db.EventLog.NumberEvents(t.Context(), hooks))
	overdue := func(grace time.Duration) (of map[string]int) {
		t.Helper()
		found, _, err := db.EventLog.OverdueStreams(t.Context(), hooks, grace, 10)
		check.OK(t)(err)
		of = map[string]int{}
		for _, s := range found {
			of[s.Endpoint]++
		}
		return of
	}
	check.Same(t, "within the grace", overdue(time.Hour), map[string]int{})
	check.Same(t, "all", overdue(0), map[string]int{"hook": 3, "mute": 3})
	taken := check.Value(db.EventLog.AcquireDeliveryQueue(t.Context(), numbered(0), "hook", "a/1"))(t)
	check.Same(t, "one is held", overdue(0), map[string]int{"hook": 2, "mute": 3})
	check.OK(t)(db.EventLog.Settle(t.Context(), taken.Lease, "hook", events.Outcome{To: taken.Page.To}))
	check.OK(t)(db.EventLog.ReleaseDeliveryQueue(t.Context(), taken.Lease, "hook", false))
	check.Same(t, "and told", overdue(0), map[string]int{"hook": 2, "mute": 3})
	taken = check.Value(db.EventLog.AcquireDeliveryQueue(t.Context(), numbered(0), "mute", "a/1"))(t)
	for n := range events.SilentFrom {
		check.OK(t)(db.EventLog.Settle(t.Context(), taken.Lease, "mute", events.Outcome{Failures: n + 1, Error: "no answer", Silent: true, Wait: time.Hour}))
	}
	check.Same(t, "one is silent", overdue(0), map[string]int{"hook": 2})
	for endpoint, want := range map[string]bool{"hook": true, "mute": false} {
		check.Equal(t, "may it be asked: "+endpoint, check.Value(db.EventLog.MayDeliver(t.Context(), endpoint))(t), want)
	}
	db.Run(t, `update event_endpoint set next_attempt_at = clock_timestamp()`)
	check.Same(t, "its time has come", overdue(0), map[string]int{"hook": 2, "mute": 1})
	for _, want := range []bool{true, false} { // one at a time
		check.Equal(t, "may it be asked now", check.Value(db.EventLog.MayDeliver(t.Context(), "mute"))(t), want)
	}
	db.Run(t, `update event_endpoint set paused_at = clock_timestamp() - interval '1 hour', paused_by = 'ann', pause_reason = 'a test' where endpoint = 'mute'`)
	waiting := check.Value(db.EventLog.EventBacklogs(t.Context(), hooks))(t)
	check.Equal(t, "endpoints with a backlog", len(waiting), 2)
	for _, b := range waiting {
		if want := map[string]int{"hook": 2, "mute": 3}[b.Endpoint]; b.Streams != want || b.Oldest <= 0 {
			t.Errorf("backlog: got %+v, want %d streams", b, want)
		}
		check.Equal(t, "paused: "+b.Endpoint, b.Paused.Round(time.Minute), map[string]time.Duration{"mute": time.Hour}[b.Endpoint])
	}
}

// A database's clock that was set back leaves the times of streams ahead of it. The sweep
// finds them at once: an event of the future, a plan further ahead than any is made, a lease
// longer than any is taken for. A plan that is as far ahead as it was made is waited for.
func TestAClockSetBackSilencesNoStream(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, numbered(0), 1)
	post(t, db, numbered(0), "r")
	check.OK(t)(db.EventLog.NumberEvents(t.Context(), []string{"hook"}))
	const fresh = `update event_delivery_queue set oldest_at = clock_timestamp() - interval '1 hour', next_attempt_at = clock_timestamp() - interval '1 hour',
		failures = 0, owner_node = '', expires_at = clock_timestamp() - interval '1 hour'`
	for name, c := range map[string]struct {
		change string
		want   int
	}{
		"nothing":                             {`select 1`, 1},
		"an event of the future":              {`update event_delivery_queue set oldest_at = clock_timestamp() + interval '1 hour'`, 1},
		"an event within the grace":           {`update event_delivery_queue set oldest_at = clock_timestamp() - interval '1 minute'`, 0},
		"told of last in the future":          {`update event_delivery_queue set next_attempt_at = clock_timestamp() + interval '5 minutes'`, 1},
		"a plan within its wait":              {`update event_delivery_queue set failures = 10, next_attempt_at = clock_timestamp() + interval '5 minutes'`, 0},
		"a plan beyond its wait":              {`update event_delivery_queue set failures = 3, next_attempt_at = clock_timestamp() + interval '5 minutes'`, 1},
		"a plan beyond the longest wait":      {`update event_delivery_queue set failures = 1000000, next_attempt_at = clock_timestamp() + interval '11 minutes'`, 1},
		"a lease":                             {`update event_delivery_queue set owner_node = 'a/1', expires_at = clock_timestamp() + interval '1 second'`, 0},
		"a lease longer than any":             {`update event_delivery_queue set owner_node = 'a/1', expires_at = clock_timestamp() + interval '1 hour'`, 1},
		"an endpoint that is silent":          {`insert into event_endpoint values ('hook', 1000, clock_timestamp() + interval '9 minutes')`, 0},
		"an endpoint, silent from the future": {`insert into event_endpoint values ('hook', 1000, clock_timestamp() + interval '1 hour')`, 1},
	} {
		db.Run(t, fresh)
		check.OK(t)(db.DB.Exec(t.Context(), `delete from event_endpoint`))
		db.Run(t, c.change)
		found, _, err := db.EventLog.OverdueStreams(t.Context(), []string{"hook"}, 10*time.Minute, 10)
		if len(found) != c.want || err != nil {
			t.Errorf("%s: got %d streams, %v; want %d", name, len(found), err, c.want)
		}
		// An endpoint whose queue the sweep finds may be tried; otherwise the task would be
		// useless.
		check.Equal(t, fmt.Sprintf("%s: may it be asked", name), check.Value(db.EventLog.MayDeliver(t.Context(), "hook"))(t), name != "an endpoint that is silent")
	}
}
