// Package attacks runs attacks against a whole deployment by attackers without rights, or with fewer
// rights than they need. Function processes, Postgres and chain are real.
package attacks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	checks "github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func TestMain(m *testing.M) {
	acceptancetest.Main(m, "emulator/acceptance/attacks", func(bool) error { return nil }, acceptancetest.Server, acceptancetest.Core)
}

var (
	check    = acceptancetest.Check
	parallel = acceptancetest.Parallel
)

func must[T any](v T, err error) func(testing.TB) T { return acceptancetest.Must(v, err) }

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	checks.Equal(t, what, got, want)
}

// deployment is a running stack with direct access to its database and chain.
type deployment struct {
	*acceptancetest.Deployment
	ctx     context.Context
	answers *acceptancetest.Log // all that the public paths answered
}

// setup starts a stack for t: few submitters, quick blocks, and by default no sweep.
func setup(t *testing.T, o stack.Options) deployment {
	t.Helper()
	o.Submitters, o.BlockTime, o.SweepEvery = cmp.Or(o.Submitters, 2), cmp.Or(o.BlockTime, 250*time.Millisecond), cmp.Or(o.SweepEvery, -1)
	answers := new(acceptancetest.Log)
	o.Around = func(next http.Handler) http.Handler { return keep(answers, next) }
	ctx, cancel := context.WithTimeout(t.Context(), acceptancetest.Within)
	t.Cleanup(cancel)
	return deployment{acceptancetest.StartFor(ctx, t, o), ctx, answers}
}

// keep writes down what next answers.
func keep(to *acceptancetest.Log, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&kept{w, to}, r)
		fmt.Fprintf(to, "\n%v\n", w.Header())
	})
}

type kept struct {
	http.ResponseWriter
	to *acceptancetest.Log
}

func (k *kept) Unwrap() http.ResponseWriter { return k.ResponseWriter }

func (k *kept) Write(p []byte) (int, error) {
	_, _ = k.to.Write(p)
	return k.ResponseWriter.Write(p)
}

func (h deployment) operator(t *testing.T) *client.Client {
	t.Helper()
	return must(h.Client(stack.OperatorAccount))(t)
}

type answer struct {
	status int
	Code   string
	Field  string
	Detail string

	TxID, State, SubState, LastError string

	Transactions []struct{ RequestID string }
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.Code) }

// want checks status and code of the answer, and the field if one is given.
func (a answer) want(t *testing.T, what, want string, field ...string) {
	t.Helper()
	if a.String() != want || len(field) > 0 && a.Field != field[0] {
		t.Errorf("%s: got %v %q (%s), want %s %v", what, a, a.Field, a.Detail, want, field)
	}
}

func (a answer) wantStatus(t *testing.T, what string, want int) {
	t.Helper()
	if a.status != want {
		t.Errorf("%s: got %v (%s), want %d", what, a, a.Detail, want)
	}
}

// wantKnown checks that the answer is that of a known request.
func (a answer) wantKnown(t *testing.T, what, txID string) {
	t.Helper()
	if a.status != http.StatusOK || a.TxID != txID {
		t.Errorf("%s: got %v %s, want 200 %s", what, a, a.TxID, txID)
	}
}

// code returns the code by which a call of the client was refused.
func code[T any](_ T, err error) string { return client.CodeOf(err) }

func (h deployment) call(t *testing.T, token, method, path string, body any) (a answer) {
	t.Helper()
	status, text, err := stack.CallWith(h.ctx, token, method, h.URLMap.PublicURL()+path, body)
	check(t, err, method, path)
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&a); err != nil {
		t.Fatalf("%s %s: %d %s: %v", method, path, status, text, err)
	}
	a.status = status
	return a
}

func (h deployment) token(t *testing.T, account string) string {
	t.Helper()
	return must(h.Issuer.Token(h.ctx, account, stack.PublicAudience))(t)
}

// mint is a token that says what claims say.
func (h deployment) mint(t *testing.T, claims map[string]any) string {
	t.Helper()
	return must(h.Issuer.Mint(stack.PublicAudience, claims))(t)
}

// intent returns an intent that sends one wei to an unused address.
func intent(s txmanager.Submitter, requestID string) map[string]any {
	return map[string]any{
		"submitter": s, "requestId": requestID,
		"payload": map[string]any{"to": "0x00000000000000000000000000000000000cafe0", "value": "1"},
	}
}

func (h deployment) post(t *testing.T, token string, s txmanager.Submitter, requestID string) answer {
	t.Helper()
	return h.call(t, token, http.MethodPost, "/api/v1/tx", intent(s, requestID))
}

func (h deployment) count(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	check(t, h.DB.QueryRow(h.ctx, query, args...).Scan(&n))
	return n
}

func (h deployment) wantCount(t *testing.T, what string, want int, query string, args ...any) {
	t.Helper()
	equal(t, what, h.count(t, query, args...), want)
}

// until waits for the condition. The text is the message of a test that waits in vain.
func (h deployment) until(t *testing.T, wrong string, met func() bool) {
	t.Helper()
	check(t, acceptancetest.Wait(h.ctx, met), wrong)
}

func (h deployment) await(t *testing.T, txID, state string) {
	t.Helper()
	h.until(t, txID+" is not "+state, func() bool {
		return h.count(t, `select count(*) from managed_tx where tx_id = $1 and state = $2`, txID, state) == 1
	})
}
