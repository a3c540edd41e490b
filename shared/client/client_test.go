package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// service returns the given answers one after the other, repeats the last, and keeps the
// requests.
type service struct {
	*httptest.Server
	script []http.HandlerFunc

	mu    sync.Mutex
	asked []string // method, target, token and body
	at    []time.Time
}

// attempts are those so far, and when they came.
func (s *service) attempts() (asked []string, at []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked), slices.Clone(s.at)
}

func serve(t *testing.T, script ...http.HandlerFunc) *service {
	t.Helper()
	s := &service{script: script}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		n := min(len(s.asked), len(s.script)-1)
		s.asked = append(s.asked, fmt.Sprintf("%s %s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"), body))
		s.at = append(s.at, time.Now())
		s.mu.Unlock()
		s.script[n](w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// client calls the service, with waits of milliseconds.
func (s *service) client(t *testing.T, change func(*client.Options)) *client.Client {
	t.Helper()
	tokens := 0
	o := client.Options{URL: s.URL + "/", RetryFirst: time.Millisecond, RetryMax: 5 * time.Millisecond, PollFirst: time.Millisecond, Within: 10 * time.Second,
		Token: func(context.Context) (string, error) { tokens++; return fmt.Sprint("token", tokens), nil }}
	if change != nil {
		change(&o)
	}
	c := check.Value(client.New(o))(t)
	t.Cleanup(c.CloseIdle)
	return c
}

// answer is one in the given form; header is "Name: value" or "".
func answer(status int, media, body, header string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		if name, value, ok := strings.Cut(header, ": "); ok {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// refuse is a problem with this code.
func refuse(status int, code, header string) http.HandlerFunc {
	return answer(status, "application/problem+json", fmt.Sprintf(`{"type":"/errors/%[2]s","title":"t","status":%[1]d,"code":%[2]q,"field":"f","new":1}`, status, code), header)
}

// cutOff breaks the connection in place of an answer.
func cutOff(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

var created = answer(202, "application/json", `{"txId":"one","new":1}`, "")

var order = client.Intent{Submitter: "s", RequestID: "r", Payload: client.Payload{To: "0xa", Value: "1"}}

// The client repeats a request without a definite answer with a fresh token, and not before Retry-After.
func TestRepeatsUntilADefiniteAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t, cutOff, refuse(503, "UNAVAILABLE", "Retry-After: 1"), answer(502, "text/html", "<p>sorry", ""),
		answer(202, "application/json", `{"txId":`, ""), refuse(429, "QUEUE_FULL", ""), created)
	got, err := s.client(t, nil).CreateTx(t.Context(), order)
	if err != nil || got.TxID != "one" {
		t.Fatalf("got %+v, %v; want one", got, err)
	}
	var want []string
	for i := range 6 {
		want = append(want, fmt.Sprintf(`POST /api/v1/tx Bearer token%d {"submitter":"s","requestId":"r","payload":{"to":"0xa","value":"1"}}`, i+1))
	}
	asked, at := s.attempts()
	if !slices.Equal(asked, want) {
		t.Fatalf("asked: got %q, want %q", asked, want)
	}
	if waited := at[2].Sub(at[1]); waited < time.Second {
		t.Errorf("after Retry-After of 1 s: got %s, want at least that", waited)
	}
}

// errorOf is the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// An operator's act is sent once if its outcome is unknown, because another operator may have undone it. A refusal
// with a time is repeated, as are reads and acts with a key.
func TestActsAreNotRepeatedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	submitter, ctx := answer(200, "application/json", `{"submitter":"s"}`, ""), t.Context()
	resume := func(c *client.Client) error { return errorOf(c.ResumeSubmitter(ctx, "s", "r")) }
	for name, tc := range map[string]struct {
		first    http.HandlerFunc
		call     func(*client.Client) error
		attempts int
	}{
		"resume, no answer": {cutOff, resume, 1},
		"resume, 503":       {refuse(503, "UNAVAILABLE", "Retry-After: 0"), resume, 1},
		"resume, 429":       {refuse(429, "TOO_MANY_REQUESTS", ""), resume, 2},
		"a read":            {cutOff, func(c *client.Client) error { return errorOf(c.Submitter(ctx, "s")) }, 2},
		"an asset's terms":  {cutOff, func(c *client.Client) error { return errorOf(c.PutAsset(ctx, "deposits", client.AssetTerms{}, "r")) }, 1},
		"a registration":    {cutOff, func(c *client.Client) error { return errorOf(c.RegisterSubmitter(ctx, client.Registration{})) }, 2},
		"an approval":       {cutOff, func(c *client.Client) error { return errorOf(c.Approve(ctx, "p", "r")) }, 2},
		"a rejection":       {cutOff, func(c *client.Client) error { return errorOf(c.Reject(ctx, "p", "r")) }, 2},
		"a withdrawal":      {cutOff, func(c *client.Client) error { return errorOf(c.BookWithdrawal(ctx, 1, "USDC", client.Money{ID: "w"})) }, 2},
		"an account's end":  {cutOff, func(c *client.Client) error { return errorOf(c.SetAccountStatus(ctx, 1, "USDC", "DISABLED", "r")) }, 1},
		"a deposit":         {cutOff, func(c *client.Client) error { return errorOf(c.BookDeposit(ctx, 1, "USDC", client.Money{ID: "d"})) }, 2},
		"a transaction":     {cutOff, func(c *client.Client) error { return errorOf(c.CancelTxAsOperator(ctx, "t", "r")) }, 2},
	} {
		s := serve(t, tc.first, submitter)
		err := tc.call(s.client(t, nil))
		asked, _ := s.attempts()
		if len(asked) != tc.attempts || (err == nil) != (tc.attempts == 2) || err != nil && !errors.Is(err, client.ErrUnknown) {
			t.Errorf("%s: got %d attempts, %v; want %d, and an unknown outcome after one", name, len(asked), err, tc.attempts)
		}
	}
}

// A refusal is an error with its parts and is not repeated. After an earlier attempt without an answer the outcome stays
// unknown, unless the refusal covers that attempt too.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		script   []http.HandlerFunc
		code     string
		unknown  bool
		attempts int
	}{
		{"a field", []http.HandlerFunc{refuse(400, "INVALID_FIELD", "")}, "INVALID_FIELD", false, 1},
		{"full, for an hour", []http.HandlerFunc{refuse(429, "QUEUE_FULL", "Retry-After: 3600")}, "QUEUE_FULL", false, 1},
		{"full, until a date", []http.HandlerFunc{refuse(429, "QUEUE_FULL", "Retry-After: "+time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))}, "QUEUE_FULL", false, 1},
		{"later, with a conflict", []http.HandlerFunc{refuse(409, "NOT_LEADER", "Retry-After: 1"), refuse(409, "TOO_LATE", "")}, "TOO_LATE", false, 2},
		{"refused after no answer", []http.HandlerFunc{cutOff, refuse(409, "SUBMITTER_PROTECTED", "")}, "SUBMITTER_PROTECTED", true, 2},
		{"another's key, after no answer", []http.HandlerFunc{cutOff, refuse(409, "REQUEST_ID_CONFLICT", "")}, "REQUEST_ID_CONFLICT", false, 2},
		{"a page of somebody else's", []http.HandlerFunc{answer(404, "text/html", "<p>who?", "")}, "", true, 1},
		{"a redirect", []http.HandlerFunc{answer(307, "text/html", "", "Location: /elsewhere")}, "", true, 1},
		{"a problem that is too long", []http.HandlerFunc{refuse(400, strings.Repeat("X", 1<<17), "")}, "", true, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tc.script...)
			_, err := s.client(t, nil).CreateTx(t.Context(), order)
			asked, _ := s.attempts()
			p, ok := errors.AsType[*client.Problem](err)
			unknown := errors.Is(err, client.ErrUnknown)
			if !ok || p.Code != tc.code || tc.code != "" && p.Field != "f" || unknown != tc.unknown || len(asked) != tc.attempts {
				t.Errorf("got %v (unknown: %t) after %d attempts, want %s (%t) after %d", err, unknown, len(asked), tc.code, tc.unknown, tc.attempts)
			}
		})
	}
}

