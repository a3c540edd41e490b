package functions

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/web"
)

// What a release is to fill is bounded, and goes with resync.
func TestFillOfAReleaseIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode  nonce.ReleaseMode
		fill  *uint64
		taken bool
	}{
		"none":          {nonce.Resync, nil, true},
		"one":           {nonce.Resync, new(uint64(1)), true},
		"the widest":    {nonce.Resync, new(uint64(10_000)), true},
		"nothing":       {nonce.Resync, new(uint64(0)), false},
		"too many":      {nonce.Resync, new(uint64(10_001)), false},
		"with a resume": {nonce.Resume, new(uint64(1)), false},
	} {
		body := releaseRequest{Episode: new(1), Mode: c.mode, Reason: "r", Fill: c.fill}
		if c.mode == nonce.Resync {
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
	for _, err := range []error{nonce.ErrFill{Why: "is 1"}, nonce.ErrUnfilled} {
		if p, ok := errors.AsType[*web.Problem](releaseProblem(err)); !ok || p.Field == "" {
			t.Errorf("%v: got %v, want a problem of a field", err, releaseProblem(err))
		}
	}
	if p, ok := errors.AsType[*web.Problem](releaseProblem(nonce.ErrNotQuiet)); !ok || p.Code != web.Unavailable {
		t.Errorf("not quiet: got %v, want 503", releaseProblem(nonce.ErrNotQuiet))
	}
}

// A release spells what stands for no request in one way, and no new request has that name:
// else a release could not name it.
func TestNoneIsNoRequest(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"None", "NONE", " none", "none "} {
		_, err := leaveOf(releaseRequest{Episode: new(1), Mode: nonce.Resync, Reason: "r", Count: new(uint64(1)), Requests: map[uint64]string{0: name}})
		if p, ok := errors.AsType[*web.Problem](err); !ok || p.Field != "requests" {
			t.Errorf("a release that says %q: got %v, want requests refused", name, err)
		}
		if p, ok := errors.AsType[*web.Problem](newRequestID("requestId", name)); !ok || p.Field != "requestId" {
			t.Errorf("a new request %q: got %v, want it refused", name, newRequestID("requestId", name))
		}
	}
	if _, err := leaveOf(releaseRequest{Episode: new(1), Mode: nonce.Resync, Reason: "r", Count: new(uint64(2)), Requests: map[uint64]string{0: "none", 1: "none"}}); err != nil {
		t.Errorf("none of two: got %v", err)
	}
	if err := errors.Join(newRequestID("requestId", "none-1"), newRequestID("requestId", "nobody")); err != nil {
		t.Errorf("other names: got %v", err)
	}
}
