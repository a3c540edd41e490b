package admin

import (
	"context"
	"errors"
	"math/big"
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

// headed is a node that answers each query with its head and the base fee of it.
type headed struct {
	chain.Node
	head    uint64
	baseFee *big.Int
	err     error
}

func (headed) Name() string { return "node" }

func (n headed) Query(context.Context, txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	return txmanager.ChainObservation{Head: txmanager.Header{Number: n.head}, BaseFeeWei: n.baseFee}, n.err
}

// The base fee is that of the highest head. Without an answer, and on a chain without base fees, it is absent.
func TestBaseFeeIsThatOfTheHighestHead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		nodes []chain.Node
		want  string
	}{
		"the highest head": {[]chain.Node{headed{head: 7, baseFee: big.NewInt(70)}, headed{head: 9, baseFee: big.NewInt(90)}, headed{head: 8, baseFee: big.NewInt(80)}}, "90"},
		"an error":         {[]chain.Node{headed{head: 7, baseFee: big.NewInt(70)}, headed{head: 9, baseFee: big.NewInt(90), err: errors.New("no answer")}}, "70"},
		"zero":             {[]chain.Node{headed{head: 7, baseFee: new(big.Int)}}, "0"},
		"no base fees":     {[]chain.Node{headed{head: 7}}, ""},
		"no answer":        {[]chain.Node{headed{err: errors.New("no answer")}}, ""},
	} {
		if got := viewChain(t.Context(), ServedChain{Nodes: c.nodes}).BaseFeePerGas; got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
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
