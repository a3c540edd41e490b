package txmanager

import "testing"

// A list of confirming blocks was replaced if a block in it differs, or the receipt is gone. Added
// blocks, or a first list, do not count.
func TestNewFork(t *testing.T) {
	t.Parallel()
	failed := pending(5)
	failed.State, failed.Sub = Failed, Displaced
	for name, tt := range map[string]struct {
		from, to Tx
		want     bool
	}{
		"nothing, then a receipt":       {pending(5), included(5, block('a', 100)), false},
		"a block more":                  {included(5, block('a', 100)), included(5, blocks('a', 100, 101)...), false},
		"another block":                 {included(5, blocks('a', 100, 101)...), included(5, blocks('b', 100, 101)...), true},
		"another second block":          {included(5, blocks('a', 100, 101)...), included(5, block('a', 100), block('b', 101)), true},
		"the receipt is gone":           {included(5, block('a', 100)), pending(5), true},
		"gone, as an operator accepted": {included(5, block('a', 100)), failed, false},
	} {
		if got := isNewFork(tt.from, tt.to); got != tt.want {
			t.Errorf("%s: got %t, want %t", name, got, tt.want)
		}
	}
}
