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

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// What the tables of events refuse, beside that of the other tables.
func init() {
	const (
		intoEvent  = `insert into event (position, tx_id, sequence, type, submitter, caller, body) values `
		anEvent    = intoEvent + `(1, $queued, 1, 'TxAccepted', $alice, 'shop', '{}')`
		intoStream = `insert into event_stream (submitter, receiver, delivered, last) values ($alice, 'hook', `
	)
	for name, r := range map[string]refusal{
		"event_pkey":                    {anEvent, intoEvent + `(1, $queued, 2, 'TxFailed', $alice, 'shop', '{}')`},
		"one_event_each":                {anEvent, intoEvent + `(2, $queued, 1, 'TxFailed', $alice, 'shop', '{}')`},
		"event_outbox_pkey":             {`insert into event_outbox (tx_id, sequence, type, submitter, caller, body) values ($queued, 1, 'TxAccepted', $alice, 'shop', '{}')`, `insert into event_outbox overriding system value select * from event_outbox`},
		"event_counter_pkey":            {"", `insert into event_counter (epoch) values ('x')`},
		"event_counter_singleton_check": {"", `insert into event_counter (singleton, epoch) values (false, 'x')`},
		"event_stream_pkey":             {intoStream + `0, 0)`, intoStream + `0, 0)`},
		"delivered_is_there":            {"", intoStream + `1, 0)`},
		"event_receiver_pkey":           {`insert into event_receiver values ('hook', 1, now())`, `insert into event_receiver values ('hook', 1, now())`},
	} {
		furtherNonsense[name] = []refusal{r}
	}
	guarded["keep_events"] = []duty{{"event", anEvent, `update event set type = 'TxFailed'`, byGuard}}
	guarded["make_events"] = []duty{{"managed_tx", `update managed_tx set events_kept = true where tx_id = $queued`, isFinal, "events_are_counted"}}
}

// heard is what the store has told of events.
type heard struct {
	mu   sync.Mutex
	news store.EventNews
}

func (h *heard) tell(_ context.Context, news store.EventNews) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.news.Of, h.news.Events = append(h.news.Of, news.Of...), append(h.news.Events, news.Events...)
}

// withEvents is a database whose store has that done with events.
func withEvents(t *testing.T, mode store.EventMode) (storetest.Bundle, *heard) {
	t.Helper()
	db, h := storetest.New(t), new(heard)
	return anotherStore(t, db, mode, h), h
}

func anotherStore(t *testing.T, db storetest.Bundle, mode store.EventMode, h *heard) storetest.Bundle {
	t.Helper()
	o := storetest.Options(db.URL, storetest.Rules)
	o.Events, o.OnEvents = mode, h.tell
	s, err := store.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	db.Store = s
	return db
}

// told is an event as a receiver has it.
type told struct {
	Type      string
	Sequence  int
	RequestID string
	Data      map[string]any
}

func read(t *testing.T, all []nonce.Event) (out []told) {
	t.Helper()
	for _, e := range all {
		var one told
		if err := json.Unmarshal(e.Body, &one); err != nil {
			t.Fatalf("%s: %v", e.Body, err)
		}
		if one.Type != string(e.Type) || one.Sequence != e.Sequence {
			t.Errorf("event: got %s %d beside the body %s", e.Type, e.Sequence, e.Body)
		}
		out = append(out, one)
	}
	return out
}

