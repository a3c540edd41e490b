package gas

import (
	"math/big"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

func TestShortBalanceSaysByHowMuch(t *testing.T) {
	t.Parallel()
	p := BalanceOf(txmanager.ChainObservation{Account: txmanager.Account{BalanceWei: big.NewInt(1_000_000)}}, nil)
	g := *txtest.Params(21_000, 80, 1) // 1,680,001 and a placeholder of 1,890,000
	txtest.Same(t, "short", p.Reserve(g), txtest.Wei(2_570_001))
	txtest.Same(t, "left after a refused purchase", p.leftWei, txtest.Wei(1_000_000))
}

func TestGasOfAnEstimateHasAMargin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		given, most uint64
		e           txmanager.Estimate
		want        uint64
		verdict     txmanager.Outcome
	}{
		{0, 0, txtest.Estimated(21_000), 21_000, txmanager.Done}, // a plain transfer is exact
		{0, 0, txtest.Estimated(21_001), 25_201, txmanager.Done},
		{0, 0, txtest.Estimated(100_000), 120_000, txmanager.Done},
		{0, 130_000, txtest.Estimated(100_000), 120_000, txmanager.Done},
		{0, 110_000, txtest.Estimated(100_000), 110_000, txmanager.Done},
		{0, 100_000, txtest.Estimated(100_001), 0, txmanager.Refused},
		{0, 21_000, txtest.Estimated(21_000), 21_000, txmanager.Done},
		{50_000, 0, txtest.Estimated(100_000), 50_000, txmanager.Done},
		{50_000, 0, txtest.Reverts(), 50_000, txmanager.Done},
		{50_000, 0, txmanager.Estimate{}, 50_000, txmanager.Done},
		{0, 0, txtest.Reverts(), 0, txmanager.Refused},
		{0, 90_000, txtest.Reverts(), 0, txmanager.Refused},
		{0, 0, txmanager.Estimate{}, 0, txmanager.Unknown},
	} {
		if got, verdict, _ := LimitOf(txmanager.Call{Gas: c.given, MaxGas: c.most}, c.e, 0); got != c.want || verdict != c.verdict {
			t.Errorf("given %d, estimate %+v: got %d, %s; want %d, %s", c.given, c.e, got, verdict, c.want, c.verdict)
		}
	}
}

func TestFeesFillInWhatThePayloadLeavesOpen(t *testing.T) {
	t.Parallel()
	a := txmanager.Account{BaseFeeWei: big.NewInt(100), TipWei: big.NewInt(3)}
	for _, c := range []struct {
		name             string
		cap, tip         *big.Int
		wantCap, wantTip int64
	}{
		{"nothing given", nil, nil, 203, 3},
		{"tip given", nil, big.NewInt(50), 250, 50},
		{"tip of zero given: no node holds that", nil, big.NewInt(0), 201, 1},
		{"cap given", big.NewInt(150), nil, 150, 3},
		{"cap below the node's tip", big.NewInt(2), nil, 2, 2},
		{"both given", big.NewInt(150), big.NewInt(50), 150, 50},
		{"equal", big.NewInt(50), big.NewInt(50), 50, 50},
	} {
		g := CompleteFees(txmanager.Call{FeeCapWei: c.cap, TipCapWei: c.tip, Value: big.NewInt(9)}, 30_000, a)
		if g.FeeCapWei.Int64() != c.wantCap || g.TipCapWei.Int64() != c.wantTip || g.Gas != 30_000 || g.ValueWei.Int64() != 9 {
			t.Errorf("%s: got %+v, want cap %d, tip %d", c.name, g, c.wantCap, c.wantTip)
		}
	}
	txtest.Same(t, "no value", CompleteFees(txmanager.Call{}, 1, a).ValueWei, new(big.Int))
	if a.BaseFeeWei.Int64() != 100 || a.TipWei.Int64() != 3 {
		t.Errorf("the view's fees became %+v", a)
	}
}