// The error for a transfer that exists and has failed has its id, whatever came before.
func TestATransferThatFailed(t *testing.T) {
	t.Parallel()
	s := serve(t, cutOff, answer(422, "application/problem+json", `{"status":422,"code":"INSUFFICIENT_BALANCE","req_id":"id","state":"FAILED","message":"m"}`, ""))
	_, err := s.client(t, nil).CreateTransfer(t.Context(), client.TransferRequest{From: "FUNDING", To: "SPOT", Asset: "USDT", Amount: "1"})
	if p, ok := errors.AsType[*client.Problem](err); !ok || p.ReqID != "id" || p.State != client.TransferFailed || p.Message != "m" || errors.Is(err, client.ErrUnknown) {
		t.Errorf("got %v, want the transfer's id and state", err)
	}
	if _, err := s.client(t, nil).CreateTransfer(t.Context(), client.TransferRequest{}); err == nil {
		t.Error("another: got no error")
	}
	asked, _ := s.attempts()
	key := func(i int) string { return asked[i][strings.Index(asked[i], `"cid":`):] }
	if len(asked) != 3 || key(0) != key(1) || key(1) == key(2) || strings.Contains(key(0), `""`) {
		t.Errorf("keys that were made up: got %q, want one for each call", asked)
	}
}

