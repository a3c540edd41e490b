package gas

import (
	"math/big"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// proposes is a policy made of a function.
type proposes func(BumpRequest) (ProposedFees, bool)

func (p proposes) Propose(r BumpRequest) (ProposedFees, bool) { return p(r) }

// A proposal below what nodes require, an incomplete one, or a panic makes no gas bump, and says why.
// The policy cannot change what it is given.
func TestProposalsAreBounded(t *testing.T) {
	t.Parallel()
	fixed := func(fee, tip *big.Int) proposes {
		return func(BumpRequest) (ProposedFees, bool) { return ProposedFees{fee, tip}, true }
	}
	for _, c := range []struct {
		name   string
		policy proposes
		ok     bool
		why    string
	}{
		{"a tenth more in both fees", fixed(big.NewInt(110), big.NewInt(11)), true, ""},
		{"too low a fee", fixed(big.NewInt(109), big.NewInt(11)), false, "at least 110 and 11"},
		{"too low a tip", fixed(big.NewInt(200), big.NewInt(10)), false, "at least 110 and 11"},
		{"a negative fee", fixed(big.NewInt(-200), big.NewInt(11)), false, "at least 110 and 11"},
		{"no tip", fixed(big.NewInt(200), nil), false, "no tip"},
		{"nothing", func(BumpRequest) (ProposedFees, bool) { return ProposedFees{}, false }, false, ""},
		{"a panic", func(BumpRequest) (ProposedFees, bool) { panic("no market") }, false, "panicked: no market"},
		{"lower fees for what it was given", func(r BumpRequest) (ProposedFees, bool) {
			r.Last.FeeCapWei.SetInt64(1)
			r.Last.TipCapWei.SetInt64(1)
			return ProposedFees{big.NewInt(2), big.NewInt(2)}, true
		}, false, "at least 110 and 11"},
	} {
		last := txmanager.GasParams{Gas: 21_000, FeeCapWei: big.NewInt(100), TipCapWei: big.NewInt(10), ValueWei: big.NewInt(7)}
		got, ok, why := BumpLimits{Policy: c.policy}.propose(BumpRequest{Last: CopyParams(last), Market: CopyParams(last)})
		if ok != c.ok || !strings.Contains(why, c.why) || c.why == "" && why != "" {
			t.Errorf("%s: got %v, %q; want %v, %q", c.name, ok, why, c.ok, c.why)
		}
		if ok && (got.FeeCapWei.Int64() != 110 || got.TipCapWei.Int64() != 11 || got.Gas != 21_000 || got.ValueWei.Int64() != 7) {
			t.Errorf("%s: got %+v, want the fees proposed, and the gas and value as before", c.name, got)
		}
	}
	legacy := txmanager.GasParams{Legacy: true, FeeCapWei: big.NewInt(100), TipCapWei: big.NewInt(100)}
	if got, ok, why := (BumpLimits{Policy: fixed(big.NewInt(110), nil)}).propose(BumpRequest{Last: legacy, Market: legacy}); !ok || !got.Legacy || got.TipCapWei.Int64() != 110 {
		t.Errorf("one price: got %+v, %q; want it in both fees", got, why)
	}
}
