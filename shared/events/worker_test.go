package events_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/events"
	eventhook "github.com/fencepost/fencepost/shared/events/webhook"
	"github.com/fencepost/fencepost/shared/store"
	eventlog "github.com/fencepost/fencepost/shared/store/events"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/webhook"
)

// sub returns the n-th submitter.
func sub(n int) txmanager.Submitter {
	return txmanager.Submitter(fmt.Sprintf("eip155:1337:0x%040x", n+1))
}

// hook is an endpoint with a given answer.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	answer func(id string) int // 0: no answer
	asked  []string            // keys, in order
}

func startHook(t *testing.T, answer func(id string) int) *hook {
	t.Helper()
	h := &hook{answer: answer}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	id := r.Header.Get(webhook.HeaderID)
	h.mu.Lock()
	h.asked = append(h.asked, id)
	status := h.answer(id)
	h.mu.Unlock()
	if status == 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
}

func (h *hook) set(answer func(id string) int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = answer
}

func (h *hook) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.asked)
}

func always(status int) func(string) int { return func(string) int { return status } }

// refusing refuses the event of that key alone.
func refusing(key string) func(string) int {
	return func(id string) int {
		if id == key {
			return 400
		}
		return 204
	}
}

// wake counts the enqueued tasks.
type wake struct {
	mu      sync.Mutex
	later   []time.Time
	rescues int
}

func (w *wake) Publish(_ context.Context, _ events.DeliveryQueue, at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.later = append(w.later, at)
	return nil
}

func (w *wake) RescuePublish(context.Context, events.DeliveryQueue, events.AcquireResult) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rescues++
	return nil
}

// env is a database with endpoints.
type env struct {
	storetest.Bundle
	t     *testing.T
	wake  *wake
	hooks map[string]*hook
}

func build(t *testing.T, hooks map[string]*hook) env {
	t.Helper()
	db := storetest.New(t)
	o := storetest.Options(db.URL, storetest.Rules)
	o.Events = store.EventsKept
	s := check.Value(store.Open(t.Context(), o))(t)
	t.Cleanup(s.Close)
	db.Store = s
	return env{db, t, new(wake), hooks}
}

// worker returns a worker of another process.
func (h env) worker(node string) *events.Worker {
	w := &events.Worker{Book: h.EventLog, Wake: h.wake, Rules: storetest.Rules, EndAfter: 20 * time.Second, Node: node,
		Log: slog.New(slog.DiscardHandler), Publishers: map[string]txmanager.DomainEventPublisher{}}
	for name, hook := range h.hooks {
		w.Endpoints = append(w.Endpoints, name)
		w.Publishers[name] = eventhook.Publisher{Endpoint: webhook.Endpoint{URL: hook.URL, Timeout: 5 * time.Second, Client: hook.Client()}}
	}
	return w
}

// post creates n events of the submitter and returns their keys.
func (h env) post(s txmanager.Submitter, n int) (keys []string) {
	h.t.Helper()
	h.Register(h.t, s, 1)
	for range n {
		in := store.Intent{TxID: uuid.NewString(), Submitter: s, RequestID: uuid.NewString(), Caller: "shop", Payload: []byte(`{}`)}
		check.OK(h.t)(h.Create(h.t.Context(), in, 1000))
		keys = append(keys, in.TxID+"-TxAccepted-1")
	}
	return keys
}

func (h env) serve(s txmanager.Submitter, endpoint string) {
	h.t.Helper()
	check.OK(h.t)(h.worker("node").Serve(h.t.Context(), events.DeliveryQueue{Submitter: s, Endpoint: endpoint}))
}

// due makes every planned wait end now.
func (h env) due() {
	h.t.Helper()
	for _, table := range []string{"event_delivery_queue", "event_endpoint"} {
		check.OK(h.t)(h.DB.Exec(h.t.Context(), `update `+table+` set next_attempt_at = clock_timestamp()`))
	}
}

func want(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %d %v, want %d %v", what, len(got), got, len(want), want)
	}
}

// More than a page is delivered in order and once. A further run delivers nothing.
func TestServeDeliversAllInOrder(t *testing.T) {
	t.Parallel()
	h := build(t, map[string]*hook{"hook": startHook(t, always(204))})
	keys := h.post(sub(0), events.PageSize+20)
	h.serve(sub(0), "hook")
	h.serve(sub(0), "hook")
	want(t, "delivered", h.hooks["hook"].all(), keys)
	check.Equal(t, "tasks", len(h.wake.later), 0)
}