// A service that does not answer, or without end, is left: attempt by attempt, and when the caller's time is over.
func TestEnds(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	hang := func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-gone:
		}
	}
	endless := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for text := strings.Repeat(" ", 1<<20); ; {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
		}
	}
	s := serve(t, hang, endless, created)
	t.Cleanup(func() { close(gone) })
	got, err := s.client(t, func(o *client.Options) { o.AttemptTimeout = 500 * time.Millisecond }).CreateTx(t.Context(), order)
	if err != nil || got.TxID != "one" {
		t.Errorf("got %+v, %v; want one", got, err)
	}
	_, err = serve(t, endless).client(t, func(o *client.Options) { o.RetryFirst = time.Hour }).CreateTx(t.Context(), order)
	if !errors.Is(err, client.ErrUnknown) || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("without end: got %v, want that it is too long", err)
	}
	s = serve(t, hang)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = s.client(t, nil).CreateTx(ctx, order)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrUnknown) || time.Since(began) > 5*time.Second {
		t.Errorf("the caller's deadline: got %v after %s, want DeadlineExceeded and ErrUnknown", err, time.Since(began))
	}
	_, err = s.client(t, nil).CreateTx(ctx, order)
	if asked, _ := s.attempts(); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrUnknown) || len(asked) != 1 {
		t.Errorf("after it: got %v, want DeadlineExceeded and nothing asked", err)
	}
	if last, err := s.client(t, nil).WaitTx(ctx, "one"); !errors.Is(err, context.DeadlineExceeded) || last.TxID != "" {
		t.Errorf("wait after it: got %v, want DeadlineExceeded", err)
	}
}

// Those who were turned away together come back one by one.
func TestJitter(t *testing.T) {
	t.Parallel()
	const n, first = 40, 400 * time.Millisecond
	var waits []time.Duration
	var mu sync.Mutex
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			s := serve(t, refuse(503, "UNAVAILABLE", ""), created)
			if _, err := s.client(t, func(o *client.Options) { o.RetryFirst = first }).CreateTx(t.Context(), order); err != nil {
				t.Error(err)
				return
			}
			_, at := s.attempts()
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, at[1].Sub(at[0]))
		})
	}
	all.Wait()
	if spread := slices.Max(waits) - slices.Min(waits); spread < first/4 {
		t.Errorf("waits of %d callers: got %s apart, want them spread over %s", n, spread, first)
	}
}

// A wait continues after failed polls, and ends with the state or a refusal.
func TestWait(t *testing.T) {
	t.Parallel()
	state := func(state string) http.HandlerFunc {
		return answer(200, "application/json", fmt.Sprintf(`{"txId":"one","state":%q,"subState":null,"txHash":null}`, state), "")
	}
	s := serve(t, state("QUEUED"), cutOff, refuse(503, "UNAVAILABLE", "Retry-After: 7200"), state("TRACKING"), state("CONFIRMED"))
	got, err := s.client(t, nil).WaitTx(t.Context(), "one")
	if asked, _ := s.attempts(); err != nil || got.State != client.Confirmed || len(asked) != 5 {
		t.Errorf("got %+v, %v after %q; want CONFIRMED after 5 looks", got, err, asked)
	}
	s = serve(t, state("QUEUED"), refuse(404, "NOT_FOUND", ""))
	got, err = s.client(t, nil).WaitTx(t.Context(), "a/b?")
	if asked, _ := s.attempts(); client.CodeOf(err) != "NOT_FOUND" || got.State != client.Queued || !strings.HasPrefix(asked[0], "GET /api/v1/tx/a%2Fb%3F ") {
		t.Errorf("got %+v, %v of %q; want NOT_FOUND, and QUEUED as last seen", got, err, asked)
	}
}

// A policy with an empty list or map is refused, and not sent: without the member it would have no limit there.
func TestPolicyWithAnEmptyMemberIsNotSent(t *testing.T) {
	t.Parallel()
	s := serve(t, answer(200, "application/json", `{"submitter":"s"}`, ""))
	c := s.client(t, nil)
	for member, p := range map[string]client.Policy{
		"targets":   {MaxGas: 21_000, Targets: []string{}},
		"perCaller": {PerCaller: map[string]client.CallerLimits{}},
		"tokens":    {Tokens: map[string]client.TokenLimits{}},
	} {
		_, set := c.SetPolicy(t.Context(), "s", p, "r")
		_, registered := c.RegisterSubmitter(t.Context(), client.Registration{Submitter: "s", Policy: &p})
		for _, err := range []error{set, registered} {
			if err == nil || !strings.Contains(err.Error(), member+": ") || errors.Is(err, client.ErrUnknown) {
				t.Errorf("%+v: got %v, want an error that names %s", p, err, member)
			}
		}
	}
	if asked, _ := s.attempts(); len(asked) > 0 {
		t.Errorf("got %q sent, want nothing", asked)
	}
}

