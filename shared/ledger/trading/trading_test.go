package trading_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/porttest"
	"github.com/fencepost/fencepost/shared/transfer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "the core's secret"

// saying returns a client of a server that gives this response to every request. emulator/fake/ubscore
// tests the real core.
func saying(t *testing.T, status int, body string) *trading.Ledger {
	t.Helper()
	return answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

func answering(t *testing.T, handler http.HandlerFunc) *trading.Ledger {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return client(t, s.URL, time.Minute)
}

func client(t *testing.T, url string, timeout time.Duration) *trading.Ledger {
	t.Helper()
	l := check.Value(trading.New(trading.Options{URL: url, Secret: secret, Timeout: timeout}))(t)
	t.Cleanup(l.Close)
	return l
}

func call() transfer.Call {
	return transfer.Call{ReqID: "R", UserID: 7, AssetID: 1, Units: 3, CreatedAt: time.Unix(1e9, 0)}
}

const (
	applied = `{"op": "withdraw", "reqId": "R", "outcome": "applied", "seq": 9}`
	refused = `{"op": "withdraw", "reqId": "R", "outcome": "refused", "reason": "ACCOUNT_FROZEN", "seq": 9}`
)

// Only two bodies with status 200 decide.
func TestOnlyStatus200Decides(t *testing.T) {
	t.Parallel()
	check.Equal(t, applied, saying(t, 200, applied).Withdraw(t.Context(), call()), (transfer.Outcome{Verdict: transfer.Success}))
	want := transfer.Outcome{Verdict: transfer.Refused, Reason: transfer.AccountFrozen}
	check.Equal(t, refused, saying(t, 200, refused).Withdraw(t.Context(), call()), want)
}

// Every other response is unknown.
func TestEverythingElseIsUnknown(t *testing.T) {
	t.Parallel()
	for _, status := range []int{201, 202, 204, 301, 307, 400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 502, 503, 504} {
		for _, body := range []string{applied, refused, "", `{"code": "INSUFFICIENT_BALANCE"}`} {
			if status == 204 {
				body = ""
			}
			wantUnknown(t, fmt.Sprint(status, " ", body), saying(t, status, body).Withdraw(t.Context(), call()))
		}
	}
	for _, edit := range [][2]string{
		{`"withdraw"`, `"deposit"`}, {`"R"`, `"S"`}, {`"R"`, `"r"`}, {`9`, `0`}, {`9`, `"9"`}, {`9`, `-9`}, {`"op": "withdraw", `, ``}, {`"reqId": "R", `, ``},
		{`"refused"`, `"applied"`}, {`"refused"`, `"REFUSED"`}, {`"refused"`, `"pending"`}, {`"refused"`, `null`}, {`"outcome": "refused", `, ``},
		{`, "reason": "ACCOUNT_FROZEN"`, ``}, {`ACCOUNT_FROZEN`, ``}, {`ACCOUNT_FROZEN`, `because`}, {`"outcome"`, `"Outcome"`},
		{`"outcome"`, `"outcome": "applied", "outcome"`}, {`"seq"`, `"pending": true, "seq"`}, {`9}`, `9}{}`}, {`9}`, `9`}, {refused, ``}, {refused, `null`}, {refused, `[]`},
	} {
		body := strings.Replace(refused, edit[0], edit[1], 1)
		if body == refused {
			t.Fatalf("%q is not in the answer", edit[0])
		}
		wantUnknown(t, body, saying(t, 200, body).Withdraw(t.Context(), call()))
	}
	long := strings.Replace(applied, `{`, `{`+strings.Repeat(" ", 9<<20), 1)
	wantUnknown(t, "an answer of 9 MiB", saying(t, 200, long).Withdraw(t.Context(), call()))
	wantUnknown(t, "a page", answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, applied)
	}).Withdraw(t.Context(), call()))
}

func wantUnknown(t *testing.T, what string, got transfer.Outcome) {
	t.Helper()
	if got.Verdict != transfer.Unknown || got.Reason != "" || got.Err == nil || strings.Contains(got.Err.Error(), secret) {
		t.Errorf("%.200s: got %+v, want unknown, with its cause and without the secret", what, got)
	}
}

// A refund has no refusal, even if the core reports one.
func TestRefusedRefundIsUnknown(t *testing.T) {
	t.Parallel()
	body := strings.Replace(refused, "withdraw", "refund", 1)
	wantUnknown(t, body, saying(t, 200, body).Refund(t.Context(), call()))
	l := saying(t, 200, body)
	wantUnknown(t, "resolve: "+body, l.Resolve(t.Context(), transfer.Refund, call()))
}

