package admin

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// answering is a node that answers each query with these headers.
type answering struct {
	chain.Node
	headers []txmanager.Header
	err     error
}

func (n answering) Query(context.Context, txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	return txmanager.ChainObservation{Headers: n.headers}, n.err
}

// The time between blocks is unknown where a node's answer has none, whatever it answers.
func TestBlocksAreMeasuredByAnyAnswer(t *testing.T) {
	t.Parallel()
	blocks := func(of ...uint64) (all []txmanager.Header) { // numbers and times
		for i := 0; i < len(of); i += 2 {
			all = append(all, txmanager.Header{Number: of[i], Time: of[i+1]})
		}
		return all
	}
	for name, c := range map[string]struct {
		node answering
		want int64 // 0: unknown
	}{
		"two blocks":           {answering{headers: blocks(10, 100, 20, 225)}, 12_500},
		"one block":            {answering{headers: blocks(10, 100)}, 0},
		"none":                 {answering{}, 0},
		"an error":             {answering{headers: blocks(10, 100, 20, 225), err: errors.New("no answer")}, 0},
		"the same block twice": {answering{headers: blocks(10, 100, 10, 100)}, 0},
		"blocks that go back":  {answering{headers: blocks(20, 100, 10, 225)}, 0},
		"times that go back":   {answering{headers: blocks(10, 225, 20, 100)}, 0},
	} {
		got := measureBlocks(t.Context(), c.node, 20)
		if (got == nil) != (c.want == 0) || got != nil && *got != c.want {
			t.Errorf("%s: got %v, want %d", name, got, c.want)
		}
	}
}
