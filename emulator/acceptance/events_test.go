package acceptance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/webhook"
)

const hookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8G"

type event struct {
	Type, TxID, Submitter, RequestID string
	Sequence                         int
	Data                             struct {
		Final  bool
		Reason string
	}
}

func (e event) key() string { return fmt.Sprintf("%s-%s-%d", e.TxID, e.Type, e.Sequence) }

// endpoint is a webhook endpoint in this process.
type endpoint struct {
	*httptest.Server
	key webhook.Key

	mu     sync.Mutex
	got    []event // in the order of arrival, with repetitions
	bodies map[string]string
	faults []string
	open   chan struct{} // closed: it answers
}

func startEndpoint(t *testing.T, answers bool) *endpoint {
	t.Helper()
	key := must(webhook.ParseKey(hookSecret))(t)
	r := &endpoint{key: key, bodies: make(map[string]string), open: make(chan struct{})}
	if answers {
		close(r.open)
	}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP accepts correctly signed events. While it is not open it gives no answer.
func (r *endpoint) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	select {
	case <-r.open:
	case <-req.Context().Done():
		return
	}
	body, _ := io.ReadAll(req.Body)
	id, err := webhook.Verify(req.Header, time.Now(), body, r.key)
	var e event
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch known := r.bodies[id]; {
	case err != nil:
		r.faults = append(r.faults, err.Error())
	case id != e.key():
		r.faults = append(r.faults, fmt.Sprintf("webhook-id %s of %s", id, body))
	case known != "" && known != string(body):
		r.faults = append(r.faults, fmt.Sprintf("told twice, and not the same: %s and %s", known, body))
	}
	r.bodies[id] = string(body)
	r.got = append(r.got, e)
	w.WriteHeader(http.StatusNoContent)
}

func (r *endpoint) received() []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func distinct(all []event) int {
	seen := make(map[string]bool)
	for _, e := range all {
		seen[e.key()] = true
	}
	return len(seen)
}

// wantComplete checks the received events: for each transaction the sequences 1, 2, 3, … in order and
// one end. An event may be repeated.
func wantComplete(t *testing.T, who string, all []event) map[string]string {
	t.Helper()
	next, ends := make(map[string]int), make(map[string]string)
	for _, e := range all {
		if e.Sequence > next[e.TxID]+1 {
			t.Errorf("%s: got %s after %d, want no hole", who, e.key(), next[e.TxID])
		}
		if e.Sequence <= next[e.TxID] {
			continue // repeated
		}
		next[e.TxID] = e.Sequence
		if (e.Sequence == 1) != (e.Type == string(txmanager.TxAccepted)) {
			t.Errorf("%s: got %s, want TxAccepted first and nowhere else", who, e.key())
		}
		if ends[e.TxID] != "" {
			t.Errorf("%s: got %s after the end", who, e.key())
		}
		if e.Data.Final || e.Type == string(txmanager.TxFailed) {
			ends[e.TxID] = e.Type
		}
	}
	return ends
}

// replay reads all events that account may see, page by page.
func (b bench) replay(t *testing.T, account string) (all []event) {
	t.Helper()
	token := ""
	for {
		path := "/api/v1/events?pageSize=7"
		if token != "" {
			path += "&pageToken=" + token
		}
		var page struct {
			Events        []struct{ Event event }
			NextPageToken string
		}
		b.call(t, account, http.MethodGet, path, nil).decode(&page)
		if len(page.Events) == 0 {
			return all
		}
		for _, e := range page.Events {
			all = append(all, e.Event)
		}
		token = page.NextPageToken
	}
}

