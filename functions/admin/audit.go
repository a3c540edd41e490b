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
	if next != nil {
		out.Next = serve.PageToken(next.String(), serve.ActPlace)
	}
	out.Name, out.Rows = "acts", serve.ViewsOf(page, func(act store.OperatorAct) client.Act {
		v := client.Act{
			At: act.At.UTC(), By: act.By, Act: act.Act, Subject: client.ActSubject{Kind: act.Kind, ID: act.Subject},
			Reason: act.Reason, ApprovedBy: act.ApprovedBy, ProposalID: act.Proposal, Before: act.Before, After: act.After,
		}
		if act.Submitter != nil {
			v.Subject.Submitter = *act.Submitter
		}
		return v
	})
	return out, nil
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
	var before string
	if q.Size, before, err = serve.PageOf(given, serve.ActPlace); err != nil || before == "" {
		return q, err
	}
	if q.Before, err = store.ParseActPlace(before); err != nil {
		return q, serve.NoSuchPage()
	}
	return q, nil
}
