package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// A lost request of a retired submitter is refused with the field that names it.
func TestReleaseOfARetiredSubmitterNamesTheField(t *testing.T) {
	t.Parallel()
	p, ok := errors.AsType[*web.Problem](releaseProblem(fmt.Errorf("release: %w", store.ErrRetired)))
	if !ok || p.Code != web.InvalidField || p.Field != "requests" {
		t.Errorf("got %+v, want INVALID_FIELD of requests", p)
	}
}

// A release's fill is bounded, and valid only with resync.
func TestFillOfAReleaseIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode  txmanager.ReleaseMode
		fill  *uint64
		taken bool
	}{
		"none":          {txmanager.Resync, nil, true},
		"one":           {txmanager.Resync, new(uint64(1)), true},
		"the widest":    {txmanager.Resync, new(uint64(10_000)), true},
		"nothing":       {txmanager.Resync, new(uint64(0)), false},
		"too many":      {txmanager.Resync, new(uint64(10_001)), false},
		"with a resume": {txmanager.Resume, new(uint64(1)), false},
	} {
		body := releaseRequest{Incident: new(1), Mode: c.mode, Reason: "r", Fill: c.fill}
		if c.mode == txmanager.Resync {
			body.Count = new(uint64(1))
		}
		l, err := leaveOf(body)
		p, refused := errors.AsType[*web.Problem](err)
		switch {
		case c.taken && (err != nil || l.Fill != c.fill):
			t.Errorf("%s: got %v, %v; want it taken", name, l.Fill, err)
		case !c.taken && (!refused || p.Field != "fill"):
			t.Errorf("%s: got %v; want fill refused", name, err)
		}
	}
	for _, err := range []error{txmanager.FillError{Why: "is 1"}, txmanager.ErrFillRequired} {
		if p, ok := errors.AsType[*web.Problem](releaseProblem(err)); !ok || p.Field == "" {
			t.Errorf("%v: got %v, want a problem of a field", err, releaseProblem(err))
		}
	}
	if p, ok := errors.AsType[*web.Problem](releaseProblem(txmanager.ErrNotYetFinal)); !ok || p.Code != web.Unavailable {
		t.Errorf("not quiet: got %v, want 503", releaseProblem(txmanager.ErrNotYetFinal))
	}
}

// A release has one spelling for "no request", and no new request may have that name, as a release
// could not name it.
func TestNoneIsNoRequest(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"None", "NONE", " none", "none "} {
		_, err := leaveOf(releaseRequest{Incident: new(1), Mode: txmanager.Resync, Reason: "r", Count: new(uint64(1)), Requests: map[uint64]string{0: name}})
		if p, ok := errors.AsType[*web.Problem](err); !ok || p.Field != "requests" {
			t.Errorf("a release that says %q: got %v, want requests refused", name, err)
		}
		if p, ok := errors.AsType[*web.Problem](serve.NewRequestID("requestId", name)); !ok || p.Field != "requestId" {
			t.Errorf("a new request %q: got %v, want it refused", name, serve.NewRequestID("requestId", name))
		}
	}
	if _, err := leaveOf(releaseRequest{Incident: new(1), Mode: txmanager.Resync, Reason: "r", Count: new(uint64(2)), Requests: map[uint64]string{0: "none", 1: "none"}}); err != nil {
		t.Errorf("none of two: got %v", err)
	}
	if err := errors.Join(serve.NewRequestID("requestId", "none-1"), serve.NewRequestID("requestId", "nobody")); err != nil {
		t.Errorf("other names: got %v", err)
	}
}