// A refused event is delivered again as the first, with increasing waits. Until then its queue
// waits, and no other.
func TestServeWaitsForWhoRefuses(t *testing.T) {
	t.Parallel()
	h := build(t, map[string]*hook{"hook": startHook(t, always(204))})
	keys, other := h.post(sub(0), 3), h.post(sub(1), 1)
	hook := h.hooks["hook"]
	hook.set(refusing(keys[1]))
	h.serve(sub(0), "hook")
	want(t, "up to the one refused", hook.all(), keys[:2])
	h.serve(sub(0), "hook") // too early
	h.serve(sub(1), "hook")
	want(t, "of another submitter", hook.all()[2:], other)
	var waits []time.Duration
	for range 4 {
		var left time.Duration
		check.OK(t)(h.DB.QueryRow(t.Context(), `select next_attempt_at - clock_timestamp() from event_delivery_queue where submitter = $1`, sub(0)).Scan(&left))
		waits = append(waits, left)
		h.due()
		h.serve(sub(0), "hook")
	}
	for i, w := range waits {
		if most := events.FirstWait << i; w > most || w < most-900*time.Millisecond {
			t.Errorf("wait after %d failures: got %v, want nearly %v", i+1, w, most)
		}
	}
	if got := len(h.wake.later); got < 6 {
		t.Errorf("tasks for later: got %d, want one for each time", got)
	}
	hook.set(always(200))
	h.due()
	h.serve(sub(0), "hook")
	if got := hook.all(); !slices.Equal(got[len(got)-2:], keys[1:]) {
		t.Errorf("once it takes them: got %v at the end, want %v", got, keys[1:])
	}
}

// An endpoint that gives no answer is called by one queue at a time, however many wait. That does
// not count as a failure of the others. Its answer opens all queues.
func TestServeCallsAnUnansweringEndpointByOneQueue(t *testing.T) {
	t.Parallel()
	h := build(t, map[string]*hook{"mute": startHook(t, always(0)), "hook": startHook(t, always(204))})
	const streams = 8
	var keys []string
	for n := range streams {
		keys = append(keys, h.post(sub(n), 1)...)
	}
	serveAll := func() {
		for n := range streams {
			h.serve(sub(n), "mute")
			h.serve(sub(n), "hook")
		}
	}
	serveAll()
	mute := h.hooks["mute"]
	check.Equal(t, "calls without an answer", len(mute.all()), events.SilentFrom)
	want(t, "delivered the other", h.hooks["hook"].all(), keys)
	h.due()
	serveAll()
	check.Equal(t, "asked once its time had come", len(mute.all()), events.SilentFrom+1)
	mute.set(always(204))
	h.due()
	serveAll()
	check.Equal(t, "asked once it answers", len(mute.all()), events.SilentFrom+1+streams)
}

// An invocation meets a holder that has just found its queue empty, and sets its rerun flag. The
// holder iterates again and delivers the new events.
func TestServeSetsTheHoldersRerunFlag(t *testing.T) {
	t.Parallel()
	h := build(t, map[string]*hook{"hook": startHook(t, always(204))})
	keys := h.post(sub(0), 1)
	holder := h.worker("a")
	holder.At = func(point string) {
		if point != "publish.settled" || len(keys) > 1 {
			return
		}
		keys = append(keys, h.post(sub(0), 1)...)
		h.serve(sub(0), "hook")
		if delivered := len(h.hooks["hook"].all()); h.wake.rescues != 1 || delivered != 1 {
			t.Errorf("meeting the holder: got %d rescues and %d deliveries, want 1 and 1", h.wake.rescues, delivered)
		}
	}
	check.OK(t)(holder.Serve(t.Context(), events.DeliveryQueue{Submitter: sub(0), Endpoint: "hook"}))
	want(t, "delivered by the holder", h.hooks["hook"].all(), keys)
}

// A holder whose lease was taken over during a delivery records nothing and acquires again.
func TestFencedServeRecordsNothing(t *testing.T) {
	t.Parallel()
	h := build(t, map[string]*hook{"hook": startHook(t, always(204))})
	hook := h.hooks["hook"]
	keys := h.post(sub(0), 2)
	hook.set(func(string) int {
		if len(hook.asked) == 1 { // the handler runs under the lock
			check.Err(t, "take over", nil)(h.DB.Exec(context.WithoutCancel(t.Context()), `update event_delivery_queue set fencing_token = fencing_token + 1, owner_node = ''`))
		}
		return 204
	})
	h.serve(sub(0), "hook")
	want(t, "delivered, and delivered again", hook.all(), append(slices.Clone(keys), keys...))
}

