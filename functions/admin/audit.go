package admin

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/web"
)

// listActs lists the recorded acts of operators, newest first.
func (a *Server) listActs(r *http.Request, q map[string]string) (out serve.List, err error) {
	query, err := actQuery(q)
	if err != nil {
		return out, err
	}
	page, next, err := a.Store.OperatorActs(r.Context(), query)
	if err != nil {
		return out, err
	}
	rows := serve.ViewsOf(page, func(act store.OperatorAct) client.Act {
		v := client.Act{
			At: act.At.UTC(), By: act.By, Act: act.Act, Subject: client.ActSubject{Kind: act.Kind, ID: act.Subject},
			Reason: act.Reason, ApprovedBy: act.ApprovedBy, ProposalID: act.Proposal, Before: act.Before, After: act.After,
		}
		if act.Submitter != nil {
			v.Subject.Submitter = *act.Submitter
		}
		return v
	})
	return serve.List{Name: "acts", Rows: rows, Next: serve.PageToken(next, serve.ActPlace)}, nil
}

func actQuery(given map[string]string) (q store.ActQuery, err error) {
	q.By, q.Act, q.Subject = given["who"], given["act"], given["subject"]
	if names := store.ActNames(); q.Act != "" && !slices.Contains(names, q.Act) {
		return q, web.FieldProblem("act", "is %.40q: want one of %s", q.Act, strings.Join(names, ", "))
	}
	if text := given["since"]; text != "" {
		if q.Since, err = time.Parse(time.RFC3339, text); err != nil {
			return q, web.FieldProblem("since", "is %.40q: want a time as in RFC 3339, such as 2026-01-02T15:04:05Z", text)
		}
	}
	q.Size, q.Before, err = serve.PageOf(given, serve.ActPlace)
	return q, err
}
