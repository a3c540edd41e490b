package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// untouchedAtATime is the number of submitters that one call of release-untouched checks concurrently.
const untouchedAtATime = 8

type untouchedRequest struct {
	reasonRequest
	PageSize  *int           `json:"pageSize"`
	PageToken serve.Optional `json:"pageToken"`
}

// releaseUntouched releases submitters that a confirmed planned move put into PROTECT. It releases
// those whose accounts have sent no transaction that is unknown here.
func (a *Server) releaseUntouched(w http.ResponseWriter, r *http.Request, c call[struct{}, untouchedRequest]) error {
	var err error
	q := map[string]string{}
	if c.body.PageSize != nil {
		q["pageSize"] = strconv.Itoa(*c.body.PageSize)
	}
	if q["pageToken"], err = c.body.PageToken.Of("pageToken"); err != nil {
		return err
	}
	var size int
	page, token, err := serve.Page(q, serve.UntouchedPlace, func(after string, limit int) ([]store.MovedSubmitter, error) {
		size = limit - 1
		return a.Store.Moved(r.Context(), txmanager.Submitter(after), limit)
	}, func(m store.MovedSubmitter) string { return string(m.Submitter) })
	if err != nil {
		return err
	}
	if mustPropose(r) {
		return a.propose(w, r, proposed{"release-untouched", map[string]any{}, c.reason,
			fmt.Sprintf("releases up to %d of the submitters that a planned move put into PROTECT", size)})
	}
	out := a.releaseEach(r.Context(), page, txmanager.ReleaseRequest{Mode: txmanager.Resume, Untouched: true, By: c.by, Reason: c.reason})
	out.NextPageToken = token
	if out.Remaining, err = a.Store.CountMoved(r.Context()); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "released from PROTECT after a planned move", "operator", c.by, "reason", c.reason,
		"released", out.Released, "left", len(out.Left), "remaining", out.Remaining, telemetry.NodeIDKey, a.Node)
	return web.Reply(w, r, http.StatusOK, out)
}

// releaseEach releases each submitter separately, and returns the reason for each that stays.
func (a *Server) releaseEach(ctx context.Context, page []store.MovedSubmitter, l txmanager.ReleaseRequest) client.UntouchedReport {
	problems := make([]error, len(page))
	serve.Each(untouchedAtATime, page, func(i int, one store.MovedSubmitter) {
		leave := l
		leave.Incident = one.Incident
		_, problems[i] = a.Release(ctx, one.Submitter, leave)
	})
	out := client.UntouchedReport{Released: []string{}, Left: []client.UnreleasedSubmitter{}}
	for i, one := range page {
		if problems[i] == nil {
			out.Released = append(out.Released, string(one.Submitter))
			continue
		}
		out.Left = append(out.Left, client.UnreleasedSubmitter{Submitter: string(one.Submitter), Why: a.whyLeft(ctx, one.Submitter, problems[i])})
	}
	return out
}

// whyLeft returns what an operator may see of the error; the log has the rest.
func (a *Server) whyLeft(ctx context.Context, s txmanager.Submitter, err error) string {
	if used, ok := errors.AsType[txmanager.AccountUsedError](err); ok {
		return used.Error() + ": release it by a separate call"
	}
	if p, ok := errors.AsType[*web.Problem](serve.Problem(releaseProblem(err))); ok {
		return p.Detail
	}
	a.Log.WarnContext(ctx, "a submitter was not released after a planned move", telemetry.SubmitterKey, s, "error", err.Error())
	return "it could not be released now: ask again"
}
