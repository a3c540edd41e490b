package queues

import (
	"cmp"
	"context"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// submitters is the page Submitters.
type submitters struct {
	Rows   []submitterRow
	Total  int // that fit the filter, of those that were read
	Status string
	Sort   string
	Text   string
	Page   int
	Last   int    // the last page of those that were read
	After  string // the token by which they were read; "": from the first on
	Next   string // the token of the next ones; "": there are none

	Attention part[list[client.AttentionItem]]
}

// submitterRow is one submitter with what needs a person, and its account on the chain.
type submitterRow struct {
	client.Submitter
	Head  *client.AttentionItem // the most urgent item about it; nil: none
	Chain part[*client.ChainAccount]
}

// Statuses are the values of the filter by status.
func (submitters) Statuses() []string {
	return []string{"ACTIVE", "SUSPENDED", "RETIRED", "PROTECT", "IN_FLIGHT", "IDLE"}
}

const rowsOfSubmitters = 20 // of one page: each needs a call that asks the chain's nodes

// listSubmitters draws the page Submitters. It makes 2 calls, and then 1 for each of the at most 20 rows.
func listSubmitters(ctx context.Context, call page.Call) (page.View, error) {
	query := call.URL.Query()
	s := submitters{Status: query.Get("status"), Sort: query.Get("sort"), Text: strings.TrimSpace(query.Get("text"))}
	s.Page, _ = strconv.Atoi(query.Get("page"))
	s.After = query.Get("after")
	var found []client.Submitter
	all := calls{ctx: ctx}
	require(&all, &found, func(ctx context.Context) (rows []client.Submitter, err error) {
		rows, s.Next, err = pageOf(ctx, s.After, func(ctx context.Context) iter.Seq2[client.Submitter, error] {
			return call.Admin.ListSubmitters(ctx, s.query())
		})
		return rows, err
	})
	askRows(&all, &s.Attention, call.Admin.ListAttention(ctx), maxRows)
	if err := all.wait(); err != nil {
		return page.View{}, err
	}
	s.choose(found)
	for i := range s.Rows {
		ask(&all, &s.Rows[i].Chain, func(ctx context.Context) (*client.ChainAccount, error) {
			one, err := call.Admin.Submitter(ctx, s.Rows[i].Submitter.Submitter)
			return one.Chain, err
		})
	}
	all.Wait()
	return page.View{Title: "Submitters", Body: "queues/submitters", Data: s, Poll: 2 * poll}, nil
}

// query is what the API can select and order itself.
func (s *submitters) query() (q client.SubmitterQuery) {
	if slices.Contains([]string{"ACTIVE", "SUSPENDED", "RETIRED", "PROTECT"}, s.Status) {
		q.State = s.Status
	} else if s.Sort == "name" {
		q.Sort = s.Sort
	}
	return q
}

// choose filters and sorts the submitters, and keeps those of the page.
func (s *submitters) choose(found []client.Submitter) {
	heads := make(map[string]*client.AttentionItem)
	for _, item := range slices.Backward(s.Attention.Value.Rows) { // the most urgent is the first, and stays
		heads[item.Subject.Submitter] = &item
	}
	var rows []submitterRow
	for _, one := range found {
		if s.fits(one) {
			rows = append(rows, submitterRow{Submitter: one, Head: heads[one.Submitter]})
		}
	}
	slices.SortStableFunc(rows, s.compare)
	s.Total = len(rows)
	s.Last = max(1, (len(rows)+rowsOfSubmitters-1)/rowsOfSubmitters)
	s.Page = min(max(s.Page, 1), s.Last)
	s.Rows = rows[min((s.Page-1)*rowsOfSubmitters, len(rows)):min(s.Page*rowsOfSubmitters, len(rows))]
}

func (s *submitters) fits(one client.Submitter) bool {
	if s.Status != "" && s.Status != one.Status && s.Status != one.InFlightState {
		return false
	}
	text := strings.ToLower(s.Text)
	return strings.Contains(strings.ToLower(one.Name), text) || strings.Contains(one.Submitter, text)
}

// compare orders by need, which is the usual, by queue or by name.
func (s *submitters) compare(a, b submitterRow) int {
	switch s.Sort {
	case "queue":
		return cmp.Compare(b.Queued, a.Queued)
	case "name":
		const last = "\U0010ffff" // a submitter without a name comes after the others
		return cmp.Or(cmp.Compare(cmp.Or(a.Name, last), cmp.Or(b.Name, last)), cmp.Compare(a.Submitter.Submitter, b.Submitter.Submitter))
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.Queued, a.Queued))
}

