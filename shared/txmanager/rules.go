package txmanager

import (
	"math/big"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// Finality is what makes an included transaction final.
type Finality string

// By depth, or by one of the chain's own tags.
const (
	ByConfirmations Finality = "confirmations"
	BySafe          Finality = "safe"
	ByFinalized     Finality = "finalized"
)

// Rules are the settings that govern every submitter of a deployment.
type Rules struct {
	Lease                lease.Rules
	Finality             Finality
	Confirmations        uint64            // blocks on top of the receipt's, where Finality is by confirmations
	BlockTime            time.Duration     // when to expect the next block: a hint for polls, nothing more
	WatchEvery           time.Duration     // the longest that an included transaction goes unwatched
	WatchDepth           uint64            // how far below the last final block final ones are remembered
	Strict               bool              // one open nonce at a time, whatever window a submitter was registered with
	DeferAfter           time.Duration     // how long its own bounds hold back an intent before those of other callers go ahead of it; 0: none ever does
	AskBeforePlaceholder bool              // nothing is replaced or filled but by an operator's decision
	FeeCapWei            *big.Int          // the most that a first version pays, wei per gas; nil: no bound
	TxFeeCapWei          *big.Int          // the most that the gas of a first version may cost, wei; nil: no bound
	TipMultiple          int64             // of the nodes' advice, the most that a first version or a bid tips; 0: no bound
	TipFloorWei          *big.Int          // below which that bound never is, wei per gas; nil: none
	PlaceholderFeeCapWei *big.Int          // the most that a replacement pays, wei per gas; nil: no bound
	Bump                 *GasBumpPolicy    // nil: nothing is replaced but by a decision
	Inspector            *MempoolInspector // nil: nothing is diagnosed
	Resubmit             bool              // send again what stays without a receipt
	ResubmitEvery        time.Duration
	MaxResubmits         int           // broadcasts of one transaction before it is STUCK
	StuckAfter           time.Duration // since the first broadcast, before it is STUCK
	CallTimeout          time.Duration // of one call to a node
	SignTimeout          time.Duration // of one call to a signer; 0: CallTimeout
	SignParallel         int           // signatures of one submitter that are asked for at once, where they may be before the nonce is bound; 0: 1
	HandlerTimeout       time.Duration // of one asking of a handler
	HandlerPatience      time.Duration // how long a handler that says not now is asked again, since it was asked first
	IterationsEndAfter   time.Duration // no further round is begun past this age of the invocation
}

// bindWindow is w with the window that these rules leave it. While they are strict nothing is
// bound beside an open nonce. What was in flight before goes on being watched, and sent
// again.
func (r Rules) bindWindow(w SubmitterState) SubmitterState {
	if w.Strict = r.Strict; w.Strict {
		w.Window = 1
	}
	return w
}

// maxListed bounds a list of confirming blocks where the chain's tags decide.
const maxListed = 96

// headerDepth is how many blocks on top of the receipt's are asked for.
func (r Rules) headerDepth() uint64 {
	if r.Finality == ByConfirmations {
		return r.Confirmations
	}
	return maxListed
}

// finalityTag is the block tag that decides, or "" where depth does.
func (r Rules) finalityTag() string {
	if r.Finality == ByConfirmations {
		return ""
	}
	return string(r.Finality)
}

// afterBlocks is when n more blocks should have come on top of head, with a
// little time for the last to arrive. It is a guess in the database's time.
func (r Rules) afterBlocks(n uint64, head Header, now time.Time) time.Time {
	arrival := min(r.BlockTime/20, 500*time.Millisecond)
	next := time.Unix(int64(head.Time), 0).Add(r.BlockTime + arrival)
	if next.Before(now) || next.After(now.Add(2*r.BlockTime)) { // the chain's clock is not ours
		next = now.Add(r.BlockTime)
	}
	return next.Add(time.Duration(max(n, 1)-1) * r.BlockTime)
}

// retryDelay grows with the number of failures, from one second to the interval
// of resubmission.
func (r Rules) retryDelay(failures int) time.Duration {
	d := time.Second << min(max(failures-1, 0), 10)
	return min(d, max(r.ResubmitEvery, time.Second))
}

// placeholderGas is the gas set aside for the placeholder that each held nonce may come to
// need.
const placeholderGas = 21_000

// placeholderCostWei is what replacing a version paying feeCapWei may cost.
func placeholderCostWei(feeCapWei *big.Int) *big.Int {
	cost := new(big.Int).Mul(feeCapWei, big.NewInt(placeholderGas*replaceFactor))
	return cost.Div(cost, big.NewInt(1000))
}
