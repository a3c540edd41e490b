package signin

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fencepost/fencepost/shared/check"
)

// slowIssuer answers the discovery document when the test says so.
type slowIssuer struct {
	asked   int
	answers chan error // nil: the document
}

func (s *slowIssuer) RoundTrip(*http.Request) (*http.Response, error) {
	s.asked++
	if err := <-s.answers; err != nil {
		return nil, err
	}
	const document = `{"issuer": "https://people.example", "authorization_endpoint": "https://people.example/authorize", "token_endpoint": "https://people.example/token"}`
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(document))}, nil
}

// Sign-ins at the same time make one request for the discovery document. If it fails they all fail, and the next sign-in
// makes another. After a document there is none.
func TestSignInsShareOneDiscovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		people := &slowIssuer{answers: make(chan error)}
		c := codeFlow{newIssuer(Options{
			Issuer: "https://people.example", ClientID: "console", Sealer: sealerOf(t, "a"), Log: slog.New(slog.DiscardHandler),
			Page: func(w http.ResponseWriter, status int, _, _ string) { w.WriteHeader(status) },
		})}
		c.client.Transport = people
		for i, step := range []struct {
			answer        error
			status, asked int
		}{{errors.New("refused"), 503, 1}, {nil, 303, 2}} {
			var all sync.WaitGroup
			var statuses [5]int
			for n := range statuses {
				all.Go(func() {
					r := httptest.NewRequest(http.MethodGet, "/console/sign-in", nil)
					r.Host = "console.example"
					w := httptest.NewRecorder()
					c.signIn(w, r)
					statuses[n] = w.Code
				})
			}
			synctest.Wait() // each waits for the issuer
			check.Equal(t, fmt.Sprint("requests, round ", i), people.asked, step.asked)
			people.answers <- step.answer
			all.Wait()
			check.Equal(t, fmt.Sprint("statuses, round ", i), statuses, [5]int{step.status, step.status, step.status, step.status, step.status})
		}
		w := httptest.NewRecorder()
		c.signIn(w, httptest.NewRequest(http.MethodGet, "/console/sign-in", nil))
		check.Equal(t, "with the document", fmt.Sprint(w.Code, " ", people.asked), "303 2")
	})
}
