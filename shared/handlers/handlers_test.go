package handlers_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/handlers"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/webhook"
)

func key(t *testing.T, b byte) webhook.Key {
	t.Helper()
	return check.Value(webhook.ParseKey("whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32))))(t)
}

func read(_ txmanager.Submitter, payload json.RawMessage) (txmanager.Call, error) {
	canonical, _, err := evm.Family{}.ParsePayload(payload)
	if err != nil {
		return txmanager.Call{}, err
	}
	return new(evm.Connector).ParsePayload(canonical)
}

var about = txmanager.NonceContext{
	Submitter: "eip155:1337:0x00000000000000000000000000000000000a11ce", Nonce: 7, TxID: "01a1fda0-b1f9-7b07-a2c1-57c667e395bc",
	RequestID: "order-4711", Input: json.RawMessage(`{"note":"<b>&","wei":"5"}`),
}

// service serves h and returns the handler that calls it.
func service(t *testing.T, timeout time.Duration, h http.HandlerFunc, keys ...webhook.Key) txmanager.Handler {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	client := webhook.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	return handlers.Service{Endpoint: webhook.Endpoint{URL: server.URL, Keys: keys, Timeout: timeout, Client: client}, Read: read, Log: slog.New(slog.DiscardHandler)}.Handle
}

// Each attempt of one question has the same id and body, signed with every key. Only its time differs.
func TestTheSameQuestionUnderTheSameKey(t *testing.T) {
	t.Parallel()
	old, next := key(t, 1), key(t, 2)
	var bodies []string
	h := service(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read: %v", err)
		}
		for _, k := range []webhook.Key{old, next} {
			if id, err := webhook.Verify(r.Header, time.Now(), body, k); err != nil || id != about.TxID {
				t.Errorf("webhook-id: got %q, %v; want %s, signed", id, err, about.TxID)
			}
		}
		bodies = append(bodies, string(body))
		fmt.Fprint(w, `{"transaction": {"to": "0x00000000000000000000000000000000000000b0", "value": "5"}}`)
	}, old, next)
	for range 2 {
		tx, err := h(t.Context(), about)
		if err != nil || tx.Signed != nil || *tx.To != (eip155.Address([20]byte{19: 0xb0})) || tx.Value.Cmp(big.NewInt(5)) != 0 {
			t.Errorf("answer: got %+v, %v; want 5 wei to 0x…b0", tx, err)
		}
	}
	want := `{"submitter":"eip155:1337:0x00000000000000000000000000000000000a11ce","nonce":7,"chainId":1337,"requestId":"order-4711","payload":{"note":"<b>&","wei":"5"}}`
	check.Same(t, "questions", bodies, []string{want, want})
}

// Only 200 with a transaction, or with bytes, is an answer. A temporary refusal differs from a failure.
func TestOnly200IsAnAnswer(t *testing.T) {
	t.Parallel()
	const to = `"to":"0x00000000000000000000000000000000000000b0"`
	for name, c := range map[string]struct {
		status int
		text   string
		signed string // the bytes
		reason string // "": an answer
		later  bool
	}{
		"a transaction":          {200, `{"transaction":{` + to + `}}`, "", "", false},
		"a function":             {200, `{"transaction":{` + to + `,"function":"pause()"}}`, "", "", false},
		"signed bytes":           {200, `{"signedTransaction":"0x02ab"}`, "\x02\xab", "", false},
		"both":                   {200, `{"transaction":{` + to + `},"signedTransaction":"0x02"}`, "", "not one of", false},
		"neither":                {200, `{}`, "", "not one of", false},
		"null":                   {200, `null`, "", "nothing else", false},
		"something more":         {200, `{"transaction":{` + to + `},"nonce":7}`, "", "nothing else", false},
		"two answers":            {200, `{"transaction":{` + to + `}} {}`, "", "nothing else", false},
		"a brace too many":       {200, `{"transaction":{` + to + `}}}`, "", "nothing else", false},
		"a bracket behind it":    {200, `{"transaction":{` + to + `}}] and so on`, "", "nothing else", false},
		"in other letters":       {200, `{"Transaction":{` + to + `}}`, "", "nothing else", false},
		"one and then another":   {200, `{"transaction":{` + to + `},"transaction":{}}`, "", "nothing else", false},
		"a list":                 {200, `[{"transaction":{` + to + `}}]`, "", "nothing else", false},
		"no JSON":                {200, `<html>`, "", "nothing else", false},
		"nothing":                {200, ``, "", "nothing else", false},
		"an amount as a number":  {200, `{"transaction":{` + to + `,"value":1}}`, "", "its transaction is invalid", false},
		"an unknown field of it": {200, `{"transaction":{` + to + `,"nonce":"7"}}`, "", "its transaction is invalid", false},
		"no hex":                 {200, `{"signedTransaction":"02ab"}`, "", "hex digits", false},
		"no bytes":               {200, `{"signedTransaction":"0x"}`, "", "hex digits", false},
		"much too long":          {200, strings.Repeat(" ", 512<<10) + `{}`, "", "more than", false},
		"another success":        {201, `{"transaction":{` + to + `}}`, "", "answered 201", false},
		"refused":                {422, `{"detail":"the employee has left"}`, "", "answered 422: the employee has left", false},
		"broken":                 {500, `oops`, "", "answered 500", false},
		"too many":               {429, `{"detail":"slowly"}`, "", "answered 429: slowly", true},
		"not there now":          {503, ``, "", "answered 503", true},
		"a proxy's":              {502, ``, "", "answered 502", true},
		"a proxy's time-out":     {504, ``, "", "answered 504", true},
	} {
		h := service(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.text)
		})
		tx, err := h(t.Context(), about)
		switch {
		case c.reason == "":
			if err != nil || string(tx.Signed) != c.signed || (c.signed == "") != (tx.To != nil) {
				t.Errorf("%s: got %+v, %v; want an answer", name, tx, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.reason) || errors.Is(err, txmanager.ErrRetryLater) != c.later:
			t.Errorf("%s: got %v, want %q, later %v", name, err, c.reason, c.later)
		}
	}
}