// page is what v sees behind a position.
func page(t *testing.T, db storetest.Bundle, after uint64, v store.Viewer) []nonce.Event {
	t.Helper()
	if err := db.NumberEvents(t.Context(), []string{"hook"}); err != nil {
		t.Fatal(err)
	}
	all, _, err := db.Events(t.Context(), store.EventQuery{After: &after, Size: 500}, v)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func postEvent(t *testing.T, db storetest.Bundle, sub nonce.Submitter, request string) store.Intent {
	t.Helper()
	in := intent(sub, request)
	if _, err := db.Create(t.Context(), in, 10_000); err != nil {
		t.Fatal(err)
	}
	return in
}

// block is a block of the chain, or of its fork.
func block(n uint64, fork byte) nonce.Header {
	return nonce.Header{Number: n, Hash: nonce.Hash{fork, byte(n)}}
}

// becomes moves the only unsettled transaction.
func becomes(t *testing.T, db storetest.Bundle, change func(*nonce.Tx)) {
	t.Helper()
	w := take(t, db, alice, "a/1")
	x := w.Unsettled[0]
	from := x.State
	change(&x)
	write(t, db, nonce.Write{Lease: w.Lease, Moves: []nonce.Move{{From: from, To: x}}, Release: nonce.GiveBack})
}

// inBlocks is a receipt in the first of the blocks, with the others on top.
func inBlocks(ok bool, blocks ...nonce.Header) func(*nonce.Tx) {
	return func(x *nonce.Tx) {
		x.State, x.Sub, x.Confirmations = nonce.Tracking, nonce.Included, blocks
		x.Receipt = &nonce.Receipt{TxHash: x.Hash(), BlockNumber: blocks[0].Number, BlockHash: blocks[0].Hash, Succeeded: ok}
	}
}

// liveOnce is a life with a reorg in it, to its end.
func liveOnce(t *testing.T, db storetest.Bundle) store.Intent {
	t.Helper()
	db.Register(t, alice, 1)
	in := postEvent(t, db, alice, "r-1")
	w := take(t, db, alice, "a/1")
	write(t, db, nonce.Write{Lease: w.Lease, Allocate: allocations(w, true), Release: nonce.GiveBack})
	becomes(t, db, func(x *nonce.Tx) { x.State, x.Sub = nonce.Tracking, nonce.Pending })
	becomes(t, db, inBlocks(true, block(7, 1)))
	becomes(t, db, inBlocks(true, block(7, 1), block(8, 1), block(9, 1)))
	becomes(t, db, inBlocks(true, block(7, 1), block(8, 2)))
	becomes(t, db, func(x *nonce.Tx) {
		x.State, x.Sub, x.Receipt, x.Confirmations = nonce.Tracking, nonce.Pending, nil, nil
	})
	becomes(t, db, func(x *nonce.Tx) {
		inBlocks(true, block(8, 3), block(9, 3))(x)
		x.State, x.Sub = nonce.Confirmed, ""
	})
	return in
}

// lifeOf is what is told of that life.
func lifeOf(hash string) []told {
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
	return []told{
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

// A life is told step by step, numbered without a hole: kept in the commit of each step,
// or to who made it.
func TestEventsOfALife(t *testing.T) {
	t.Parallel()
	for _, mode := range []store.EventMode{store.EventsKept, store.EventsLogged} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			db, h := withEvents(t, mode)
			in := liveOnce(t, db)
			want := lifeOf(value[string](t, db, `select tx_hash from managed_tx where tx_id = $1`, in.TxID))
			kept := page(t, db, 0, operator)
			if mode == store.EventsLogged {
				if len(kept) > 0 {
					t.Errorf("events kept: got %d, want none", len(kept))
				}
				kept = h.news.Events
			} else if got := len(h.news.Of); got != 7 || h.news.Of[0] != alice || len(h.news.Events) > 0 {
				t.Errorf("told of: got %d submitters, %d events; want alice by each of 7 commits", got, len(h.news.Events))
			}
			if diff := cmp.Diff(want, read(t, kept)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if got := value[int](t, db, `select event_sequence from managed_tx`); got != len(want) {
				t.Errorf("counter of the row: got %d, want %d", got, len(want))
			}
		})
	}
}

// A role or database that is told of no notices hears of events all the same.
func TestEventsAreToldToASessionThatWantsNoNotices(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	run(t, db, `do $$ begin execute format('alter database %I set client_min_messages = error', current_database()); end $$`)
	h := new(heard)
	db = anotherStore(t, db, store.EventsKept, h)
	db.Register(t, alice, 1)
	postEvent(t, db, alice, "r-1")
	if !slices.Equal(h.news.Of, []nonce.Submitter{alice}) {
		t.Errorf("told of: got %v, want alice", h.news.Of)
	}
}

// With events off nothing is kept or told, and the sequence goes on all the same.
func TestEventsOff(t *testing.T) {
	t.Parallel()
	db, h := withEvents(t, store.EventsDropped)
	liveOnce(t, db)
	if n := len(page(t, db, 0, operator)); n > 0 || len(h.news.Of)+len(h.news.Events) > 0 {
		t.Errorf("got %d events kept, and told of %v; want none", n, h.news)
	}
	if got := value[int](t, db, `select event_sequence from managed_tx`); got != 10 {
		t.Errorf("counter of the row: got %d, want 10", got)
	}
}

// Whether events are kept is settled when a transaction is accepted: by processes of
// different settings side by side all of them are, or none.
func TestEventsOfOneTransactionAreKeptTogether(t *testing.T) {
	t.Parallel()
	keeping, _ := withEvents(t, store.EventsKept)
	dropping := anotherStore(t, keeping, store.EventsDropped, new(heard))
	keeping.Register(t, alice, 2)
	with, without := postEvent(t, keeping, alice, "with"), postEvent(t, dropping, alice, "without")
	for _, step := range []struct {
		by storetest.Bundle
		in store.Intent
	}{{dropping, with}, {keeping, without}} {
		d := store.Decision{TxID: step.in.TxID, By: operator, Action: nonce.OrderCancel, Reason: "x"}
		if _, err := step.by.Decide(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, e := range page(t, keeping, 0, operator) {
		got = append(got, fmt.Sprint(e.TxID, e.Sequence, e.Type))
	}
	if want := []string{with.TxID + "1TxAccepted", with.TxID + "2TxFailed"}; !slices.Equal(got, want) {
		t.Errorf("events: got %v, want %v", got, want)
	}
}

// What is rolled back was never so: it is not kept, and nobody is told.
func TestEventsOfWhatIsRolledBack(t *testing.T) {
	t.Parallel()
	for _, mode := range []store.EventMode{store.EventsKept, store.EventsLogged} {
		db, h := withEvents(t, mode)
		db.Register(t, alice, 1)
		postEvent(t, db, alice, "r-1")
		w := take(t, db, alice, "a/1")
		before := len(page(t, db, 0, operator))
		h.news = store.EventNews{}
		stale := lease.New(w.Lease.Submitter, w.Lease.Owner, w.Lease.Token-1, time.Now(), time.Second)
		if _, err := db.Write(t.Context(), nonce.Write{Lease: stale, Allocate: allocations(w, true)}); !errors.Is(err, lease.ErrFenced) {
			t.Fatalf("write by an old token: got %v, want ErrFenced", err)
		}
		broken := allocations(w, true)
		broken[0].Signed.Raw = []byte{1} // no transaction: the last statement of the batch refuses
		if _, err := db.Write(t.Context(), nonce.Write{Lease: w.Lease, Allocate: broken}); err == nil {
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
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, alice, 1)
	in := postEvent(t, db, alice, "r-1")
	for _, raise := range []int{0, 2} {
		_, err := db.DB.Exec(t.Context(), `update managed_tx set state = 'FAILED', sub_state = 'CANCELLED', event_sequence = event_sequence + $2 where tx_id = $1`, in.TxID, raise)
		if got := violated(err); got != "events_are_counted" {
			t.Errorf("raised by %d for one event: got refused by %s, want by events_are_counted", raise, got)
		}
	}
}

// Who has read to a position misses nothing that is committed later, though the number
// it took from the outbox is lower.
func TestEventsCommittedLateComeLater(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, alice, 1)
	late := connect(t, db)
	late.do(`set fencepost.events = 'keep'`)
	late.do(`begin`)
	late.do(`insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint) values (gen_random_uuid(), $1, 'late', 'shop', sha256('x'))`, alice)
	postEvent(t, db, alice, "early")
	first := page(t, db, 0, operator)
	if got := toldOf(t, first); !slices.Equal(got, []string{"early"}) {
		t.Fatalf("before the commit: got %v, want early alone", got)
	}
	late.do(`commit`)
	if low := value[bool](t, db, `select o.id < 2 from event_outbox o`); !low {
		t.Fatal("the late one took no lower number: the test proves nothing")
	}
	if got := toldOf(t, page(t, db, first[0].Position, operator)); !slices.Equal(got, []string{"late"}) {
		t.Errorf("behind what was read: got %v, want late", got)
	}
}

func toldOf(t *testing.T, all []nonce.Event) (ids []string) {
	t.Helper()
	for _, e := range read(t, all) {
		ids = append(ids, e.RequestID)
	}
	return ids
}

// Readers go on behind what they have seen, while many create and several give
// positions at once: each event is seen once, each transaction's in order.
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
				if _, err := db.Create(t.Context(), in, 1000); err != nil {
					t.Error(err)
				}
				if _, err := db.Decide(t.Context(), store.Decision{TxID: in.TxID, By: operator, Action: nonce.OrderCancel, Reason: "x"}); err != nil {
					t.Error(err)
				}
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

// A caller sees the events of its own transactions, an operator all, each by submitter
// too; and positions that were never given, or are forgotten, are told from others.
func TestEventsWhoSeesWhich(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, alice, 1)
	db.Register(t, bob, 1)
	for i, in := range []store.Intent{intent(alice, "a"), intent(bob, "b"), intent(alice, "c"), intent(alice, "d")} {
		if i == 2 {
			in.Caller = "rival"
		}
		if _, err := db.Create(t.Context(), in, 10); err != nil {
			t.Fatal(err)
		}
	}
	page(t, db, 0, operator) // gives the positions
	shop, other := store.Viewer{Caller: "shop"}, store.Viewer{Caller: "nobody"}
	for _, c := range []struct {
		v     store.Viewer
		sub   nonce.Submitter
		after uint64
		size  int
		want  string
	}{
		{operator, "", 0, 9, "a b c d"}, {operator, alice, 0, 9, "a c d"}, {shop, "", 0, 9, "a b d"}, {shop, alice, 0, 9, "a d"},
		{other, "", 0, 9, ""}, {other, alice, 0, 9, ""}, {shop, "", 1, 1, "b"}, {shop, "", 4, 9, ""}, {operator, "", 2, 1, "c"},
	} {
		got, _, err := db.Events(t.Context(), store.EventQuery{After: &c.after, Submitter: c.sub, Size: c.size}, c.v)
		if text := strings.Join(toldOf(t, got), " "); err != nil || text != c.want {
			t.Errorf("%+v: got %q, %v; want %q", c, text, err, c.want)
		}
	}
	if _, _, err := db.Events(t.Context(), store.EventQuery{After: new(uint64(5)), Size: 9}, operator); !errors.Is(err, store.ErrCursor) {
		t.Errorf("a position that was never given: got %v, want ErrCursor", err)
	}
	if _, err := db.DB.Exec(t.Context(), `alter table event disable trigger keep_events`); err != nil {
		t.Fatal(err)
	}
	run(t, db, `update event set at = clock_timestamp() - interval '2 hours' where position <= 2`)
	if n, err := db.ForgetEvents(t.Context(), time.Hour, 100); n != 2 || err != nil {
		t.Fatalf("forget: got %d, %v; want 2", n, err)
	}
	var forgotten store.ErrForgotten
	if _, _, err := db.Events(t.Context(), store.EventQuery{After: new(uint64(1)), Size: 9}, operator); !errors.As(err, &forgotten) || forgotten.Oldest != 2 {
		t.Errorf("behind what is kept: got %v, want that it is from 2 on", err)
	}
	if got, _, err := db.Events(t.Context(), store.EventQuery{Size: 9}, operator); err != nil || len(got) != 2 {
		t.Errorf("from the oldest on: got %d, %v; want 2", len(got), err)
	}
}

// Who goes on behind what it was shown goes on though it has no events for long, and
// all others' are forgotten: it has missed none.
func TestEventsAreReadOnBehindThoseOfOthers(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, alice, 1)
	quiet := store.Viewer{Caller: "quiet"}
	for i := range 4 {
		postEvent(t, db, alice, fmt.Sprint(i))
	}
	page(t, db, 0, operator) // gives the positions
	if _, next, err := db.Events(t.Context(), store.EventQuery{Size: 2}, operator); next != 2 || err != nil {
		t.Errorf("behind a full page: got %d, %v; want 2", next, err)
	}
	got, next, err := db.Events(t.Context(), store.EventQuery{Size: 2}, quiet)
	if len(got) != 0 || next != 4 || err != nil {
		t.Errorf("with no events of its own: got %d, on behind %d, %v; want none, behind 4", len(got), next, err)
	}
	if n, err := db.ForgetEvents(t.Context(), -time.Hour, 100); n != 4 || err != nil {
		t.Fatalf("forget: got %d, %v; want 4", n, err)
	}
	if got, _, err := db.Events(t.Context(), store.EventQuery{After: &next, Size: 2}, quiet); len(got) != 0 || err != nil {
		t.Errorf("once those of others are forgotten: got %d, %v; want none, and no error", len(got), err)
	}
}

// What is forgotten while somebody reads is no hole in what it reads: it gets all, or
// is told so.
func TestEventsForgottenWhileRead(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, alice, 1)
	const all = 60
	for i := range all {
		postEvent(t, db, alice, fmt.Sprint(i))
	}
	page(t, db, 0, operator) // gives the positions
	var forgetting sync.WaitGroup
	forgetting.Go(func() {
		for range all {
			if _, err := db.ForgetEvents(t.Context(), -time.Hour, 1); err != nil {
				t.Error(err)
			}
		}
	})
	for after := uint64(0); after < all && !t.Failed(); {
		got, _, err := db.Events(t.Context(), store.EventQuery{After: &after, Size: 10}, operator)
		var forgotten store.ErrForgotten
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

// What waits waits since it was made, though nobody gave it a position: the sweep that
// does so finds it, and says for how long.
func TestEventsWaitSinceTheyWereMade(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, alice, 1)
	postEvent(t, db, alice, "lost")
	run(t, db, `update event_outbox set body = jsonb_set(body::jsonb, '{timestamp}', to_jsonb(clock_timestamp() - interval '9 minutes'))::json`)
	postEvent(t, db, alice, "new")
	if err := db.NumberEvents(t.Context(), []string{"hook"}); err != nil {
		t.Fatal(err)
	}
	if found, _, err := db.OverdueStreams(t.Context(), []string{"hook"}, time.Minute, 10); len(found) != 1 || err != nil {
		t.Errorf("overdue: got %v, %v; want its stream", found, err)
	}
	if left, err := db.EventBacklogs(t.Context(), []string{"hook"}); err != nil || left[0].Oldest < 9*time.Minute {
		t.Errorf("backlog: got %+v, %v; want it nine minutes old", left, err)
	}
}

// Positions of a database that was restored are never those that its predecessor gave,
// and until it is accepted it gives none.
func TestEventsOfARestoredDatabase(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, alice, 1)
	postEvent(t, db, alice, "before")
	if got := page(t, db, 0, operator); got[0].Position != 1 {
		t.Fatalf("first position: got %d, want 1", got[0].Position)
	}
	postEvent(t, db, alice, "unseen")
	run(t, db, `update authority set timeline_id = timeline_id + 1`)
	if got := page(t, db, 1, operator); len(got) != 0 {
		t.Errorf("in a database that nobody has accepted: got %d events, want none", len(got))
	}
	run(t, db, `update authority set timeline_id = current_timeline(), epoch = '0badcafe'`)
	if got := page(t, db, 1, operator); len(got) != 1 || got[0].Position <= 1_000_000_000 {
		t.Errorf("once it is accepted: got %+v, want one far above", got)
	}
}