// someLives posts a few intents, one of which is cancelled in the queue, and waits for their ends. No
// block comes before the cancel, so that the cancelled intent is still queued.
func (b bench) someLives(t *testing.T) (want map[string]string) {
	t.Helper()
	want = make(map[string]string)
	sent := make(map[txmanager.Submitter]int)
	b.Chain.StopMining()
	for _, s := range b.Submitters() {
		for i := range 3 {
			txID := b.postUntilAnswered(t, transfer(s, fmt.Sprintf("r-%d", i)))
			want[txID], sent[s] = string(txmanager.TxConfirmed), sent[s]+1
		}
	}
	last := b.postUntilAnswered(t, transfer(b.Submitters()[0], "cancelled"))
	if status, c := b.cancel(t, last); status == http.StatusOK && c.Outcome == "CANCELLED" {
		want[last] = string(txmanager.TxFailed)
	} else {
		t.Fatalf("cancel of the last in a queue of four: got %d %+v, want CANCELLED", status, c)
	}
	b.Chain.StartMining()
	b.ends(t, sent)
	return want
}

func webhooks(endpoints map[string]*endpoint, more map[string]string) map[string]string {
	var urls, secrets []string
	for name, r := range endpoints {
		urls, secrets = append(urls, name+"="+r.URL), append(secrets, name+"="+hookSecret)
	}
	return withSettings(quick, map[string]string{
		"FENCEPOST_EVENTS_MODE": "webhook", "FENCEPOST_EVENTS_WEBHOOK_TIMEOUT": "500ms",
		"FENCEPOST_EVENTS_WEBHOOK_URLS": strings.Join(urls, ","), "FENCEPOST_EVENTS_WEBHOOK_SECRETS": strings.Join(secrets, ","),
	}, more)
}

// Endpoints receive all events, signed, and in order for each transaction. An endpoint that does not
// answer delays neither the chain's work nor another endpoint. It receives all events once it answers.
// Delivered events can be read again.
func TestEventsByWebhook(t *testing.T) {
	t.Parallel()
	all := map[string]*endpoint{"hook": startEndpoint(t, true), "mute": startEndpoint(t, false), "own": startEndpoint(t, true)}
	b := setup(t, stack.Options{Settings: webhooks(all, map[string]string{"FENCEPOST_EVENTS_WEBHOOK_CALLERS": "own=somebody@fencepost.example"})})
	want := b.someLives(t)
	kept := b.replay(t, stack.OperatorAccount)
	b.until(t, "hook did not receive all events", func() bool { return distinct(all["hook"].received()) == len(kept) })
	same(t, "ends that are replayed", wantComplete(t, "replay", kept), want)
	same(t, "ends that hook was told of", wantComplete(t, "hook", all["hook"].received()), want)
	if n := len(all["mute"].received()); n != 0 {
		t.Fatalf("mute: got %d events, want none yet", n)
	}
	close(all["mute"].open)
	b.until(t, "not all events came with the sweep", func() bool { _ = b.RunSweep(b.ctx); return distinct(all["mute"].received()) == len(kept) })
	same(t, "ends that mute was told of", wantComplete(t, "mute", all["mute"].received()), want)
	equal(t, "replayed to whose they are", len(b.replay(t, stack.CallerAccount)), len(kept))
	equal(t, "an endpoint of another's events", len(all["own"].received()), 0)
	for name, r := range all {
		if len(r.faults) > 0 {
			t.Errorf("%s: %v", name, r.faults)
		}
	}
}

// With mq_outbox each event is a message of the topic, under the submitter's ordering key, read with
// the real client.
func TestEventsToPubSub(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: withSettings(quick, map[string]string{"FENCEPOST_EVENTS_MODE": "mq_outbox"}), Split: true, Processes: 1})
	want := b.someLives(t)
	kept := b.replay(t, stack.OperatorAccount)
	b.until(t, "not all events are published", func() bool { return distinct(b.published(t)) == len(kept) })
	same(t, "ends that were published", wantComplete(t, "Pub/Sub", b.published(t)), want)
	for _, m := range b.PubSub.Messages() {
		equal(t, "the caller", m.Attributes["caller"], "email:"+stack.CallerAccount)
	}
}

