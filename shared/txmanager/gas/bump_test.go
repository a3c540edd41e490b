package gas

import (
	"math/big"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A gas bump is an eighth higher, at least what blocks require now, at least what nodes accept as
// a replacement, and never above the cap.
func TestBid(t *testing.T) {
	t.Parallel()
	dynamic := func(fee, tip int64) txmanager.GasParams {
		return txmanager.GasParams{Gas: 10, FeeCapWei: big.NewInt(fee), TipCapWei: big.NewInt(tip), ValueWei: big.NewInt(7)}
	}
	legacy := func(price int64) txmanager.GasParams { g := dynamic(price, price); g.Legacy = true; return g }
	for _, c := range []struct {
		name         string
		policy       BumpPolicy
		last, market txmanager.GasParams
		cap          *big.Int
		want         txmanager.GasParams
		ok           bool
	}{
		{"an eighth more, rounded up", BumpPolicy{Multiplier: 1125}, dynamic(100, 9), dynamic(50, 1), nil, dynamic(113, 11), true},
		{"of a wei", BumpPolicy{Multiplier: 1125}, dynamic(1, 1), dynamic(0, 0), nil, dynamic(2, 2), true},
		{"what blocks take", BumpPolicy{Multiplier: 1125}, dynamic(100, 9), dynamic(300, 40), nil, dynamic(300, 40), true},
		{"more by the multiplier", BumpPolicy{Multiplier: 2000}, dynamic(100, 9), dynamic(50, 1), nil, dynamic(200, 18), true},
		{"cut to the cap", BumpPolicy{Multiplier: 1125}, dynamic(100, 9), dynamic(300, 1), big.NewInt(110), dynamic(110, 11), true},
		{"nodes would not take what the cap leaves", BumpPolicy{Multiplier: 1125}, dynamic(100, 9), dynamic(300, 1), big.NewInt(109), dynamic(0, 0), false},
		{"the cap of a transaction", BumpPolicy{Multiplier: 1125, TxFeeCapWei: big.NewInt(1119)}, dynamic(100, 9), dynamic(300, 1), nil, dynamic(111, 11), true},
		{"the cap of a transaction is too low", BumpPolicy{Multiplier: 1125, TxFeeCapWei: big.NewInt(1099)}, dynamic(100, 9), dynamic(300, 1), nil, dynamic(0, 0), false},
		{"a tip above the cap", BumpPolicy{Multiplier: 1125}, dynamic(100, 99), dynamic(50, 1), big.NewInt(111), dynamic(111, 111), true},
		{"legacy", BumpPolicy{Multiplier: 1125}, legacy(100), legacy(90), nil, legacy(113), true},
		{"from one price", BumpPolicy{Multiplier: 1125}, legacy(100), dynamic(50, 1), nil, dynamic(113, 113), true},
		{"to one price", BumpPolicy{Multiplier: 1125}, dynamic(100, 9), legacy(90), nil, legacy(113), true},
		{"legacy, by the node's advice", BumpPolicy{Multiplier: 1125}, legacy(100), legacy(200), big.NewInt(150), legacy(150), true},
	} {
		got, refused := c.policy.replacementFees(c.last, c.market, FeeCaps{FeeWei: c.cap})
		if ok := refused == ""; ok != c.ok || ok && txtest.Diff(c.want, got) != "" {
			t.Errorf("%s: got %+v, %q; want %+v, %v", c.name, got, refused, c.want, c.ok)
		}
		if c.last.FeeCapWei.Int64() > 100 || c.market.FeeCapWei.Int64() > 300 {
			t.Errorf("%s: what it was given became %v, %v", c.name, c.last, c.market)
		}
	}
}
