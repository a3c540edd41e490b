package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/webhook"
)

const hookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8G"

// listener is a running webhook listen.
type listener struct {
	url           string
	out, problems *output
	ended         chan int
	stop          context.CancelFunc
}

func listen(t *testing.T, secrets, line string) *listener {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &listener{out: new(output), problems: new(output), ended: make(chan int, 1), stop: stop}
	go func() {
		args := append(strings.Fields("webhook listen --listen 127.0.0.1:0"), strings.Fields(line)...)
		l.ended <- run(ctx, args, variables(secretVariable+"="+secrets), streams{strings.NewReader(""), l.out, l.problems})
	}()
	t.Cleanup(stop)
	for range 500 {
		if at := regexp.MustCompile(`http://[0-9.:]+/`).FindString(l.problems.String()); at != "" {
			l.url = at
			return l
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("it never listened: %s", l.problems)
	return nil
}

// deliver posts a delivery, signed by the secret, and returns the status.
func (l *listener) deliver(t *testing.T, with, id, body string) int {
	t.Helper()
	key := check.Value(webhook.ParseKey(with))(t)
	q := check.Value(http.NewRequestWithContext(t.Context(), http.MethodPost, l.url, strings.NewReader(body)))(t)
	q.Header.Set("Content-Type", "application/json")
	webhook.Sign(q.Header, id, time.Now(), []byte(body), key)
	resp := check.Value(http.DefaultClient.Do(q))(t)
	resp.Body.Close()
	return resp.StatusCode
}

const event = `{"type": "TxConfirmed", "timestamp": "2026-01-02T03:04:05Z", "txId": "tx-1", "submitter": "s", "requestId": "order-4711", "sequence": 4, "data": {"final": true}}`

// The receiver prints each verified event once. A repeat is accepted, another signature is not. It stops after --count.
func TestListen(t *testing.T) {
	t.Parallel()
	const other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	l := listen(t, other+" "+hookSecret, "--count 2 --json")
	check.Equal(t, "the first", l.deliver(t, hookSecret, "tx-1-TxConfirmed-4", event), 204)
	check.Equal(t, "a repeat", l.deliver(t, hookSecret, "tx-1-TxConfirmed-4", event), 204)
	check.Equal(t, "another secret", l.deliver(t, "whsec_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB", "tx-2", event), 401)
	check.Equal(t, "the other secret of a rotation", l.deliver(t, other, "tx-3", `{"type":"TxFailed","timestamp":"2026-01-02T03:04:05Z","txId":"tx-3","sequence":2,"data":{}}`), 204)
	select {
	case code := <-l.ended:
		check.Equal(t, "exit", code, exitOK)
	case <-time.After(10 * time.Second):
		t.Fatal("it did not stop after --count")
	}
	const first = `{"type":"TxConfirmed","timestamp":"2026-01-02T03:04:05Z","txId":"tx-1","submitter":"s","requestId":"order-4711","sequence":4,"data":{"final":true}}`
	if lines := strings.Split(l.out.String(), "\n"); len(lines) != 3 || lines[0] != first {
		t.Errorf("printed: got %q, want two events on lines", l.out)
	}
	if text := l.problems.String(); !strings.Contains(text, "a repeat of tx-1") || !strings.Contains(text, "refused a delivery") || strings.Contains(text, "whsec_") {
		t.Errorf("notes: got %s, want the repeat and the refusal, and no secret", text)
	}
}

// With --forward an event counts as received once the other program has accepted it, which gets the same signature.
func TestListenForwards(t *testing.T) {
	t.Parallel()
	var got atomic.Int32
	key := check.Value(webhook.ParseKey(hookSecret))(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		if _, err := webhook.Verify(q.Header, time.Now(), body, key); err != nil || string(body) != event {
			t.Errorf("forwarded: got %s, %v; want the same delivery", body, err)
		}
		switch got.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			http.Redirect(w, q, "/", http.StatusFound)
		}
	}))
	defer s.Close()
	l := listen(t, hookSecret, "--forward "+s.URL)
	check.Equal(t, "while the other is down", l.deliver(t, hookSecret, "tx-1", event), 502)
	check.Equal(t, "a redirection", l.deliver(t, hookSecret, "tx-1", event), 502)
	check.Equal(t, "printed", l.out.String(), "")
	check.Equal(t, "again", l.deliver(t, hookSecret, "tx-1", event), 204)
	check.Equal(t, "a repeat", l.deliver(t, hookSecret, "tx-1", event), 204)
	check.Equal(t, "forwarded", got.Load(), 3)
	check.Same(t, "printed", strings.Fields(l.out.String()), []string{"2026-01-02T03:04:05Z", "TxConfirmed", "tx-1", "order-4711", "4", `{"final":`, "true}"})
	l.stop()
	check.Equal(t, "exit after an interrupt", <-l.ended, exitOK)
}

// Without a secret, or with a wrong one, nothing listens. The text of the secret is not shown.
func TestListenWantsASecret(t *testing.T) {
	t.Parallel()
	for secrets, want := range map[string]string{"": "set FENCEPOST_WEBHOOK_SECRET", "whsec_shortened": "FENCEPOST_WEBHOOK_SECRET: want whsec_"} {
		code, _, problems := fencepost(t, []string{secretVariable + "=" + secrets}, "webhook listen", "")
		if code != exitUsage || !strings.Contains(problems, want) || strings.Contains(problems, "shortened") {
			t.Errorf("%q: got exit %d, %s; want %q", secrets, code, problems, want)
		}
	}
}