// A stream is told by one at a time, under its token; what was taken is on record, and
// nothing that a former holder says.
func TestStreamsAreFenced(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, alice, 1)
	if got, err := db.TakeStream(t.Context(), alice, "hook", "a/1"); err != nil || got.There {
		t.Fatalf("before anything happened: got there %t, %v; want not", got.There, err)
	}
	for _, r := range []string{"1", "2", "3"} {
		postEvent(t, db, alice, r)
	}
	page(t, db, 0, operator)
	old := mustStream(t, db, "a/1")
	if !old.Held || old.Token != 1 || len(old.Page.Events) != 3 || old.Page.To != 3 {
		t.Fatalf("first: got %+v, want it held with all three", old)
	}
	if met := mustStream(t, db, "b/1"); met.Held || met.Token != 1 || !met.FreeAt.After(met.ExpiresAt) {
		t.Errorf("held by another: got %+v, want it marked", met)
	}
	if released, err := db.ReleaseStream(t.Context(), old.Lease, "hook", false); released || err != nil {
		t.Errorf("release with the mark set: got %t, %v; want not", released, err)
	}
	settled, err := db.Settle(t.Context(), old.Lease, "hook", events.Outcome{To: 2})
	if err != nil || len(settled.Page.Events) != 1 {
		t.Fatalf("settle: got %d left, %v; want 1", len(settled.Page.Events), err)
	}
	if again := mustStream(t, db, "a/1"); !again.Held || again.Token != 2 || len(again.Page.Events) != 1 {
		t.Errorf("gone round: got %+v, want the next token", again)
	}
	if _, err := db.Settle(t.Context(), old.Lease, "hook", events.Outcome{To: 3}); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("settle by the old token: got %v, want ErrFenced", err)
	}
	if got := value[int](t, db, `select delivered from event_stream`); got != 2 {
		t.Errorf("delivered: got %d, want 2", got)
	}
}

