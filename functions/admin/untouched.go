package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// The number of submitters that one call of release-untouched checks by default, at most, and
// concurrently.
const (
	untouchedPage    = 100
	maxUntouched     = 500
	untouchedAtATime = 8
)

type untouchedRequest struct {
	Reason string         `json:"reason"`
	Limit  *int           `json:"limit"`
	After  serve.Optional `json:"after"`
}

type untouchedLeft struct {
	Submitter txmanager.Submitter `json:"submitter"`
	Why       string              `json:"why"`
}

type untouchedResponse struct {
	Released  []txmanager.Submitter `json:"released"`
	Left      []untouchedLeft       `json:"left"`      // the checked submitters that were not released
	Remaining int                   `json:"remaining"` // submitters in PROTECT because of the move, including those in left
	After     *txmanager.Submitter  `json:"after"`     // pass as after in the next call; null: all were checked
}

// releaseUntouched releases submitters that a confirmed planned move put into PROTECT. It releases
// those whose accounts have sent no transaction that is unknown here.
func (a *Server) releaseUntouched(w http.ResponseWriter, r *http.Request, c call[struct{}, untouchedRequest]) error {
	reason, limit, after := strings.TrimSpace(c.body.Reason), untouchedPage, txmanager.Submitter("")
	switch {
	case reason == "" || len(reason) > serve.MaxReason:
		return web.FieldProblem("reason", "is required, in at most %d bytes: it is stored with your name", serve.MaxReason)
	case c.body.Limit != nil && (*c.body.Limit < 1 || *c.body.Limit > maxUntouched):
		return web.FieldProblem("limit", "is %d: want 1 to %d submitters", *c.body.Limit, maxUntouched)
	case c.body.Limit != nil:
		limit = *c.body.Limit
	}
	if text, err := c.body.After.Of("after"); err != nil {
		return err
	} else if text != "" {
		if after, err = a.Submitter("after", text); err != nil {
			return err
		}
	}
	page, err := a.Store.Moved(r.Context(), after, limit)
	if err != nil {
		return err
	}
	if mustPropose(r) {
		return a.propose(w, r, proposed{"release-untouched", map[string]any{}, reason,
			fmt.Sprintf("releases up to %d of the submitters that a planned move put into PROTECT", limit)})
	}
	out := a.releaseEach(r.Context(), page, txmanager.ReleaseRequest{Mode: txmanager.Resume, Untouched: true, By: c.by, Reason: reason})
	if len(page) == limit {
		out.After = &page[len(page)-1].Submitter
	}
	if out.Remaining, err = a.Store.CountMoved(r.Context()); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "released from PROTECT after a planned move", "operator", c.by, "reason", reason,
		"released", out.Released, "left", len(out.Left), "remaining", out.Remaining, telemetry.NodeIDKey, a.Node)
	web.Reply(w, r, http.StatusOK, out)
	return nil
}

// releaseEach releases each submitter separately, and returns the reason for each that stays.
func (a *Server) releaseEach(ctx context.Context, page []store.MovedSubmitter, l txmanager.ReleaseRequest) untouchedResponse {
	problems := make([]error, len(page))
	places := make(chan struct{}, untouchedAtATime)
	var all sync.WaitGroup
	for i, one := range page {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			leave := l
			leave.Incident = one.Incident
			problems[i] = a.releaseOne(ctx, one.Submitter, leave)
		})
	}
	all.Wait()
	out := untouchedResponse{Released: []txmanager.Submitter{}, Left: []untouchedLeft{}}
	for i, one := range page {
		if problems[i] == nil {
			out.Released = append(out.Released, one.Submitter)
			continue
		}
		out.Left = append(out.Left, untouchedLeft{one.Submitter, a.whyLeft(ctx, one.Submitter, problems[i])})
	}
	return out
}

func (a *Server) releaseOne(ctx context.Context, s txmanager.Submitter, l txmanager.ReleaseRequest) error {
	_, err := a.Release(ctx, s, l)
	return err
}

// whyLeft returns what an operator may see of the error; the log has the rest.
func (a *Server) whyLeft(ctx context.Context, s txmanager.Submitter, err error) string {
	if used, ok := errors.AsType[txmanager.AccountUsedError](err); ok {
		return used.Error() + ": release it by itself"
	}
	if p, ok := errors.AsType[*web.Problem](serve.Problem(releaseProblem(err))); ok {
		return p.Detail
	}
	a.Log.WarnContext(ctx, "a submitter was not released after a planned move", telemetry.SubmitterKey, s, "error", err.Error())
	return "it could not be released now: ask again"
}
