// Package rules decides about transactions: [Rules.NextQuery], [Rules.Evaluate],
// [Rules.PlanAllocations], [Rules.PlanSignatures] and [Rules.PlanNextWork] are the five decisions of
// an iteration. It is pure: each function depends only on the stored state, the chain observation
// and the settings.
package rules

import (
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
)

// Rules are the settings that decide about the transactions of every submitter of a deployment.
type Rules struct {
	gas.Limits
	Finality
	Broadcasting
	Strict               bool          // one open nonce at a time, whatever window the submitter was registered with
	DeferAfter           time.Duration // how long an intent's own bounds may block it before intents of other callers pass it; 0: they never pass it
	AskBeforePlaceholder bool          // only an operator's decision replaces a transaction or fills a nonce
	Inspection           *Inspection   // nil: transactions are not diagnosed
}

// Finality is when an included transaction is final, and how its chain is watched.
type Finality struct {
	By            txmanager.Finality
	Confirmations uint64        // blocks on top of the receipt's block, for ByConfirmations
	BlockTime     time.Duration // expected time between blocks: only a hint for polls
	WatchEvery    time.Duration // the longest time between checks of an included transaction
	WatchDepth    uint64        // how far below the last final block final blocks are remembered
}

// TimeToFinality is the expected time from a block to its finality. Where a tag decides finality, it
// is a high estimate.
func (f Finality) TimeToFinality() time.Duration {
	if f.By == txmanager.ByConfirmations {
		return time.Duration(f.Confirmations+1) * f.BlockTime
	}
	return maxListed * f.BlockTime
}

// Broadcasting is how often the bytes of a transaction without a receipt are sent.
type Broadcasting struct {
	Resubmit      bool // rebroadcast a transaction that stays without a receipt
	ResubmitEvery time.Duration
	MaxResubmits  int           // broadcasts before a transaction becomes STUCK
	StuckAfter    time.Duration // time from the first broadcast until it becomes STUCK
}

// BindWindow is w with the window that the rules allow. Strict rules bind no nonce while another
// is open. Transactions that were already open are still polled and rebroadcast.
func (r Rules) BindWindow(w txmanager.SubmitterState) txmanager.SubmitterState {
	if w.Strict = r.Strict; w.Strict {
		w.Window = 1
	}
	return w
}

// maxListed bounds a list of confirming blocks where a tag decides finality.
const maxListed = 96

// HeaderDepth is how many blocks on top of the receipt's block are queried.
func (r Rules) HeaderDepth() uint64 {
	if r.By == txmanager.ByConfirmations {
		return r.Confirmations
	}
	return maxListed
}

// FinalityTag is the block tag that decides finality, or "" where depth does.
func (r Rules) FinalityTag() string {
	if r.By == txmanager.ByConfirmations {
		return ""
	}
	return string(r.By)
}

// retryDelay doubles with each failure, from one second up to ResubmitEvery.
func (r Rules) retryDelay(failures int) time.Duration {
	d := time.Second << min(max(failures-1, 0), 10)
	return min(d, max(r.ResubmitEvery, time.Second))
}
