package store_test

import (
	"errors"
	"fmt"
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

// A caller reads its transactions' events, an operator all, also by submitter. Positions that
// were never assigned, or whose events were deleted, give distinct errors.
func TestEventsWhoSeesWhich(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, alice, 1)
	db.Register(t, bob, 1)
	for i, in := range []store.Intent{intent(alice, "a"), intent(bob, "b"), intent(alice, "c"), intent(alice, "d")} {
		if i == 2 {
			in.Caller, in.Names = "rival", []string{"rival", "*"}
		}
		check.OK(t)(db.Create(t.Context(), in, 10))
	}
	page(t, db, 0, operator) // gives the positions
	shop, other := store.Viewer{Caller: "shop"}, store.Viewer{Caller: "nobody"}
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
	run(t, db, `update event set at = clock_timestamp() - interval '2 hours' where position <= 2`)
	if n, err := db.EventLog.ForgetEvents(t.Context(), nil, time.Hour, 100); n != 2 || err != nil {
		t.Fatalf("forget: got %d, %v; want 2", n, err)
	}
	var forgotten eventlog.EventsDeletedError
	if _, _, err := db.EventLog.Events(t.Context(), eventlog.EventQuery{After: new(uint64(1)), Size: 9}, operator); !errors.As(err, &forgotten) || forgotten.Oldest != 2 {
		t.Errorf("behind what is kept: got %v, want that it is from 2 on", err)
	}
	if got, _, err := db.EventLog.Events(t.Context(), eventlog.EventQuery{Size: 9}, operator); err != nil || len(got) != 2 {
		t.Errorf("from the oldest on: got %d, %v; want 2", len(got), err)
	}
}

// A reader without new events can continue after all others' events were deleted: it has
// missed none.
func TestEventsAreReadOnBehindThoseOfOthers(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, alice, 1)
	quiet := store.Viewer{Caller: "quiet"}
	for i := range 4 {
		postEvent(t, db, alice, fmt.Sprint(i))
	}
	page(t, db, 0, operator) // gives the positions
	if _, next, err := db.EventLog.Events(t.Context(), eventlog.EventQuery{Size: 2}, operator); next != 2 || err != nil {
		t.Errorf("behind a full page: got %d, %v; want 2", next, err)
	}
	got, next, err := db.EventLog.Events(t.Context(), eventlog.EventQuery{Size: 2}, quiet)
	if len(got) != 0 || next != 4 || err != nil {
		t.Errorf("with no events of its own: got %d, on behind %d, %v; want none, behind 4", len(got), next, err)
	}
	if n, err := db.EventLog.ForgetEvents(t.Context(), nil, -time.Hour, 100); n != 4 || err != nil {
		t.Fatalf("forget: got %d, %v; want 4", n, err)
	}
	if got, _, err := db.EventLog.Events(t.Context(), eventlog.EventQuery{After: &next, Size: 2}, quiet); len(got) != 0 || err != nil {
		t.Errorf("once those of others are forgotten: got %d, %v; want none, and no error", len(got), err)
	}
}

// A reader gets all events, or an error if some were deleted while it read.
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
			if _, err := db.EventLog.ForgetEvents(t.Context(), nil, -time.Hour, 1); err != nil {
				t.Error(err)
			}
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
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, alice, 1)
	postEvent(t, db, alice, "lost")
	run(t, db, `update event_outbox set body = jsonb_set(body::jsonb, '{timestamp}', to_jsonb(clock_timestamp() - interval '9 minutes'))::json`)
	postEvent(t, db, alice, "new")
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
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, alice, 1)
	later := `clock_timestamp() + interval '9 minutes'`
	postEvent(t, db, alice, "held")
	run(t, db, `update managed_tx set held = true, updated_at = `+later)
	postEvent(t, db, alice, "bound")
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, false)})
	run(t, db, `update managed_tx set updated_at = `+later+` where open`)
	run(t, db, `update event_outbox set body = jsonb_set(body::jsonb, '{timestamp}', to_jsonb(`+later+`))::json`)
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
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, alice, 1)
	postEvent(t, db, alice, "before")
	if got := page(t, db, 0, operator); got[0].Position != 1 {
		t.Fatalf("first position: got %d, want 1", got[0].Position)
	}
	postEvent(t, db, alice, "unseen")
	run(t, db, `update database_identity set timeline_id = timeline_id + 1`)
	if got := page(t, db, 1, operator); len(got) != 0 {
		t.Errorf("in a database that nobody has accepted: got %d events, want none", len(got))
	}
	run(t, db, `update database_identity set timeline_id = current_timeline(), epoch = '0badcafe'`)
	if got := page(t, db, 1, operator); len(got) != 1 || got[0].Position <= 1_000_000_000 {
		t.Errorf("once it is accepted: got %+v, want one far above", got)
	}
}

