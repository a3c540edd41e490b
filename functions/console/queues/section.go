// Package queues has the console's pages about submitters and their transactions: Overview, Attention, Submitters,
// Submitter with its nonce lane, Transaction and Search.
package queues

import (
	"cmp"
	"context"
	"embed"
	"iter"
	"net/http"
	"sync"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

//go:embed templates/*.html
var templates embed.FS

// Links lead from a transaction to other programs. In place of {traceId} and {txId} they get the ids.
type Links struct {
	Trace string // "": no link
	Log   string // "": no link
}

// Section returns the pages.
func Section(to Links) page.Section {
	s := page.Section{
		Templates: templates,
		Menu: []page.Link{
			{Path: "/console/", Name: "Overview"},
			{Path: "/console/attention", Name: "Attention"},
			{Path: "/console/submitters", Name: "Submitters"},
		},
		Routes: []page.Route{
			{Pattern: "GET /console/{$}", Handle: showOverview, Within: patience},
			{Pattern: "GET /console/attention", Handle: showAttention, Within: patience},
			{Pattern: "GET /console/submitters", Handle: listSubmitters, Within: patience},
			{Pattern: "GET /console/submitters/{submitter}", Handle: showSubmitter, Within: patience},
			{Pattern: "GET /console/tx/{txId}", Handle: to.showTx},
			{Pattern: "GET /console/search", Handle: search, Within: patience},
		},
	}
	for _, act := range submitterActs {
		s.Routes = append(s.Routes, page.Form("/console/submitters/{submitter}/"+act.Name, serveAct(act, "submitter", "queues/submitter-act", readSubmitter))...)
	}
	for _, act := range txActs {
		s.Routes = append(s.Routes, page.Form("/console/tx/{txId}/"+act.Name, serveAct(act, "tx", "queues/tx-act", readTx))...)
	}
	return s
}

const (
	patience = 8 * time.Second // for one page with its sign-in; the chain's nodes have three seconds of it
	poll     = 5 * time.Second
)

// part is the answer of one of a page's calls, or why there is none. A page shows the others.
type part[T any] struct {
	Value T
	Err   error
}

// Failed is the reason for a person; "": there is an answer. The text of an error that is no refusal stays secret.
func (p part[T]) Failed() string {
	if p.Err == nil {
		return ""
	}
	return cmp.Or(page.RefusalOf(p.Err).Detail, "The API gave no answer to this part.")
}

// Missing reports whether the deployment has no such thing, such as transfers.
func (p part[T]) Missing() bool { return page.StatusOf(p.Err) == http.StatusNotFound }

// calls are the calls of one page, which run at the same time.
type calls struct {
	sync.WaitGroup
	ctx context.Context
	err error // of [require]
}

// wait waits for all calls, and returns the error of that without which there is no page.
func (c *calls) wait() error {
	c.Wait()
	return c.err
}

// require makes the one call without which there is no page.
func require[T any](all *calls, into *T, call func(context.Context) (T, error)) {
	all.Go(func() { *into, all.err = call(all.ctx) })
}

// ask makes one call.
func ask[T any](all *calls, into *part[T], call func(context.Context) (T, error)) {
	all.Go(func() { into.Value, into.Err = call(all.ctx) })
}

// askRows is [ask] for the first n rows of a list, which must use the calls' context.
func askRows[T any](all *calls, into *part[list[T]], rows iter.Seq2[T, error], n int) {
	ask(all, into, func(context.Context) (list[T], error) { return first(rows, n) })
}

// list is the first rows of a list.
type list[T any] struct {
	Rows []T
	More bool // there are further rows
}

// pageOf reads one page of a list: from the token of the query's parameter "after". next is the token of the page after it;
// "": there is none. The list must use the context.
func pageOf[T any](ctx context.Context, after string, list func(context.Context) iter.Seq2[T, error]) (rows []T, next string, err error) {
	one := client.Page{Token: after}
	rows, err = page.ReadRows(list(client.WithPage(ctx, &one)))
	return rows, one.Next, err
}

// maxRows is less than the client fetches at once, so that a list is one call.
const maxRows = 499

// first reads up to n rows, at most [maxRows].
func first[T any](rows iter.Seq2[T, error], n int) (out list[T], err error) {
	n = min(n, maxRows)
	for row, err := range rows {
		if err != nil {
			return out, err
		}
		if len(out.Rows) == n {
			out.More = true
			break
		}
		out.Rows = append(out.Rows, row)
	}
	return out, nil
}
