package queues

import (
	"cmp"
	"context"
	"path"
	"strconv"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

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
