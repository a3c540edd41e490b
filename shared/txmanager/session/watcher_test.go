package session

import (
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A list of confirming blocks was replaced if a block in it differs, or the receipt is gone. Added
// blocks, or a first list, do not count.
func TestNewFork(t *testing.T) {
	t.Parallel()
	failed := txtest.Pending(5)
	failed.State, failed.Sub = txmanager.Failed, txmanager.Displaced
	for name, tt := range map[string]struct {
		from, to txmanager.Tx
		want     bool
	}{
		"nothing, then a receipt":       {txtest.Pending(5), txtest.Included(5, txtest.Block('a', 100)), false},
		"a block more":                  {txtest.Included(5, txtest.Block('a', 100)), txtest.Included(5, txtest.Blocks('a', 100, 101)...), false},
		"another block":                 {txtest.Included(5, txtest.Blocks('a', 100, 101)...), txtest.Included(5, txtest.Blocks('b', 100, 101)...), true},
		"another second block":          {txtest.Included(5, txtest.Blocks('a', 100, 101)...), txtest.Included(5, txtest.Block('a', 100), txtest.Block('b', 101)), true},
		"the receipt is gone":           {txtest.Included(5, txtest.Block('a', 100)), txtest.Pending(5), true},
		"gone, as an operator accepted": {txtest.Included(5, txtest.Block('a', 100)), failed, false},
	} {
		check.Equal(t, name, isNewFork(tt.from, tt.to), tt.want)
	}
}
