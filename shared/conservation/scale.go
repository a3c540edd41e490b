package conservation

import (
	"cmp"
	"fmt"
	"slices"
)

// Scale is an asset's precision in a side's journal: one unit is 10^-Precision.
type Scale struct {
	Side      Side // set from the reading, not from the journal
	AssetID   int32
	Precision uint8
}

// scales returns the scales of all readings, each once, in order.
func (r Batch) scales() (all []Scale) {
	for _, reading := range r.Readings {
		for _, s := range reading.Scales {
			s.Side = reading.Side
			all = append(all, s)
		}
	}
	return distinct(all)
}

func distinct(all []Scale) []Scale {
	slices.SortFunc(all, func(a, b Scale) int {
		return cmp.Or(cmp.Compare(a.Side, b.Side), cmp.Compare(a.AssetID, b.AssetID), cmp.Compare(a.Precision, b.Precision))
	})
	return slices.Compact(all)
}

// precisions compares the scales of all journals, earlier ones and the batch's, with the precisions
// of our assets. With another precision, equal units on both sides would be amounts that differ by
// a power of ten. An asset that only the other side has is ignored.
func (k Known) precisions(r Batch) (found []Finding) {
	for _, s := range distinct(slices.Concat(k.Scales, r.scales())) {
		if own, ours := k.Precision[s.AssetID]; ours && own != s.Precision {
			found = append(found, Finding{Kind: PrecisionDiffers, Side: s.Side, Account: Account{AssetID: s.AssetID},
				Expected: fmt.Sprintf("%d decimals", own), Got: fmt.Sprintf("%d decimals", s.Precision)})
		}
	}
	return found
}
