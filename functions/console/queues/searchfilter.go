package queues

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// filter is a search for transactions by what they have in common.
type filter struct {
	client.TxFilter
	From    string // Since as the field for a time takes it; as it was entered if it is none
	NoTime  bool   // From is no time
	Given   bool   // the form was sent, perhaps with empty fields
	Problem string // what is wrong with a field; "": nothing
	Next    string // the path of the next page; "": this is the last
}

// States are the choices of the form.
func (filter) States() []client.TxState {
	return []client.TxState{client.Queued, client.InFlight, client.Submitted, client.Tracking, client.Stuck, client.Protect, client.Confirmed, client.Failed}
}

// filterOf reads the filter of an address.
func filterOf(q url.Values) filter {
	f := filter{From: strings.TrimSpace(q.Get("since"))}
	f.Submitter, f.State, f.Caller = strings.TrimSpace(q.Get("submitter")), client.TxState(q.Get("state")), strings.TrimSpace(q.Get("caller"))
	f.Given = q.Has("submitter") || q.Has("state") || q.Has("caller") || q.Has("since") || q.Has("pageToken")
	since, err := page.Since(f.From)
	switch {
	case err != nil:
		f.NoTime, f.Problem = true, page.WhyUnread(err)
	case !since.IsZero():
		f.Since, f.From = since.Truncate(time.Second), since.Format(page.TimeField)
	}
	if err == nil {
		f.Problem = f.refusal()
	}
	return f
}

// refusal returns why the API would refuse the submitter, the state or the caller; "": it would not. The API lists what an
// index finds: without a submitter no caller, and of the states only [listedStates].
func (f filter) refusal() string {
	switch {
	case isNoText(f.Submitter) || isNoText(f.Caller):
		return "No submitter and no caller has control characters or more than 300 bytes."
	case f.State != "" && !slices.Contains(f.States(), f.State):
		return "No transaction can have this state. Choose one of the list."
	case f.Submitter != "":
	case f.Caller != "":
		return "Give the submitter too: the transactions of a caller can be listed for one submitter only."
	case f.State != "" && !slices.Contains(listedStates, string(f.State)):
		return "Give the submitter too: over all submitters only STUCK, PROTECT and FAILED can be listed."
	}
	return ""
}

// isNoText reports whether no id or name can be the text.
func isNoText(text string) bool {
	return len(text) > maxSearch || strings.ContainsFunc(text, unicode.IsControl)
}

// byFilter reads one page of the transactions that fit the filter, the newest first. It makes 1 call, or none if a field
// is wrong.
func (f *found) byFilter(ctx context.Context, call page.Call, token string) error {
	f.Note = "No transaction fits."
	if f.Filter.Problem != "" {
		return nil
	}
	query, one := f.Filter.TxFilter, client.Page{Token: token}
	query.PageSize = searchRows
	var err error
	f.Txs.Rows, err = page.ReadRows(call.Admin.FindTxs(client.WithPage(ctx, &one), query))
	f.Filter.Next = f.Filter.nextPath(one.Next)
	if s := page.StatusOf(err); s == http.StatusBadRequest || s == http.StatusNotFound {
		f.Filter.Problem, err = page.WhyUnread(err), nil
	}
	return err
}

// nextPath is the path of the page that the token begins; "" for none.
func (f filter) nextPath(token string) string {
	return page.NextPath("/console/search", token, map[string]string{"submitter": f.Submitter, "state": string(f.State), "caller": f.Caller, "since": f.From})
}