// A redirect is not followed, and its target gets no request.
func TestNoRedirects(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("asked elsewhere")
		fmt.Fprint(w, `{"signedTransaction":"0x02"}`)
	}))
	t.Cleanup(elsewhere.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		h := service(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(status)
		})
		if tx, err := h(t.Context(), about); err == nil || errors.Is(err, txmanager.ErrRetryLater) {
			t.Errorf("%d: got %+v, %v; want a failure", status, tx, err)
		}
	}
}

// A late answer is a failure. A missing service, or a closed connection, can be called again. The
// reason has no address.
func TestLateAnswersFailAndMissingOnesRetry(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(nil)
	gone.Close()
	quiet := handlers.Service{Endpoint: webhook.Endpoint{URL: gone.URL, Timeout: time.Minute, Client: webhook.NewClient()}, Log: slog.New(slog.DiscardHandler)}.Handle
	hangsUp := service(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		panic(http.ErrAbortHandler)
	})
	// A dialer's own time-out is an error of the network, since the call could have gone on.
	dials := webhook.NewClient()
	dials.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
		return nil, fmt.Errorf("dial 127.0.0.1: %w", context.DeadlineExceeded)
	}
	unreached := handlers.Service{Endpoint: webhook.Endpoint{URL: gone.URL, Timeout: time.Minute, Client: dials}, Log: slog.New(slog.DiscardHandler)}.Handle
	for name, h := range map[string]txmanager.Handler{"not there": quiet, "hangs up": hangsUp, "not reached in the dialer's time": unreached} {
		_, err := h(t.Context(), about)
		if !errors.Is(err, txmanager.ErrRetryLater) || strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s: got %v, want not now and no address", name, err)
		}
	}
	late := service(t, 20*time.Millisecond, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // until then the server does not notice that the client closes the connection
		<-r.Context().Done()
	})
	if _, err := late(t.Context(), about); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, txmanager.ErrRetryLater) {
		t.Errorf("late: got %v, want the time-out", err)
	}
}

// The path of a handler's URL may be a secret: the log of a failed call does not contain it.
func TestTheLogHasNoURL(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(nil)
	gone.Close()
	var log bytes.Buffer
	h := handlers.Service{Endpoint: webhook.Endpoint{URL: gone.URL + "/hidden-path", Timeout: time.Minute, Client: webhook.NewClient()}, Log: slog.New(slog.NewJSONHandler(&log, nil))}.Handle
	if _, err := h(t.Context(), about); !errors.Is(err, txmanager.ErrRetryLater) {
		t.Fatalf("got %v, want not now", err)
	}
	if text := log.String(); !strings.Contains(text, "refused") || strings.Contains(text, "hidden-path") {
		t.Errorf("log: got %s, want why, without the URL", text)
	}
}
