package operation

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// chainPoll is how often the chains are read again. The API asks each node for up to three seconds.
const chainPoll = 15 * time.Second

// chainView is a chain, and what its nodes say together.
type chainView struct {
	client.Chain
	Answered bool // a node answered this query
	Answer   int  // nodes that answered this query and are not excluded
}

// listChains shows each chain with its nodes: heads, lag, base fee, finalized blocks, errors and exclusions. It makes 1 call.
func listChains(ctx context.Context, call page.Call) (page.View, error) {
	all, err := call.Admin.ListChains(ctx)
	views := make([]chainView, len(all))
	for i, c := range all {
		views[i].Chain = c
		for _, n := range c.Nodes {
			views[i].Answered = views[i].Answered || n.Error == ""
			if n.Error == "" && n.Excluded == "" {
				views[i].Answer++
			}
		}
	}
	return page.View{Title: "Chains and nodes", Body: "operation/chains", Data: views, Poll: chainPoll}, err
}
