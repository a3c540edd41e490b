package admin

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// refusal returns the status, the code and the field of the problem in err; "": err is nil.
func refusal(err error) string {
	if p, ok := errors.AsType[*web.Problem](err); ok {
		return strings.TrimSpace(fmt.Sprint(p.Code.Status, " ", p.Code.Name, " ", p.Field))
	}
	return strings.TrimPrefix(fmt.Sprint(err), "<nil>")
}

// A release's fill is bounded. Its requests have one spelling for "no request". The proof that named requests were
// carried out is checked by its form. Fill and proof are valid only with resync.
func TestFormOfAReleaseIsChecked(t *testing.T) {
	t.Parallel()
	type texts = map[uint64]string
	const fill, requests, hashes, executed = "400 INVALID_FIELD fill", "400 INVALID_FIELD requests", "400 INVALID_FIELD hashes", "400 INVALID_FIELD executed"
	hash, named, stated := texts{7: "0x" + strings.Repeat("ab", 32)}, texts{7: "r-7"}, texts{7: "the explorer"}
	for name, c := range map[string]struct {
		body releaseRequest // the mode is resync unless it says another
		want string         // "": accepted
	}{
		"no fill":              {releaseRequest{}, ""},
		"a fill of one":        {releaseRequest{Fill: new(uint64(1))}, ""},
		"the widest fill":      {releaseRequest{Fill: new(uint64(10_000))}, ""},
		"a fill of nothing":    {releaseRequest{Fill: new(uint64(0))}, fill},
		"a fill too wide":      {releaseRequest{Fill: new(uint64(10_001))}, fill},
		"a fill with a resume": {releaseRequest{Mode: txmanager.Resume, Fill: new(uint64(1))}, fill},

		"none of two":         {releaseRequest{Requests: texts{0: "none", 1: "none"}}, ""},
		"None":                {releaseRequest{Requests: texts{0: "None"}}, requests},
		"NONE":                {releaseRequest{Requests: texts{0: "NONE"}}, requests},
		"a space before none": {releaseRequest{Requests: texts{0: " none"}}, requests},
		"a space after none":  {releaseRequest{Requests: texts{0: "none "}}, requests},

		"a hash":                    {releaseRequest{Requests: named, Hashes: hash}, ""},
		"a hash of no request":      {releaseRequest{Hashes: hash}, ""},
		"a statement":               {releaseRequest{Requests: named, Executed: stated}, ""},
		"both for two nonces":       {releaseRequest{Requests: texts{6: "r-6", 7: "r-7"}, Hashes: texts{6: hash[7]}, Executed: stated}, ""},
		"no hash":                   {releaseRequest{Hashes: texts{7: "0xab"}}, hashes},
		"an empty hash":             {releaseRequest{Hashes: texts{7: ""}}, hashes},
		"a hash with resume":        {releaseRequest{Mode: txmanager.Resume, Hashes: hash}, hashes},
		"a statement with resume":   {releaseRequest{Mode: txmanager.Resume, Executed: stated}, executed},
		"an empty statement":        {releaseRequest{Requests: named, Executed: texts{7: " "}}, executed},
		"a long statement":          {releaseRequest{Requests: named, Executed: texts{7: strings.Repeat("x", serve.MaxReason+1)}}, executed},
		"a statement of no request": {releaseRequest{Executed: stated}, executed},
		"a statement of none":       {releaseRequest{Requests: texts{7: "none"}, Executed: stated}, executed},
		"a statement beside a hash": {releaseRequest{Requests: named, Hashes: hash, Executed: stated}, executed},
	} {
		body := c.body
		if body.Incident, body.Reason = new(1), "r"; body.Mode == "" {
			body.Mode, body.Count = txmanager.Resync, new(uint64(9))
		}
		l, err := leaveOf(body)
		check.Equal(t, name, refusal(err), c.want)
		if err == nil && (l.Fill != body.Fill || len(l.Hashes) != len(body.Hashes) || len(l.Executed) != len(body.Executed)) {
			t.Errorf("%s: got %+v, want the fill and the proof taken", name, l)
		}
	}
}

// A refusal has the code and the field that say what to do. No new request may have the name "none" in any spelling, since
// a release could not name it.
func TestRefusalsOfReleasesNameTheField(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err          error
		want, detail string
	}{
		{releaseProblem(fmt.Errorf("release: %w", store.ErrRetired)), "400 INVALID_FIELD requests", ""},
		{releaseProblem(txmanager.FillError{Why: "is 1"}), "400 INVALID_FIELD fill", "is 1"},
		{releaseProblem(txmanager.ErrFillRequired), "400 INVALID_FIELD mode", ""},
		{releaseProblem(txmanager.ErrNotYetFinal), "503 UNAVAILABLE", ""},
		{releaseProblem(txmanager.UnprovedError{Field: "hashes", Nonce: 7, Why: "no node tells"}), "400 INVALID_FIELD hashes", "nonce 7"},
		{releaseProblem(txmanager.UnprovedError{Field: "executed", Nonce: 7, Why: "no node tells"}), "400 INVALID_FIELD executed", "nonce 7"},
		{serve.Problem(fmt.Errorf("match: %w", store.ErrProofUsed)), "409 PROOF_USED", "write-off"},
		{serve.NewRequestID("requestId", "None"), "400 INVALID_FIELD requestId", ""},
		{serve.NewRequestID("requestId", "NONE"), "400 INVALID_FIELD requestId", ""},
		{serve.NewRequestID("requestId", " none"), "400 INVALID_FIELD requestId", ""},
		{serve.NewRequestID("requestId", "none "), "400 INVALID_FIELD requestId", ""},
		{serve.NewRequestID("requestId", "none-1"), "", ""},
		{serve.NewRequestID("requestId", "nobody"), "", ""},
	} {
		check.Equal(t, fmt.Sprint(c.err), refusal(c.err), c.want)
		if !strings.Contains(fmt.Sprint(c.err), c.detail) {
			t.Errorf("%s: got %v, want %q in it", c.want, c.err, c.detail)
		}
	}
}
