package admin

import (
	"context"
	"errors"
	"math/big"
	"testing"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// answering is a node that answers each query so.
type answering struct {
	chain.Node
	observed txmanager.ChainObservation
	err      error
}

func (answering) Name() string { return "node" }

func (n answering) Query(context.Context, txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	return n.observed, n.err
}

// The base fee is that of the highest head. Without an answer, and on a chain without base fees, it is absent.
func TestBaseFeeIsThatOfTheHighestHead(t *testing.T) {
	t.Parallel()
	headed := func(head uint64, baseFee *big.Int, err error) chain.Node {
		return answering{observed: txmanager.ChainObservation{Head: txmanager.Header{Number: head}, BaseFeeWei: baseFee}, err: err}
	}
	silent := errors.New("no answer")
	for name, c := range map[string]struct {
		nodes []chain.Node
		want  string
	}{
		"the highest head": {[]chain.Node{headed(7, big.NewInt(70), nil), headed(9, big.NewInt(90), nil), headed(8, big.NewInt(80), nil)}, "90"},
		"an error":         {[]chain.Node{headed(7, big.NewInt(70), nil), headed(9, big.NewInt(90), silent)}, "70"},
		"zero":             {[]chain.Node{headed(7, new(big.Int), nil)}, "0"},
		"no base fees":     {[]chain.Node{headed(7, nil, nil)}, ""},
		"no answer":        {[]chain.Node{headed(0, nil, silent)}, ""},
	} {
		check.Equal(t, name, viewChain(t.Context(), &serve.Chain{Nodes: c.nodes}).BaseFeePerGas, c.want)
	}
}

// The time between blocks is unknown where a node's answer has none, whatever it answers.
func TestBlocksAreMeasuredByAnyAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		blocks []txmanager.Header
		err    error
		want   int64 // 0: unknown
	}{
		"two blocks":           {[]txmanager.Header{{Number: 10, Time: 100}, {Number: 20, Time: 225}}, nil, 12_500},
		"one block":            {[]txmanager.Header{{Number: 10, Time: 100}}, nil, 0},
		"none":                 {nil, nil, 0},
		"an error":             {[]txmanager.Header{{Number: 10, Time: 100}, {Number: 20, Time: 225}}, errors.New("no answer"), 0},
		"the same block twice": {[]txmanager.Header{{Number: 10, Time: 100}, {Number: 10, Time: 100}}, nil, 0},
		"blocks that go back":  {[]txmanager.Header{{Number: 20, Time: 100}, {Number: 10, Time: 225}}, nil, 0},
		"times that go back":   {[]txmanager.Header{{Number: 10, Time: 225}, {Number: 20, Time: 100}}, nil, 0},
	} {
		got := measureBlocks(t.Context(), answering{observed: txmanager.ChainObservation{Headers: c.blocks}, err: c.err}, 20)
		if (got == nil) != (c.want == 0) || got != nil && *got != c.want {
			t.Errorf("%s: got %v, want %d", name, got, c.want)
		}
	}
}
