package rules

import (
	"cmp"
	"slices"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// MaxWatched bounds the final blocks remembered for one submitter.
const MaxWatched = 100

// finalBlockStatus is the status of the highest remembered final block in an observation.
type finalBlockStatus int

// The zero status proves nothing: the node lags, or gave no answer.
const (
	FinalBlockUnknown finalBlockStatus = iota
	finalBlockCanonical
	FinalBlockReorged // the node is past the height and has another block there
)

// FinalBlockStatusIn compares the highest final block with the node's chain.
func FinalBlockStatusIn(w txmanager.SubmitterState, v txmanager.ChainObservation) finalBlockStatus {
	last, ok := w.LastFinal()
	if !ok {
		return finalBlockCanonical
	}
	switch hash, seen := v.HashesAt[last.Number]; {
	case !seen:
		return FinalBlockUnknown
	case hash == last.Hash:
		return finalBlockCanonical
	case v.Head.Number > last.Number:
		return FinalBlockReorged
	}
	return FinalBlockUnknown
}

// WatchedHeights are the heights to compare: that of the highest final block, or all of them in
// PROTECT.
func WatchedHeights(w txmanager.SubmitterState) []uint64 {
	if w.Protected {
		return HeightsOf(w.FinalBlocks)
	}
	return HeightsOf(w.FinalBlocks[max(0, len(w.FinalBlocks)-1):])
}

// HeightsOf lists the heights of ascending blocks, each once. After a reorg two blocks of one
// height may be remembered.
func HeightsOf(blocks []txmanager.Header) (heights []uint64) {
	for _, h := range blocks {
		heights = append(heights, h.Number)
	}
	return slices.Compact(heights)
}

// RememberFinalBlocks adds the blocks that became final to those kept, and drops those deeper than
// reorg.watchDepth.
func (r Rules) RememberFinalBlocks(kept, fresh []txmanager.Header) []txmanager.Header {
	all := slices.Concat(kept, fresh)
	slices.SortFunc(all, func(a, b txmanager.Header) int { return cmp.Compare(a.Number, b.Number) })
	all = slices.CompactFunc(all, func(a, b txmanager.Header) bool { return a.Number == b.Number && a.Hash == b.Hash })
	if len(all) == 0 {
		return nil
	}
	top := all[len(all)-1].Number
	all = slices.DeleteFunc(all, func(h txmanager.Header) bool { return h.Number+r.WatchDepth < top })
	return all[max(0, len(all)-MaxWatched):]
}