// An endpoint of some callers' events gets no others, and does not delay the queue.
func TestOnlyOfDeliversOnlyTheCallersEvents(t *testing.T) {
	t.Parallel()
	of := func(callers ...string) (all []txmanager.Event) {
		for i, c := range callers {
			all = append(all, txmanager.Event{TxID: fmt.Sprint(i), Caller: c})
		}
		return all
	}
	for _, c := range []struct {
		all       []txmanager.Event
		takes     int
		want      int
		delivered string
	}{
		{of("shop", "bank", "shop", ""), 9, 4, "0 2"}, {of("bank", ""), 9, 2, ""}, {nil, 9, 0, ""},
		{of("bank", "shop", "bank", "shop", "bank"), 1, 3, "1 3"}, {of("bank", "shop"), 0, 1, "1"},
	} {
		var delivered []string
		next := publisher(func(all []txmanager.Event) (int, error) {
			for _, e := range all {
				delivered = append(delivered, e.TxID)
			}
			if len(all) > c.takes {
				return c.takes, errors.New("no more")
			}
			return len(all), nil
		})
		n, err := events.OnlyOf([]string{"shop"}, next).Publish(t.Context(), c.all)
		if n != c.want || strings.Join(delivered, " ") != c.delivered || (err == nil) != (n == len(c.all)) {
			t.Errorf("%v, of which %d are accepted: got %d accepted of %v, %v; want %d of %q", c.all, c.takes, n, delivered, err, c.want, c.delivered)
		}
	}
}

type publisher func([]txmanager.Event) (int, error)

func (p publisher) Publish(_ context.Context, all []txmanager.Event) (int, error) { return p(all) }

// Events that were deleted before their delivery are pending no longer. Their queue is finished
// without a call.
func TestServeFinishesAQueueOfDeletedEvents(t *testing.T) {
	t.Parallel()
	h := build(t, map[string]*hook{"hook": startHook(t, always(204))})
	h.post(sub(0), 3)
	check.OK(t)(h.EventLog.NumberEvents(t.Context(), []string{"hook"}))
	if n, err := h.EventLog.ForgetEvents(t.Context(), nil, -time.Hour, 100); n != 3 || err != nil {
		t.Fatalf("forget: got %d, %v; want 3", n, err)
	}
	h.serve(sub(0), "hook")
	want(t, "delivered", h.hooks["hook"].all(), nil)
	left, err := h.EventLog.EventBacklogs(t.Context(), []string{"hook"})
	if err != nil || left[0].Streams != 0 || left[0].Oldest != 0 {
		t.Errorf("left: got %+v, %v; want none", left, err)
	}
	keys := h.post(sub(0), 1)
	h.serve(sub(0), "hook")
	want(t, "delivered from later events", h.hooks["hook"].all(), keys)
}

// An endpoint that gave no answer and now refuses an event does answer: its other queues are served
// at once.
func TestRefusalOpensTheEndpointsOtherQueues(t *testing.T) {
	t.Parallel()
	h := build(t, map[string]*hook{"hook": startHook(t, always(0))})
	const streams = 5
	var keys []string
	for n := range streams {
		keys = append(keys, h.post(sub(n), 1)...)
		h.serve(sub(n), "hook")
	}
	hook := h.hooks["hook"]
	silent := len(hook.all())
	hook.set(refusing(keys[0]))
	h.due()
	for n := range streams {
		h.serve(sub(n), "hook")
	}
	want(t, "delivered once it answers", hook.all()[silent:], keys)
}

// Events for other endpoints prove nothing about this one. An endpoint without answers is not
// called more often because of them, and they are not delayed.
func TestEventsForOthersProveNoAnswer(t *testing.T) {
	t.Parallel()
	h := build(t, map[string]*hook{"mute": startHook(t, always(0))})
	serve := func(n int, callers ...string) {
		w := h.worker("node")
		w.Publishers["mute"] = events.OnlyOf(callers, w.Publishers["mute"])
		check.OK(t)(w.Serve(t.Context(), events.DeliveryQueue{Submitter: sub(n), Endpoint: "mute"}))
	}
	const streams = 8
	for n := range streams {
		h.post(sub(n), 1)
		serve(n, "shop")
		h.post(sub(streams+n), 1)
		serve(streams+n, "bank")
	}
	check.Equal(t, "calls without an answer", len(h.hooks["mute"].all()), events.SilentFrom)
	check.Equal(t, "submitters that wait", check.Value(h.EventLog.EventBacklogs(t.Context(), []string{"mute"}))(t)[0].Streams, streams)
}