// The text of a policy is refused if its client would send it without a member that the text has. The error names the member.
func TestParsePolicy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"targets": []}`:                              "targets: ",
		`{"maxValue": "1", "maxGas": 0}`:               "maxGas: ",
		`{"maxValue": ""}`:                             "maxValue: ",
		`{"perCaller": {}}`:                            "perCaller: ",
		`{"perCaller": {"email:a": {"maxQueued": 0}}}`: "perCaller.email:a.maxQueued: ",
		`{"tokens": {"0xa": null}}`:                    "tokens.0xa: ",
		`{"MAXVALUE": "5"}`:                            "MAXVALUE: ",
		`{"maxvalues": "5"}`:                           `"maxvalues"`,
		`{"maxGas": "x"}`:                              "maxGas",
		` `:                                            "it is empty",
		`null`:                                         "it is null",
		`{} {}`:                                        "more than one value",
	} {
		if p, err := client.ParsePolicy([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v; want an error with %q", text, p, err, want)
		}
	}
	got := check.Value(client.ParsePolicy([]byte(`{"maxFeesPerDay": "0", "targets": ["deploy"], "maxGas": null, "perCaller": {"*": {"maxQueued": 3}}, "tokens": null}`)))(t)
	check.Same(t, "a policy", got, client.Policy{MaxFeesPerDay: "0", Targets: []string{"deploy"}, PerCaller: map[string]client.CallerLimits{"*": {MaxQueued: 3}}})
}

// The terms of an asset are read as strictly: an empty limit would limit nothing.
func TestParseAssetTerms(t *testing.T) {
	t.Parallel()
	if terms, err := client.ParseAssetTerms([]byte(`{"assetId": 7, "dailyPayout": ""}`)); err == nil || !strings.Contains(err.Error(), "dailyPayout: ") {
		t.Errorf("an empty limit: got %+v, %v; want an error that names it", terms, err)
	}
	got := check.Value(client.ParseAssetTerms([]byte(`{"assetId": 7, "internalTransfers": false}`)))(t)
	check.Same(t, "terms", got, client.AssetTerms{AssetID: 7, InternalTransfers: new(bool)})
}

// A wrong option is named.
func TestOptions(t *testing.T) {
	t.Parallel()
	token := func(context.Context) (string, error) { return "", nil }
	for want, o := range map[string]client.Options{
		"URL":    {URL: "api.fencepost.example", Token: token},
		"Token":  {URL: "https://api.fencepost.example"},
		"Within": {URL: "https://api.fencepost.example", Token: token, Within: -1},
	} {
		if _, err := client.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error about %s", err, want)
		}
	}
	c := check.Value(client.New(client.Options{URL: "http://127.0.0.1:1", Token: func(context.Context) (string, error) { return "", io.ErrUnexpectedEOF }}))(t)
	if _, err := c.CreateTx(t.Context(), order); !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, client.ErrUnknown) {
		t.Errorf("no token: got %v, want why, and nothing asked", err)
	}
}

// With a page, a list is one call: its rows, and where the next page begins. Without one it is all pages.
func TestOnePageOfAList(t *testing.T) {
	t.Parallel()
	s := serve(t, answer(200, "application/json", `{"acts":[{"act":"a"},{"act":"b"}],"nextPageToken":"next"}`, ""), answer(200, "application/json", `{"acts":[{"act":"c"}]}`, ""))
	c := s.client(t, nil)
	read := func(p *client.Page) (got string) {
		ctx := t.Context()
		if p != nil {
			ctx = client.WithPage(ctx, p)
		}
		for a, err := range c.ListActs(ctx, client.ActQuery{}) {
			check.OK(t)(err)
			got += a.Act
		}
		return got
	}
	first, second := new(client.Page), &client.Page{Token: "next"}
	check.Equal(t, "the first page", read(first)+" "+first.Next, "ab next")
	check.Equal(t, "the last page", read(second)+" "+second.Next, "c ")
	asked, _ := s.attempts()
	check.Equal(t, "calls", len(asked), 2)
	if !strings.Contains(asked[1], "pageToken=next") {
		t.Errorf("the second call: got %s, want the page's token", asked[1])
	}
	empty := serve(t, answer(200, "application/json", `{"acts":[],"nextPageToken":"next"}`, ""), answer(200, "application/json", `{"acts":[{"act":"d"}]}`, ""))
	c = empty.client(t, nil)
	check.Equal(t, "all pages, the first of them empty", read(nil), "d")
}
