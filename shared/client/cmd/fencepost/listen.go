package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/webhook"
)

const secretVariable = "FENCEPOST_WEBHOOK_SECRET"

// Limits of the receiver.
const (
	maxDelivery = 1 << 20         // bytes of a body
	idsKept     = 10_000          // ids of the newest deliveries, by which repeats are found
	forwardTime = 4 * time.Second // less than the time that a sender waits by default
)

// receiver receives webhooks: it verifies each, drops repeats, prints it, and forwards it with --forward.
type receiver struct {
	a       *app
	keys    []webhook.Key
	forward string // a URL; "": it forwards nothing
	count   int    // events after which it stops; 0: never
	stop    context.CancelFunc
	http    *http.Client

	mu       sync.Mutex // one delivery at a time, which keeps their order
	seen     map[string]bool
	order    []string // the ids in seen, the oldest first
	accepted int
}

func (a *app) webhookListen() *cobra.Command {
	listen, forward, count := "127.0.0.1:8090", "", 0
	c := a.command("listen", "Receive webhooks at this machine: verify, print, drop repeats", []option{
		flag(&listen, "listen", "where it listens, as `host:port`"),
		flag(&forward, "forward", "the `URL` to which each event is posted on"),
		flag(&count, "count", "stop after so many events; default: when interrupted"),
	}, func(q call) error {
		keys, err := parseKeys(a.env(secretVariable))
		if err != nil {
			return err
		}
		if forward != "" && !strings.HasPrefix(forward, "http://") && !strings.HasPrefix(forward, "https://") {
			return usagef("--forward %s: want a URL", forward)
		}
		ctx, stop := context.WithCancel(q.ctx)
		defer stop()
		r := &receiver{a: a, keys: keys, forward: forward, count: count, stop: stop, seen: map[string]bool{},
			http: &http.Client{Timeout: forwardTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}} // a redirected POST loses its body
		return r.serve(ctx, listen)
	})
	c.Long = `Listen receives the deliveries of an endpoint of events.webhook.urls. It verifies the signature by the secret in
` + secretVariable + ` (two with a space between them during a rotation), drops repeats by their id, prints each
event, and answers 204. A delivery without a valid signature is answered 401. With --forward each event is posted on,
with its signature, and is accepted once the other program has accepted it.`
	return c
}

// parseKeys reads the secrets. An error never contains one.
func parseKeys(text string) (keys []webhook.Key, err error) {
	for _, one := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }) {
		key, err := webhook.ParseKey(one)
		if err != nil {
			return nil, usagef("%s: %v", secretVariable, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, usagef("set %s to the endpoint's secret of events.webhook.secrets", secretVariable)
	}
	return keys, nil
}

// serve serves until ctx ends.
func (r *receiver) serve(ctx context.Context, addr string) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return usagef("--listen: %v", err)
	}
	r.a.note(note{Text: fmt.Sprintf("listening at http://%s/", listener.Addr())})
	server := &http.Server{Handler: r, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), forwardTime)
	defer cancel()
	return server.Shutdown(closing)
}

// ServeHTTP implements [http.Handler].
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxDelivery))
	if err != nil {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	id, err := webhook.Verify(q.Header, time.Now(), body, r.keys...)
	if err != nil {
		r.a.note(note{Text: "refused a delivery: " + err.Error()})
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.WriteHeader(r.accept(q, id, body))
}

// accept handles a verified delivery and returns the status of the answer.
func (r *receiver) accept(q *http.Request, id string, body []byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[id] {
		r.a.note(note{Text: "a repeat of " + id})
		return http.StatusNoContent
	}
	if r.forward != "" {
		if err := r.post(q, body); err != nil {
			r.a.note(note{Text: fmt.Sprintf("%s was not accepted: %v", id, err)})
			return http.StatusBadGateway
		}
	}
	if err := r.print(body); err != nil {
		return http.StatusInternalServerError
	}
	r.remember(id)
	if r.accepted++; r.accepted == r.count {
		r.stop()
	}
	return http.StatusNoContent
}

// remember keeps the id, and forgets the oldest.
func (r *receiver) remember(id string) {
	r.seen[id] = true
	if r.order = append(r.order, id); len(r.order) > idsKept {
		delete(r.seen, r.order[0])
		r.order = r.order[1:]
	}
}

// post posts the delivery on with its signature. Its context is not that of the sender's request, since the other
// program may have stored the event already.
func (r *receiver) post(q *http.Request, body []byte) error {
	on, err := http.NewRequestWithContext(context.WithoutCancel(q.Context()), http.MethodPost, r.forward, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for _, name := range []string{"Content-Type", webhook.HeaderID, webhook.HeaderTimestamp, webhook.HeaderSignature} {
		on.Header.Set(name, q.Header.Get(name))
	}
	resp, err := r.http.Do(on)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return errors.New(resp.Status)
	}
	return nil
}

func (r *receiver) print(body []byte) error {
	if r.a.json {
		return printLine(r.a.out, body)
	}
	var e client.Event
	if err := json.Unmarshal(body, &e); err != nil {
		return err
	}
	return r.a.printAlone(e.Timestamp, e.Type, e.TxID, e.RequestID, e.Sequence, e.Data)
}