// Invalid calls are sent, so that the core stores their refusal. If the core applied one, the
// result is unknown.
func TestInvalidCallsAreSentAndNeverSucceed(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(*transfer.Call){
		"amount": func(c *transfer.Call) { c.Units = 0 },
		"user":   func(c *transfer.Call) { c.UserID = 0 },
		"asset":  func(c *transfer.Call) { c.AssetID = -1 },
	} {
		c := call()
		spoil(&c)
		wantUnknown(t, what, saying(t, 200, applied).Withdraw(t.Context(), c))
		check.Equal(t, what, saying(t, 200, refused).Withdraw(t.Context(), c).Verdict, transfer.Refused)
	}
	var asked atomic.Int32
	l := answering(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	for what, spoil := range map[string]func(*transfer.Call){
		"no id":   func(c *transfer.Call) { c.ReqID = "" },
		"id":      func(c *transfer.Call) { c.ReqID = "R\xff" },
		"no time": func(c *transfer.Call) { c.CreatedAt = time.Time{} },
	} {
		c := call()
		spoil(&c)
		wantUnknown(t, what, l.Withdraw(t.Context(), c))
	}
	wantUnknown(t, "op", l.Resolve(t.Context(), "steal", call()))
	wantUnknown(t, "status", l.SetStatus(t.Context(), call(), "GONE"))
	wantUnknown(t, "precision", l.AddAsset(t.Context(), "R", 1, 9, time.Now()))
	check.Equal(t, "requests of calls that no body can say", asked.Load(), 0)
}

// Each call ends at the ledger's time-out or at its context's deadline, whichever is first, also in
// the middle of an answer.
func TestCallsEndByTheEarlierDeadline(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	for _, begin := range []string{"", applied[:20]} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, begin)
			if begin != "" {
				_ = http.NewResponseController(w).Flush()
			}
			<-hang
		}))
		t.Cleanup(s.Close)
		got := client(t, s.URL, 50*time.Millisecond).Withdraw(t.Context(), call())
		wantUnknown(t, "the ledger's time-out", got)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		again := client(t, s.URL, time.Minute).Withdraw(ctx, call())
		wantUnknown(t, "the context's", again)
		if !errors.Is(got.Err, context.DeadlineExceeded) || !errors.Is(again.Err, context.DeadlineExceeded) {
			t.Errorf("causes: got %v and %v, want %v", got.Err, again.Err, context.DeadlineExceeded)
		}
	}
	close(hang)
}

// A missing core or a broken connection is unknown.
func TestBrokenConnectionsAreUnknown(t *testing.T) {
	t.Parallel()
	url := "http://" + porttest.Refused(t)
	wantUnknown(t, "nobody there", client(t, url, time.Minute).Withdraw(t.Context(), call()))
	for _, begin := range []string{"", applied[:len(applied)-1]} {
		l := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", fmt.Sprint(len(applied)))
			_, _ = io.WriteString(w, begin)
			panic(http.ErrAbortHandler)
		})
		wantUnknown(t, "a broken answer", l.Withdraw(t.Context(), call()))
	}
}

// The secret is sent to the core only, and not to the target of a redirect.
func TestRedirectsNeverGetTheSecret(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a request to where the core pointed, with %q", r.Header.Get("Authorization"))
	}))
	t.Cleanup(elsewhere.Close)
	l := answering(t, func(w http.ResponseWriter, r *http.Request) {
		check.Equal(t, "authorization", r.Header.Get("Authorization"), "Bearer "+secret)
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	wantUnknown(t, "a redirect", l.Withdraw(t.Context(), call()))
}

// Invalid options are refused, without the secret in the error.
func TestInvalidOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []trading.Options{
		{URL: "", Secret: secret}, {URL: "127.0.0.1:80", Secret: secret}, {URL: "ftp://a", Secret: secret}, {URL: "http://", Secret: secret},
		{URL: "http://a/v1", Secret: secret}, {URL: "http://u:p@a", Secret: secret}, {URL: "http://a?b", Secret: secret}, {URL: "http://a"},
	} {
		if _, err := trading.New(o); err == nil || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%+v: got %v, want it refused without a secret in the text", o, err)
		}
	}
}

func line(seq int, op string) string {
	return fmt.Sprintf(`{"seq": %d, "op": %q, "reqId": "R", "userId": 7, "assetId": 1, "units": "3", "createdAt": "2026-01-02T15:04:05Z", "at": "2026-01-02T15:04:06Z", "outcome": "applied"}`, seq, op)
}

