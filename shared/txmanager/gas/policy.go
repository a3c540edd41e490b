package gas

import (
	"fmt"
	"math/big"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// BumpPolicy proposes the fees of gas bumps. [BumpLimits] and the submitter's policy bound each
// proposal.
type BumpPolicy interface {
	// Propose returns the fees of the version that replaces the last one, or ok false for no gas bump
	// now. It is asked again one interval later. It must make no outside calls and use only r: any
	// process may ask it, more than once.
	Propose(r BumpRequest) (fees ProposedFees, ok bool)
}

// BumpRequest describes a transaction that is due for a gas bump. Its amounts are copies.
type BumpRequest struct {
	TxID        string
	Submitter   txmanager.Submitter
	Placeholder bool                // its last version is a placeholder, and so is the next
	Attempts    int                 // gas bumps so far
	Age         time.Duration       // since the first broadcast
	Last        txmanager.GasParams // of its last version
	Market      txmanager.GasParams // what blocks are likely to require
}

// ProposedFees are the fees that a [BumpPolicy] proposes, in wei per gas. On a chain without EIP-1559,
// FeeWei is the price, and TipWei is not used.
type ProposedFees struct{ FeeWei, TipWei *big.Int }

// fees are what the policy proposes. Without a policy they are both fees times the multiplier, and at
// least the market's.
func (l BumpLimits) fees(r BumpRequest) (ProposedFees, bool) {
	if l.Policy != nil {
		return l.Policy.Propose(r)
	}
	g := raiseFees(r.Last, r.Market, l.Multiplier)
	return ProposedFees{g.FeeCapWei, g.TipCapWei}, true
}

// propose returns the proposed fees of the next version. problem is why the policy's proposal cannot be
// followed, or "". A panic counts as no proposal.
func (l BumpLimits) propose(r BumpRequest) (g txmanager.GasParams, ok bool, problem string) {
	last, legacy := CopyParams(r.Last), r.Market.Legacy // the policy might change what it is given
	var fees ProposedFees
	switch p := txmanager.PanicOf(func() { fees, ok = l.fees(r) }); {
	case p != nil:
		return g, false, txmanager.WithDetail("its policy failed", fmt.Sprint("the BumpPolicy panicked: ", p))
	case !ok:
		return g, false, ""
	}
	if legacy {
		fees.TipWei = fees.FeeWei
	}
	if fees.FeeWei == nil || fees.TipWei == nil {
		return g, false, "its policy proposed no fee, or no tip"
	}
	needFee, needTip := Thousandths(last.FeeCapWei, nodesDemand), Thousandths(last.TipCapWei, nodesDemand)
	if fees.FeeWei.Cmp(needFee) < 0 || fees.TipWei.Cmp(needTip) < 0 {
		return g, false, fmt.Sprintf("its policy proposed a fee of %s and a tip of %s wei per gas; a replacement must offer at least %s and %s, a tenth more than the last version", fees.FeeWei, fees.TipWei, needFee, needTip)
	}
	last.Legacy, last.FeeCapWei, last.TipCapWei = legacy, new(big.Int).Set(fees.FeeWei), new(big.Int).Set(fees.TipWei)
	last.FeeCapWei = greater(last.FeeCapWei, last.TipCapWei)
	return last, true, ""
}

// CopyParams is g with its own amounts.
func CopyParams(g txmanager.GasParams) txmanager.GasParams {
	for _, amount := range []**big.Int{&g.FeeCapWei, &g.TipCapWei, &g.ValueWei} {
		if *amount != nil {
			*amount = new(big.Int).Set(*amount)
		}
	}
	return g
}
