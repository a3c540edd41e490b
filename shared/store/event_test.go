package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
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

// liveOnce is a life with a reorg in it, to its end.
func liveOnce(t *testing.T, db storetest.Bundle) store.StoredIntent {
	t.Helper()
	db.Register(t, alice, 1)
	in := post(t, db, alice, "r-1")
	sendAll(t, db, alice)
	moveAll(t, db, alice, func(x *txmanager.Tx) { x.State, x.Sub = txmanager.Tracking, txmanager.Pending })
	moveAll(t, db, alice, inBlocks(true, block(7, 1)))
	moveAll(t, db, alice, inBlocks(true, block(7, 1), block(8, 1), block(9, 1)))
	moveAll(t, db, alice, inBlocks(true, block(7, 1), block(8, 2)))
	moveAll(t, db, alice, func(x *txmanager.Tx) {
		x.State, x.Sub, x.Receipt, x.Confirmations = txmanager.Tracking, txmanager.Pending, nil, nil
	})
	moveAll(t, db, alice, func(x *txmanager.Tx) {
		inBlocks(true, block(8, 3), block(9, 3))(x)
		x.State, x.Sub = txmanager.Confirmed, ""
	})
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
	late := connect(t, db)
	late.do(`set fencepost.events = 'keep'`)
	late.do(`begin`)
	late.do(withPayload(`insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint) values (gen_random_uuid(), $1, 'late', 'shop', sha256('x'))`), alice)
	post(t, db, alice, "early")
	first := page(t, db, 0, operator)
	if got := requestIDsOf(t, first); !slices.Equal(got, []string{"early"}) {
		t.Fatalf("before the commit: got %v, want early alone", got)
	}
	late.do(`commit`)
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
