// Package attacks runs attacks against a whole deployment by attackers without rights, or with fewer
// rights than they need. Function processes, Postgres and chain are real.
package attacks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/runbooks"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web/webtest"
)

// binary and core are the function server and the trading core, built once for all tests,
// with the race detector where the tests have it.
var binary, core string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "fencepost-attacks-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if binary, err = stack.Build(context.Background(), folder, raceFlags...); err == nil {
		core, err = ubscore.Build(context.Background(), folder, raceFlags...)
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
		if err = errors.Join(runbooks.Unproven("emulator/acceptance/attacks"), processes.Races()); code == 0 && err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.RemoveAll(folder)
	os.Exit(code)
}

// within bounds everything that a test waits for.
const within = 8 * time.Minute

// deployment is a running stack with direct access to its database and chain.
type deployment struct {
	*stack.Stack
	DB      *pgxpool.Pool
	ctx     context.Context
	log     *testLog
	answers *testLog // all that the public paths answered
}

// setup starts a stack for t: few submitters, quick blocks, no sweep unless the test says
// otherwise.
func setup(t *testing.T, o stack.Options) deployment {
	t.Helper()
	var err error
	if o.Cluster, err = pgcluster.Shared(); err != nil {
		t.Fatal(err)
	}
	o.Binary, o.Core.Binary = binary, core
	if o.BlockTime == 0 {
		o.BlockTime = 250 * time.Millisecond
	}
	if o.Submitters == 0 {
		o.Submitters = 2
	}
	if o.SweepEvery == 0 {
		o.SweepEvery = -1
	}
	log := &testLog{t: t}
	o.Output = log
	watch, err := webtest.NewWatch("../../../functions/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	answers := &testLog{t: t}
	o.Around = func(next http.Handler) http.Handler { return answers.keep(watch.Around(next)) }
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	s, err := stack.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), watch.Err()); err != nil {
			t.Errorf("stop: %v", err)
		}
		log.show()
	})
	db, err := pgxpool.New(ctx, s.Database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return deployment{s, db, ctx, log, answers}
}

// testLog keeps the functions' log and shows it if the test failed.
type testLog struct {
	t    *testing.T
	mu   sync.Mutex
	text []byte
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

// has reports whether the log contains the text.
func (l *testLog) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.text, []byte(text))
}

// keep writes down what next answers.
func (l *testLog) keep(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&kept{w, l}, r)
		fmt.Fprintf(l, "\n%v\n", w.Header())
	})
}

type kept struct {
	http.ResponseWriter
	to *testLog
}

func (k *kept) Unwrap() http.ResponseWriter { return k.ResponseWriter }

func (k *kept) Write(p []byte) (int, error) {
	_, _ = k.to.Write(p)
	return k.ResponseWriter.Write(p)
}

func (l *testLog) show() {
	if l.t.Failed() {
		const most = 40_000
		l.t.Logf("the functions' log, its end:\n%s", l.text[max(0, len(l.text)-most):])
	}
}

// operator calls as the operator.
func (h deployment) operator(t *testing.T) *client.Client {
	t.Helper()
	c, err := h.Client(stack.OperatorAccount)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// answer is what a request was answered.
type answer struct {
	status int
	Code   string
	Field  string
	Detail string
	TxID   string

	Transactions []struct{ RequestID string }
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.Code) }

// call makes one request with the token.
func (h deployment) call(t *testing.T, token, method, path string, body any) (a answer) {
	t.Helper()
	status, text, err := stack.CallWith(h.ctx, token, method, h.URLMap.PublicURL()+path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&a); err != nil {
		t.Fatalf("%s %s: %d %s: %v", method, path, status, text, err)
	}
	a.status = status
	return a
}

// token is one of the account, with a verified e-mail.
func (h deployment) token(t *testing.T, account string) string {
	t.Helper()
	token, err := h.Issuer.Token(h.ctx, account, stack.PublicAudience)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// mint is a token that says what claims say.
func (h deployment) mint(t *testing.T, claims map[string]any) string {
	t.Helper()
	token, err := h.Issuer.Mint(stack.PublicAudience, claims)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// intent returns an intent that sends one wei to an unused address.
func intent(s txmanager.Submitter, requestID string) map[string]any {
	return map[string]any{
		"submitter": s, "requestId": requestID,
		"payload": map[string]any{"to": "0x00000000000000000000000000000000000cafe0", "value": "1"},
	}
}

// post posts an intent with the token.
func (h deployment) post(t *testing.T, token string, s txmanager.Submitter, requestID string) answer {
	t.Helper()
	return h.call(t, token, http.MethodPost, "/api/v1/tx", intent(s, requestID))
}

// count is the one number that the query says.
func (h deployment) count(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	if err := h.DB.QueryRow(h.ctx, query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// await waits until the transaction is in the state.
func (h deployment) await(t *testing.T, txID, state string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for h.count(t, `select count(*) from managed_tx where tx_id = $1 and state = $2`, txID, state) == 0 {
		select {
		case <-h.ctx.Done():
			t.Fatalf("%s: not %s: %v", txID, state, h.ctx.Err())
		case <-tick.C:
		}
	}
}