// The journal is read without a gap, whatever its lines are about. Only an empty page is the end.
func TestJournalIsReadWithoutGaps(t *testing.T) {
	t.Parallel()
	lines := []string{line(1, "asset"), line(2, "floor"), line(3, "account_status"), line(4, "deposit"), line(5, "asset"), line(6, "refund")}
	l := answering(t, func(w http.ResponseWriter, r *http.Request) {
		var after, limit int
		check.Err(t, fmt.Sprintf("query %q", r.URL.RawQuery), nil)(fmt.Sscanf(r.URL.RawQuery, "after=%d&limit=%d", &after, &limit))
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"entries": [%s], "last": 6}`, strings.Join(lines[min(after, 6):min(after+limit, 6)], ","))
	})
	for _, limit := range []int{-1, 1, 2, 5, 100} {
		var got []uint64
		for after := uint64(0); ; {
			some, last, err := l.Journal(t.Context(), after, limit)
			if err != nil || last != 6 {
				t.Fatalf("after line %d: last line %d, error %v; want 6", after, last, err)
			}
			if len(some) == 0 {
				break
			}
			for _, one := range some {
				got, after = append(got, one.Seq), one.Seq
			}
		}
		check.Same(t, fmt.Sprintf("lines by a limit of %d", limit), got, []uint64{1, 2, 3, 4, 5, 6})
	}
	want := transfer.Entry{Seq: 4, ReqID: "R", Op: transfer.Deposit, UserID: 7, AssetID: 1, Units: 3, At: time.Date(2026, 1, 2, 15, 4, 6, 0, time.UTC)}
	if got, _, err := l.Journal(t.Context(), 3, 1); err != nil || len(got) != 1 || got[0].Entry != want || got[0].Precision != nil {
		t.Errorf("line 4: got %+v, %v; want %+v", got, err, want)
	}
}

// A journal with a gap, a repetition or an unreadable line is an error.
func TestBrokenJournalIsAnError(t *testing.T) {
	t.Parallel()
	for what, body := range map[string]string{
		"a hole":          `{"entries": [` + line(1, "deposit") + `,` + line(3, "deposit") + `], "last": 3}`,
		"begins late":     `{"entries": [` + line(2, "deposit") + `], "last": 2}`,
		"twice":           `{"entries": [` + line(1, "deposit") + `,` + line(1, "deposit") + `], "last": 2}`,
		"more than asked": `{"entries": [` + line(1, "deposit") + `,` + line(2, "deposit") + `,` + line(3, "deposit") + `], "last": 3}`,
		"empty too early": `{"entries": [], "last": 2}`,
		"units":           `{"entries": [` + strings.Replace(line(1, "deposit"), `"3"`, `"3.5"`, 1) + `], "last": 1}`,
		"time":            `{"entries": [` + strings.Replace(line(1, "deposit"), `06Z`, `06`, 1) + `], "last": 1}`,
		"outcome":         `{"entries": [` + strings.Replace(line(1, "deposit"), `applied`, `refused`, 1) + `], "last": 1}`,
		"unknown member":  `{"entries": [], "last": 0, "more": true}`,
		"nothing":         `{}`,
		"no entries":      `{"entries": null, "last": 0}`,
		"no last":         `{"entries": [` + line(1, "deposit") + `]}`,
		"no user":         `{"entries": [` + strings.Replace(line(1, "deposit"), `"userId": 7, `, ``, 1) + `], "last": 1}`,
	} {
		if got, _, err := saying(t, 200, body).Journal(t.Context(), 0, 2); err == nil {
			t.Errorf("%s: got %+v, want an error", what, got)
		}
	}
	if _, _, err := saying(t, 503, `{"code": "HALTED"}`).Journal(t.Context(), 0, 2); err == nil || !strings.Contains(err.Error(), "HALTED") {
		t.Errorf("halted: got %v, want an error with the code", err)
	}
}

// Balances after another line, or of another account, are rejected.
func TestBalancesThatDoNotFitAreRejected(t *testing.T) {
	t.Parallel()
	page := `{"seq": 5, "accounts": [{"userId": 7, "assetId": 1, "units": "3", "status": "ACTIVE"}]}`
	var seq atomic.Uint64
	grows := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"seq": %d, "accounts": [], "next": "6:1"}`, seq.Add(1))
	})
	if _, got, err := grows.AllBalances(t.Context()); err == nil || !strings.Contains(err.Error(), "they are of line 2, want line 1") {
		t.Errorf("a page of another line: got %+v, %v, want an error", got, err)
	}
	for wrong, text := range map[string]string{
		"a balance that is none": strings.Replace(page, `"3"`, `"x"`, 1),
		"nothing":                `{}`,
		"no accounts":            `{"seq": 5}`,
		"no line":                strings.Replace(page, `"seq": 5, `, ``, 1),
		"no user":                strings.Replace(page, `"userId": 7, `, ``, 1),
		"no asset":               strings.Replace(page, `"assetId": 1, `, ``, 1),
		"no units":               strings.Replace(page, `"units": "3", `, ``, 1),
	} {
		if _, got, err := saying(t, 200, text).AllBalances(t.Context()); err == nil {
			t.Errorf("%s: got %+v, want an error", wrong, got)
		}
	}
	one := `{"seq": 5, "account": {"userId": 8, "assetId": 1, "units": "3", "status": "ACTIVE"}}`
	if got, _, err := saying(t, 200, one).Balance(t.Context(), 7, 1); err == nil {
		t.Errorf("another user's balance: got %+v, want an error", got)
	}
	if got, exists, err := saying(t, 404, `{"code": "ACCOUNT_NOT_FOUND"}`).Balance(t.Context(), 7, 1); err != nil || exists {
		t.Errorf("no account: got %+v, %v, %v; want none", got, exists, err)
	}
	if got, exists, err := saying(t, 404, `{"code": "NOT_FOUND"}`).Balance(t.Context(), 7, 1); err == nil {
		t.Errorf("no such path: got %+v, %v; want an error", got, exists)
	}
}