// published returns the topic's messages in order, and checks what subscribers can filter by.
func (b bench) published(t *testing.T) (all []event) {
	t.Helper()
	messages := b.PubSub.Messages()
	slices.SortStableFunc(messages, func(x, y *pstest.Message) int { return x.PublishTime.Compare(y.PublishTime) })
	for _, m := range messages {
		var e event
		check(t, json.Unmarshal(m.Data, &e))
		equal(t, "the key of "+e.key(), m.OrderingKey, e.Submitter)
		same(t, "the attributes of "+e.key(), m.Attributes, map[string]string{
			"txId": e.TxID, "type": e.Type, "sequence": fmt.Sprint(e.Sequence), "submitter": e.Submitter, "caller": m.Attributes["caller"],
		})
		all = append(all, e)
	}
	return all
}

// With log each event is a line, and none is stored.
func TestEventsInTheLog(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: withSettings(quick, map[string]string{"FENCEPOST_EVENTS_MODE": "log"})})
	want := b.someLives(t)
	var logged []event
	for _, line := range b.Log.Lines("event") {
		var l struct {
			Message string
			Event   event
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Message == "event" {
			logged = append(logged, l.Event)
		}
	}
	slices.SortStableFunc(logged, func(x, y event) int { return x.Sequence - y.Sequence }) // lines of several processes
	same(t, "ends in the log", wantComplete(t, "log", logged), want)
	b.keepsNone(t, "log")
}

// By default no event is delivered or stored.
func TestEventsAreOffByDefault(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: quick})
	b.someLives(t)
	b.keepsNone(t, "poll")
}

func (b bench) keepsNone(t *testing.T, mode string) {
	t.Helper()
	b.call(t, stack.CallerAccount, http.MethodGet, "/api/v1/events", nil).want("replay", http.StatusNotFound, "events.mode is "+mode)
	b.wantCount(t, "events kept", 0, `select (select count(*) from event) + (select count(*) from event_outbox)`)
}

// eventsEpisode kills a process that delivers events; the endpoint still receives all of them.
func eventsEpisode(hook *endpoint) func(t *testing.T, b bench, folder, point string) {
	return func(t *testing.T, b bench, folder, point string) {
		s := b.Submitters()[0]
		b.postMany(t, s, 2)
		b.killed(t, folder, point)
		b.ends(t, map[txmanager.Submitter]int{s: 2})
		kept := b.replay(t, stack.OperatorAccount)
		b.until(t, "not all events came with the sweep", func() bool { _ = b.RunSweep(b.ctx); return distinct(hook.received()) == len(kept) })
		all := b.count(`select count(*) from managed_tx`) // those of earlier episodes too
		if ends := wantComplete(t, "hook", hook.received()); len(ends) != all || len(hook.faults) > 0 {
			t.Errorf("told of the ends %v, %v; want of %d, each signed", ends, hook.faults, all)
		}
	}
}

// Events add no round trip and no commit to the transaction itself: with events on, a transaction
// costs the same as with them off.
func TestEventsAreOffTheHotPath(t *testing.T) {
	t.Parallel()
	of := func(settings map[string]string) (life, publish stack.Cost) {
		b := setup(t, stack.Options{Settings: settings, Processes: 1, Submitters: 1, BlockTime: time.Second})
		return b.cheapest(t, oneNodeLife), b.Costs.Of("publish")
	}
	hook := startEndpoint(t, true)
	settings := webhooks(map[string]*endpoint{"hook": hook}, nil)
	for name := range quick {
		delete(settings, name)
	}
	off, none := of(nil)
	on, publish := of(settings)
	t.Logf("a life, off: %+v; on: %+v; telling one endpoint: %+v", off, on, publish)
	if none.Invocations != 0 || publish.Invocations == 0 {
		t.Errorf("invocations of publish: got %d with events off, %d with them on; want none, and some", none.Invocations, publish.Invocations)
	}
	if on != off || on != oneNodeLife {
		t.Errorf("round trips of a life: got %+v with events on, %+v with them off; want %+v", on, off, oneNodeLife)
	}
}
