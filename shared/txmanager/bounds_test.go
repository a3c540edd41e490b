package txmanager_test

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// The pure function checks value and receiver too.
func TestBoundsOfValueAndTarget(t *testing.T) {
	t.Parallel()
	b := txmanager.Bounds{ValueWei: txtest.Wei(5), Targets: []string{"0xa"}}
	for want, a := range map[string]txmanager.BoundedTerms{
		"":                 {ValueWei: txtest.Wei(5), Target: "0xa"},
		"at most 5 wei":    {ValueWei: txtest.Wei(6), Target: "0xa"},
		"not allow this r": {ValueWei: txtest.Wei(5), Target: "deploy"},
	} {
		if got := b.RefusalReason(a); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%+v: got %q, want %q in it", a, got, want)
		}
	}
	if got := b.RefusalReason(txmanager.BoundedTerms{}); got != "" {
		t.Errorf("what is not known yet: got %q", got)
	}
}
