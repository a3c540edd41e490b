package operation

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// chainPoll is how often the chains are read again. The API asks each node for up to three seconds.
const chainPoll = 15 * time.Second

// chainView is a chain, and what its nodes say together.
type chainView struct {
	client.Chain
	Nodes    []nodeView
	Answered bool   // a node answered this query
	Answer   int    // nodes that answered this query and are not excluded
	Enough   bool   // they are as many as must agree
	Depth    string // blocks to be final by confirmations; "": a tag of the chain decides
	Settled  string // the block time by the settings
	Measured string // over the last blocks; "": no node gave them
}

// nodeView is a node with its numbers as texts; "–" is one that the node did not give.
type nodeView struct {
	client.Node
	HeadText, LagText, FinalizedText string
}

// listChains shows each chain with its nodes: heads, lag, base fee, finalized blocks, errors and exclusions. It makes 1 call.
func listChains(ctx context.Context, call page.Call) (page.View, error) {
	all, err := call.Admin.ListChains(ctx)
	views := make([]chainView, len(all))
	for i, c := range all {
		views[i] = viewChain(c)
	}
	return page.View{Title: "Chains and nodes", Body: "operation/chains", Data: views, Poll: chainPoll}, err
}

func viewChain(c client.Chain) chainView {
	v := chainView{Chain: c, Settled: inSeconds(c.BlockTime)}
	for _, n := range c.Nodes {
		v.Nodes = append(v.Nodes, nodeView{n, numberOf(n.Head), numberOf(n.Lag), numberOf(n.Finalized)})
		v.Answered = v.Answered || n.Error == ""
		if n.Error == "" && n.Excluded == "" {
			v.Answer++
		}
	}
	v.Enough = v.Answer >= c.Quorum
	if c.Confirmations != nil {
		v.Depth = numberOf(c.Confirmations)
	}
	if c.MeasuredBlockTime != nil {
		v.Measured = inSeconds(*c.MeasuredBlockTime)
	}
	return v
}

// inSeconds is a number of milliseconds as seconds, such as 1.5 s.
func inSeconds(milliseconds int64) string {
	return fmt.Sprintf("%d.%03d s", milliseconds/1000, milliseconds%1000)
}

func numberOf(n *uint64) string {
	if n == nil {
		return "–"
	}
	return strconv.FormatUint(*n, 10)
}