// One lease holder at a time delivers a queue, under its token. The store keeps its outcomes
// and refuses those of a former holder.
func TestStreamsAreFenced(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, alice, 1)
	if got, err := db.EventLog.AcquireDeliveryQueue(t.Context(), alice, "hook", "a/1"); err != nil || got.There {
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
	if released, err := db.EventLog.ReleaseDeliveryQueue(t.Context(), old.Lease, "hook", false); released || err != nil {
		t.Errorf("release with the mark set: got %t, %v; want not", released, err)
	}
	settled, err := db.EventLog.Settle(t.Context(), old.Lease, "hook", events.Outcome{To: 2})
	if err != nil || len(settled.Page.Events) != 1 {
		t.Fatalf("settle: got %d left, %v; want 1", len(settled.Page.Events), err)
	}
	if again := mustStream(t, db, "a/1"); !again.Held || again.Token != 2 || len(again.Page.Events) != 1 {
		t.Errorf("gone round: got %+v, want the next token", again)
	}
	check.Err(t, "settle by the old token", lease.ErrFenced)(db.EventLog.Settle(t.Context(), old.Lease, "hook", events.Outcome{To: 3}))
	check.Equal(t, "delivered", value[int](t, db, `select delivered from event_delivery_queue`), 2)
}

func mustStream(t *testing.T, db storetest.Bundle, owner string) events.AcquireResult {
	t.Helper()
	got := check.Value(db.EventLog.AcquireDeliveryQueue(t.Context(), alice, "hook", owner))(t)
	return got
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
		postEvent(t, db, numbered(n), "r")
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
	want := func(what string, got, want map[string]int) {
		t.Helper()
		check.Same(t, what, got, want)
	}
	want("within the grace", overdue(time.Hour), map[string]int{})
	want("all", overdue(0), map[string]int{"hook": 3, "mute": 3})
	taken, err := db.EventLog.AcquireDeliveryQueue(t.Context(), numbered(0), "hook", "a/1")
	check.OK(t)(err)
	want("one is held", overdue(0), map[string]int{"hook": 2, "mute": 3})
	check.OK(t)(db.EventLog.Settle(t.Context(), taken.Lease, "hook", events.Outcome{To: taken.Page.To}))
	check.OK(t)(db.EventLog.ReleaseDeliveryQueue(t.Context(), taken.Lease, "hook", false))
	want("and told", overdue(0), map[string]int{"hook": 2, "mute": 3})
	taken, err = db.EventLog.AcquireDeliveryQueue(t.Context(), numbered(0), "mute", "a/1")
	for n := range events.SilentFrom {
		if err == nil {
			_, err = db.EventLog.Settle(t.Context(), taken.Lease, "mute", events.Outcome{Failures: n + 1, Error: "no answer", Silent: true, Wait: time.Hour})
		}
	}
	check.OK(t)(err)
	want("one is silent", overdue(0), map[string]int{"hook": 2})
	for _, c := range []struct {
		endpoint string
		want     bool
	}{{"hook", true}, {"mute", false}} {
		if may, err := db.EventLog.MayDeliver(t.Context(), c.endpoint); may != c.want || err != nil {
			t.Errorf("may %s be asked: got %t, %v; want %t", c.endpoint, may, err, c.want)
		}
	}
	run(t, db, `update event_endpoint set next_attempt_at = clock_timestamp()`)
	want("its time has come", overdue(0), map[string]int{"hook": 2, "mute": 1})
	for _, want := range []bool{true, false} { // one at a time
		check.Equal(t, "may it be asked now", check.Value(db.EventLog.MayDeliver(t.Context(), "mute"))(t), want)
	}
	run(t, db, `update event_endpoint set paused_at = clock_timestamp() - interval '1 hour', paused_by = 'ann', pause_reason = 'a test' where endpoint = 'mute'`)
	waiting, err := db.EventLog.EventBacklogs(t.Context(), hooks)
	if err != nil || len(waiting) != 2 {
		t.Fatalf("backlog: got %v, %v", waiting, err)
	}
	for _, b := range waiting {
		if want := map[string]int{"hook": 2, "mute": 3}[b.Endpoint]; b.Streams != want || b.Oldest <= 0 {
			t.Errorf("backlog: got %+v, want %d streams", b, want)
		}
		if paused := b.Paused.Round(time.Minute); paused != map[string]time.Duration{"mute": time.Hour}[b.Endpoint] {
			t.Errorf("%s: got paused for %v, want an hour for mute alone", b.Endpoint, paused)
		}
	}
}

// A database's clock that was set back leaves the times of streams ahead of it. The sweep
// finds them at once: an event of the future, a plan further ahead than any is made, a lease
// longer than any is taken for. A plan that is as far ahead as it was made is waited for.
func TestAClockSetBackSilencesNoStream(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	db.Register(t, numbered(0), 1)
	postEvent(t, db, numbered(0), "r")
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
		run(t, db, fresh)
		run(t, db, `delete from event_endpoint`)
		run(t, db, c.change)
		found, _, err := db.EventLog.OverdueStreams(t.Context(), []string{"hook"}, 10*time.Minute, 10)
		if len(found) != c.want || err != nil {
			t.Errorf("%s: got %d streams, %v; want %d", name, len(found), err, c.want)
		}
		// An endpoint whose queue the sweep finds may be tried; otherwise the task would be
		// useless.
		if may, err := db.EventLog.MayDeliver(t.Context(), "hook"); may != (name != "an endpoint that is silent") || err != nil {
			t.Errorf("%s: may it be asked: got %t, %v", name, may, err)
		}
	}
}
