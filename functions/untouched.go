package functions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// How many submitters one call of release-untouched looks at, unless it says, and at
// most; and how many at once.
const (
	untouchedPage    = 100
	mostUntouched    = 500
	untouchedAtATime = 8
)

type untouchedRequest struct {
	Reason string   `json:"reason"`
	Limit  *int     `json:"limit"`
	After  optional `json:"after"`
}

type untouchedLeft struct {
	Submitter txmanager.Submitter `json:"submitter"`
	Why       string              `json:"why"`
}

type untouchedResponse struct {
	Released  []txmanager.Submitter `json:"released"`
	Left      []untouchedLeft       `json:"left"`      // of those that were looked at
	Remaining int                   `json:"remaining"` // still in PROTECT because of the move, those left among them
	After     *txmanager.Submitter  `json:"after"`     // to go on behind; null: all were looked at
}

// releaseUntouched releases, after a planned move that was confirmed, the submitters
// that it put into PROTECT and whose accounts have sent nothing that is not known here.
func (a *App) releaseUntouched(w http.ResponseWriter, r *http.Request) error {
	operator, err := a.operator(r)
	if err != nil {
		return err
	}
	body, err := web.Decode[untouchedRequest](w, r, a.config.HTTP.MaxBodyBytes)
	if err != nil {
		return err
	}
	reason, limit, after := strings.TrimSpace(body.Reason), untouchedPage, txmanager.Submitter("")
	switch {
	case reason == "" || len(reason) > maxReason:
		return web.FieldProblem("reason", "is required, in at most %d bytes: it is kept with your name", maxReason)
	case body.Limit != nil && (*body.Limit < 1 || *body.Limit > mostUntouched):
		return web.FieldProblem("limit", "is %d: want 1 to %d submitters", *body.Limit, mostUntouched)
	case body.Limit != nil:
		limit = *body.Limit
	}
	if text, err := body.After.of("after"); err != nil {
		return err
	} else if text != "" {
		if after, err = a.submitter("after", text); err != nil {
			return err
		}
	}
	page, err := a.store.Moved(r.Context(), after, limit)
	if err != nil {
		return err
	}
	if mustPropose(r) {
		return a.propose(w, r, proposed{"release-untouched", map[string]any{}, reason,
			fmt.Sprintf("releases up to %d of the submitters that a planned move put into PROTECT", limit)})
	}
	out := a.releaseResting(r.Context(), page, txmanager.ReleaseRequest{Mode: txmanager.Resume, Untouched: true, By: operator, Reason: reason})
	if len(page) == limit {
		out.After = &page[len(page)-1].Submitter
	}
	if out.Remaining, err = a.store.CountMoved(r.Context()); err != nil {
		return err
	}
	a.log.WarnContext(r.Context(), "released from PROTECT after a planned move", "operator", operator, "reason", reason,
		"released", out.Released, "left", len(out.Left), "remaining", out.Remaining, telemetry.NodeIDKey, a.node)
	web.Reply(w, r, http.StatusOK, out)
	return nil
}

// releaseResting releases each by itself, and says of the others why not.
func (a *App) releaseResting(ctx context.Context, page []store.MovedSubmitter, l txmanager.ReleaseRequest) untouchedResponse {
	problems := make([]error, len(page))
	places := make(chan struct{}, untouchedAtATime)
	var all sync.WaitGroup
	for i, one := range page {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			leave := l
			leave.Incident = one.Episode
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

func (a *App) releaseOne(ctx context.Context, s txmanager.Submitter, l txmanager.ReleaseRequest) error {
	worker, err := a.workerOf(s)
	if err != nil {
		return err
	}
	_, err = worker.ReleaseSubmitter(ctx, s, l)
	return err
}

// whyLeft is what an operator may see of it; the rest is in the log.
func (a *App) whyLeft(ctx context.Context, s txmanager.Submitter, err error) string {
	if used, ok := errors.AsType[txmanager.AccountUsedError](err); ok {
		return used.Error() + ": release it by itself"
	}
	if p, ok := errors.AsType[*web.Problem](problem(releaseProblem(err))); ok {
		return p.Detail
	}
	a.log.WarnContext(ctx, "a submitter was not released after a planned move", telemetry.SubmitterKey, s, "error", err.Error())
	return "it could not be released now: ask again"
}
