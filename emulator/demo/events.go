package demo

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/loopback"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/webhook"
)

// WebhookEndpoint is a webhook endpoint for events, as a business would run one.
type WebhookEndpoint struct {
	server *loopback.Server
	secret string
	key    webhook.Key

	mu       sync.Mutex
	received map[string]bool // by the events' keys
	repeated int
	wrong    error     // the first event without a valid signature
	out      io.Writer // of a line for each event; nil: none
}

// StartWebhookEndpoint starts an endpoint. The caller closes it.
func StartWebhookEndpoint() (r *WebhookEndpoint, err error) {
	r = &WebhookEndpoint{secret: "whsec_" + base64.StdEncoding.EncodeToString([]byte(rand.Text())), received: make(map[string]bool)}
	r.key, err = webhook.ParseKey(r.secret)
	if err == nil {
		r.server, err = loopback.Serve("", r)
	}
	return r, err
}

// Close ends serving.
func (r *WebhookEndpoint) Close() error { return r.server.Close() }

// URL is the endpoint's address.
func (r *WebhookEndpoint) URL() string { return r.server.URL() + "/" }

// PrintTo prints a line for each further event.
func (r *WebhookEndpoint) PrintTo(out io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out = out
}

// Settings returns the settings that make the functions deliver to the endpoint.
func (r *WebhookEndpoint) Settings() map[string]string {
	return map[string]string{
		"FENCEPOST_EVENTS_WEBHOOK_URLS":    "demo=" + r.URL(),
		"FENCEPOST_EVENTS_WEBHOOK_SECRETS": "demo=" + r.secret,
	}
}

func (r *WebhookEndpoint) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 1<<20))
	var e client.Event
	id := ""
	if err == nil {
		id, err = webhook.Verify(req.Header, time.Now(), body, r.key)
	}
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if r.wrong == nil {
			r.wrong = err
		}
		r.print("refused an event: %v", err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if r.received[id] {
		r.repeated++
	}
	r.received[id] = true
	r.print("got %s", body)
	w.WriteHeader(http.StatusNoContent)
}

func (r *WebhookEndpoint) print(format string, args ...any) {
	if r.out != nil {
		fmt.Fprintf(r.out, "webhook: "+format+"\n", args...)
	}
}

// receivedBy returns how many events were delivered so far, and the number of repeated deliveries.
func receivedBy(s *stack.Stack, r *WebhookEndpoint) (received, repeated int, err error) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.received), r.repeated, r.wrong
	}
	keys := make(map[string]bool)
	all := s.PubSub.Messages()
	for _, m := range all {
		var e client.Event
		if err := json.Unmarshal(m.Data, &e); err != nil {
			return 0, 0, err
		}
		keys[keyOf(e)] = true
	}
	return len(keys), len(all) - len(keys), nil
}

func keyOf(e client.Event) string { return fmt.Sprintf("%s-%s-%d", e.TxID, e.Type, e.Sequence) }

const eventsWithin = 2 * time.Minute

// ShowEvents reads all events from the API, and waits until each was delivered to the endpoint, or to the
// topic if r is nil. It prints the result. The error is nil only if no transaction's sequence has a gap.
func ShowEvents(ctx context.Context, s *stack.Stack, r *WebhookEndpoint, out io.Writer) (err error) {
	defer steps.Return(&err)
	ctx, cancel := context.WithTimeout(ctx, eventsWithin)
	defer cancel()
	operator := steps.Value(s.Client(stack.OperatorAccount))
	last, total := make(map[string]int), 0
	for e, err := range operator.Events(ctx, client.EventQuery{PageSize: 500}) {
		steps.OK(err, "read events again")
		if total++; e.Sequence != last[e.TxID]+1 {
			return fmt.Errorf("event %s comes after %d: a hole", keyOf(e), last[e.TxID])
		}
		last[e.TxID] = e.Sequence
	}
	received, repeated := 0, 0
	if !retry.Await(ctx, refreshEvery, func() bool {
		received, repeated, err = receivedBy(s, r)
		steps.OK(err, "read the published events")
		return received >= total
	}) {
		return fmt.Errorf("%d of %d events were delivered: %w", received, total, ctx.Err())
	}
	fmt.Fprintf(out, "\nEvents: %d of %d transactions, each sequence without a gap; all were delivered, %d of them twice.\n", total, len(last), repeated)
	return nil
}