func mustStream(t *testing.T, db storetest.Bundle, owner string) events.Taken {
	t.Helper()
	got, err := db.TakeStream(t.Context(), alice, "hook", owner)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// The sweep finds what waits and nobody is at; of a receiver that gives no answer one
// stream, once it may be asked; and it tells how much waits, and for how long.
func TestOverdueStreams(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	hooks := []string{"hook", "mute"}
	for n := range 3 {
		db.Register(t, numbered(n), 1)
		postEvent(t, db, numbered(n), "r")
	}
	if err := db.NumberEvents(t.Context(), hooks); err != nil {
		t.Fatal(err)
	}
	overdue := func(grace time.Duration) (of map[string]int) {
		t.Helper()
		found, _, err := db.OverdueStreams(t.Context(), hooks, grace, 10)
		if err != nil {
			t.Fatal(err)
		}
		of = map[string]int{}
		for _, s := range found {
			of[s.Receiver]++
		}
		return of
	}
	want := func(what string, got, want map[string]int) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	want("within the grace", overdue(time.Hour), map[string]int{})
	want("all", overdue(0), map[string]int{"hook": 3, "mute": 3})
	taken, err := db.TakeStream(t.Context(), numbered(0), "hook", "a/1")
	if err != nil {
		t.Fatal(err)
	}
	want("one is held", overdue(0), map[string]int{"hook": 2, "mute": 3})
	if _, err := db.Settle(t.Context(), taken.Lease, "hook", events.Outcome{To: taken.Page.To}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ReleaseStream(t.Context(), taken.Lease, "hook", false); err != nil {
		t.Fatal(err)
	}
	want("and told", overdue(0), map[string]int{"hook": 2, "mute": 3})
	taken, err = db.TakeStream(t.Context(), numbered(0), "mute", "a/1")
	for n := range events.SilentFrom {
		if err == nil {
			_, err = db.Settle(t.Context(), taken.Lease, "mute", events.Outcome{Failures: n + 1, Error: "no answer", Silent: true, Wait: time.Hour})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	want("one is silent", overdue(0), map[string]int{"hook": 2})
	for _, c := range []struct {
		receiver string
		want     bool
	}{{"hook", true}, {"mute", false}} {
		if may, err := db.MayAsk(t.Context(), c.receiver); may != c.want || err != nil {
			t.Errorf("may %s be asked: got %t, %v; want %t", c.receiver, may, err, c.want)
		}
	}
	run(t, db, `update event_receiver set next_attempt_at = clock_timestamp()`)
	want("its time has come", overdue(0), map[string]int{"hook": 2, "mute": 1})
	for _, want := range []bool{true, false} { // one at a time
		if may, err := db.MayAsk(t.Context(), "mute"); may != want || err != nil {
			t.Errorf("may it be asked now: got %t, %v; want %t", may, err, want)
		}
	}
	waiting, err := db.EventBacklogs(t.Context(), hooks)
	if err != nil || len(waiting) != 2 {
		t.Fatalf("backlog: got %v, %v", waiting, err)
	}
	for _, b := range waiting {
		if want := map[string]int{"hook": 2, "mute": 3}[b.Receiver]; b.Streams != want || b.Oldest <= 0 {
			t.Errorf("backlog: got %+v, want %d streams", b, want)
		}
	}
}
