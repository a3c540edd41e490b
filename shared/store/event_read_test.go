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
	for i := range all {
		post(t, db, alice, fmt.Sprint(i))
	}
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