// A redelivery goes back to its cursor, also while an invocation delivers: that one repeats the events after the
// cursor in their order, and no other queue is touched.
func TestRedeliverGoesBackToTheCursor(t *testing.T) {
	t.Parallel()
	h := build(t, map[string]*hook{"hook": startHook(t, always(204))})
	hook := h.hooks["hook"]
	keys, other := h.post(sub(0), 4), h.post(sub(1), 1)
	h.serve(sub(0), "hook")
	h.serve(sub(1), "hook")
	again := func(after uint64, of txmanager.Submitter) ([]txmanager.Submitter, error) {
		return h.EventLog.Redeliver(t.Context(), eventlog.Redelivery{Endpoint: "hook", After: after, Submitter: of, By: "ann", Reason: "lost"})
	}
	check.Equal(t, "queues that go back", len(check.Value(again(1, ""))(t)), 2)
	check.Equal(t, "queues after their last event", len(check.Value(again(4, sub(0)))(t)), 0)
	check.Err(t, "after no event", store.ErrCursor)(again(6, ""))
	check.Err(t, "after the last event", nil)(again(5, ""))
	late := check.Value(h.EventLog.EventBacklogs(t.Context(), []string{"hook"}))(t)
	if late[0].Streams != 2 || late[0].Oldest > time.Minute {
		t.Errorf("late: got %+v, want two queues since the redelivery", late[0])
	}
	before := len(hook.all())
	h.serve(sub(0), "hook")
	h.serve(sub(1), "hook")
	want(t, "delivered again", hook.all()[before:], append(slices.Clone(keys[1:]), other...))

	more := h.post(sub(0), 2) // positions 6 and 7
	before = len(hook.all())
	holder := h.worker("holder")
	holder.At = func(point string) {
		if point == "publish.told" && len(hook.all()) == before+2 {
			check.OK(t)(again(2, sub(0)))
		}
	}
	check.OK(t)(holder.Serve(t.Context(), events.DeliveryQueue{Submitter: sub(0), Endpoint: "hook"}))
	want(t, "by an invocation that delivers", hook.all()[before:], slices.Concat(more, keys[2:], more))
	h.serve(sub(0), "hook")
	check.Equal(t, "requests in all", len(hook.all()), before+6)
}

// A paused endpoint gets nothing, and no sweep tries it. Its events are kept beyond their time, and delivered in their
// order once it is resumed.
func TestPauseKeepsWhatWaits(t *testing.T) {
	t.Parallel()
	h := build(t, map[string]*hook{"hook": startHook(t, always(204)), "other": startHook(t, always(204))})
	endpoints := []string{"hook", "other"}
	keys := h.post(sub(0), 2)
	h.serve(sub(0), "hook")
	pause := func() bool { return check.Value(h.EventLog.Pause(t.Context(), "hook", "ann", "it moves"))(t) }
	if first, second := pause(), pause(); !first || second {
		t.Errorf("paused: got %t, then %t; want once", first, second)
	}
	keys = append(keys, h.post(sub(0), 2)...)
	h.serve(sub(0), "hook")
	h.serve(sub(0), "other")
	want(t, "while it is paused", h.hooks["hook"].all(), keys[:2])
	want(t, "to the other", h.hooks["other"].all(), keys)
	if found, _, err := h.EventLog.OverdueStreams(t.Context(), endpoints, -time.Hour, 10); err != nil || len(found) != 0 {
		t.Errorf("overdue: got %v, %v; want none", found, err)
	}
	if n, err := h.EventLog.ForgetEvents(t.Context(), endpoints, -time.Hour, 100); n != 2 || err != nil {
		t.Errorf("forgotten: got %d, %v; want the two that were delivered", n, err)
	}
	state := check.Value(h.EventLog.Endpoint(t.Context(), "hook"))(t)
	if state.PausedBy == nil || *state.PausedBy != "ann" || *state.PauseReason != "it moves" || state.Events != 2 || state.Submitters != 1 || *state.Status != 204 {
		t.Errorf("paused: got %+v", state)
	}
	if done, err := h.EventLog.Resume(t.Context(), "hook", "ben", "it has moved"); !done || err != nil {
		t.Errorf("resume: got %t, %v", done, err)
	}
	h.serve(sub(0), "hook")
	want(t, "once it is resumed", h.hooks["hook"].all(), keys)
	if n, err := h.EventLog.ForgetEvents(t.Context(), endpoints, -time.Hour, 100); n != 2 || err != nil {
		t.Errorf("forgotten then: got %d, %v; want the others", n, err)
	}
}