// rank is lower for a submitter that needs a person more.
func rank(r submitterRow) int {
	switch {
	case r.Protect != nil:
		return 0
	case r.Head != nil && r.Head.Overdue:
		return 1
	case r.Head != nil:
		return 2
	case r.Status == "RETIRED":
		return 4
	}
	return 3
}

// submitter is the page Submitter.
type submitter struct {
	client.Submitter
	Lane    lane
	Queue   part[list[client.QueuedTx]]
	Changes part[list[client.SubmitterChange]]
	Use     part[client.PolicyUse]
}

const (
	rowsOfQueue   = 20
	rowsOfChanges = 10
)

// showSubmitter draws the page Submitter. It makes 5 calls.
func showSubmitter(ctx context.Context, call page.Call) (page.View, error) {
	id, query := call.PathValue("submitter"), call.URL.Query()
	var from *uint64
	if n, err := strconv.ParseUint(query.Get("from"), 10, 63); err == nil {
		from = &n
	}
	size := maxRows // without a first nonce the page chooses some
	if from != nil {
		size = laneSquares
	}
	var s submitter
	var nonces part[list[client.LaneNonce]]
	all := calls{ctx: ctx}
	require(&all, &s.Submitter, func(ctx context.Context) (client.Submitter, error) { return call.Admin.Submitter(ctx, id) })
	askRows(&all, &nonces, call.Admin.Lane(ctx, id, from), size)
	askRows(&all, &s.Queue, call.Admin.ListQueue(ctx, id), rowsOfQueue)
	askRows(&all, &s.Changes, call.Admin.ListChanges(ctx, id, rowsOfChanges+1), rowsOfChanges)
	ask(&all, &s.Use, func(ctx context.Context) (client.PolicyUse, error) { return call.Admin.PolicyUse(ctx, id, "") })
	if err := all.wait(); err != nil {
		return page.View{}, err
	}
	s.Lane = laneOf(s.Submitter, nonces, from, query.Get("as") == "table")
	return page.View{Title: s.Heading(), Body: "queues/submitter", Data: s, Poll: poll}, nil
}

// readSubmitter reads the submitter of the path for the form of an act, and for that of the policy its use. It makes 1 call,
// or 2.
func readSubmitter(ctx context.Context, call page.Call) (s submitter, _ error) {
	id := call.PathValue("submitter")
	all := calls{ctx: ctx}
	require(&all, &s.Submitter, func(ctx context.Context) (client.Submitter, error) { return call.Admin.Submitter(ctx, id) })
	if path.Base(call.URL.Path) == "policy" {
		ask(&all, &s.Use, func(ctx context.Context) (client.PolicyUse, error) { return call.Admin.PolicyUse(ctx, id, "") })
	}
	err := all.wait()
	return s, err
}

// Heading is the submitter's name, or its account.
func (s submitter) Heading() string { return cmp.Or(s.Name, s.Submitter.Submitter) }

func (s submitter) id() string { return s.Submitter.Submitter }

// Confirmation is the text to type where an act cannot be undone.
func (s submitter) Confirmation() string { return s.Heading() }

// ForbiddenCount is how many of the first 500 queued intents policy and callers forbid by now; 0 too if it is not known.
func (s submitter) ForbiddenCount() int {
	if s.Forbidden == nil {
		return 0
	}
	return *s.Forbidden
}