// The proof that named requests were carried out is checked by its form, and valid only with resync. A
// request without proof is refused with the field that would prove it.
func TestProofOfAReleaseIsChecked(t *testing.T) {
	t.Parallel()
	h := "0x" + strings.Repeat("ab", 32)
	resync := releaseRequest{Incident: new(1), Mode: txmanager.Resync, Reason: "r", Count: new(uint64(9))}
	for name, c := range map[string]struct {
		mode     txmanager.ReleaseMode
		requests map[uint64]string
		hashes   map[uint64]string
		executed map[uint64]string
		field    string // "": accepted
	}{
		"a hash":                    {txmanager.Resync, map[uint64]string{7: "r-7"}, map[uint64]string{7: h}, nil, ""},
		"a hash of no request":      {txmanager.Resync, nil, map[uint64]string{7: h}, nil, ""},
		"a statement":               {txmanager.Resync, map[uint64]string{7: "r-7"}, nil, map[uint64]string{7: "the explorer"}, ""},
		"both for two nonces":       {txmanager.Resync, map[uint64]string{6: "r-6", 7: "r-7"}, map[uint64]string{6: h}, map[uint64]string{7: "the explorer"}, ""},
		"no hash":                   {txmanager.Resync, nil, map[uint64]string{7: "0xab"}, nil, "hashes"},
		"an empty hash":             {txmanager.Resync, nil, map[uint64]string{7: ""}, nil, "hashes"},
		"a hash with resume":        {txmanager.Resume, nil, map[uint64]string{7: h}, nil, "hashes"},
		"a statement with resume":   {txmanager.Resume, nil, nil, map[uint64]string{7: "the explorer"}, "executed"},
		"an empty statement":        {txmanager.Resync, map[uint64]string{7: "r-7"}, nil, map[uint64]string{7: " "}, "executed"},
		"a long statement":          {txmanager.Resync, map[uint64]string{7: "r-7"}, nil, map[uint64]string{7: strings.Repeat("x", serve.MaxReason+1)}, "executed"},
		"a statement of no request": {txmanager.Resync, nil, nil, map[uint64]string{7: "the explorer"}, "executed"},
		"a statement of none":       {txmanager.Resync, map[uint64]string{7: "none"}, nil, map[uint64]string{7: "the explorer"}, "executed"},
		"a statement beside a hash": {txmanager.Resync, map[uint64]string{7: "r-7"}, map[uint64]string{7: h}, map[uint64]string{7: "the explorer"}, "executed"},
	} {
		body := resync
		if body.Mode, body.Requests, body.Hashes, body.Executed = c.mode, c.requests, c.hashes, c.executed; c.mode == txmanager.Resume {
			body.Count = nil
		}
		l, err := leaveOf(body)
		p, refused := errors.AsType[*web.Problem](err)
		switch {
		case c.field == "" && (err != nil || len(l.Hashes) != len(c.hashes) || len(l.Executed) != len(c.executed)):
			t.Errorf("%s: got %+v, %v; want it taken", name, l, err)
		case c.field != "" && (!refused || p.Code != web.InvalidField || p.Field != c.field):
			t.Errorf("%s: got %v; want %s refused", name, err, c.field)
		}
	}
	for _, field := range []string{"hashes", "executed"} {
		err := releaseProblem(txmanager.UnprovedError{Field: field, Nonce: 7, Why: "no node tells"})
		if p, ok := errors.AsType[*web.Problem](err); !ok || p.Code != web.InvalidField || p.Field != field || !strings.Contains(p.Detail, "nonce 7") {
			t.Errorf("%s: got %v, want 400 of that field with the nonce", field, err)
		}
	}
}

// A foreign transaction that already proves another payout is refused with a separate code.
func TestAUsedProofHasItsOwnCode(t *testing.T) {
	t.Parallel()
	err := serve.Problem(fmt.Errorf("match: %w", store.ErrProofUsed))
	if p, ok := errors.AsType[*web.Problem](err); !ok || p.Code.Name != "PROOF_USED" || p.Code.Status != http.StatusConflict || !strings.Contains(p.Detail, "write-off") {
		t.Errorf("got %v, want 409 PROOF_USED with what to do", err)
	}
}
