package evm_test

import (
	"testing"

	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/check"
)

// On a chain that is declared to have no tag "finalized", an account's final count is that of depth
// blocks below the head, and none with too few blocks. On other chains only the tag decides.
func TestFinalCountOfAChainWithoutTheTag(t *testing.T) {
	t.Parallel()
	chain := startChain(t)
	raws, q := windowOf(t, chain, 1)
	q.FinalCount = true
	final := func(depth *uint64) *uint64 {
		t.Helper()
		c := check.Value(evm.New(evm.Options{URL: chain.URL(), ChainID: chain.ChainID(), FinalDepth: depth}))(t)
		defer c.Close()
		v := check.Value(c.Query(t.Context(), q))(t)
		return v.FinalCount
	}
	check.OK(t)(chain.MineExactly(raws[0]))
	mined := chain.Head()
	check.Equal(t, "more blocks wanted than there are: count", final(new(mined+1)), nil)
	for _, c := range []struct{ above, depth, want uint64 }{{0, 0, 1}, {0, 1, 0}, {3, 3, 1}, {3, 4, 0}} {
		check.OK(t)(chain.Mine(int(mined + c.above - chain.Head())))
		if got := final(&c.depth); got == nil || *got != c.want {
			t.Errorf("%d blocks below the head, mined %d below it: got %v, want %d", c.depth, c.above, got, c.want)
		}
	}
	if got := final(nil); got != nil && *got != 0 {
		t.Errorf("by the tag: got %d, want what the tag's block says, 0 or none", *got)
	}
}
