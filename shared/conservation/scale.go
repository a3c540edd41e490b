package conservation

import (
	"cmp"
	"fmt"
	"slices"
)

// Scale is what a side's journal says of an asset: one unit of it is 10^-Precision.
type Scale struct {
	Side      Side // not of a journal's own: it is the reading's
	AssetID   int32
	Precision uint8
}

// scales are those of all readings, each once, in order.
func (r Round) scales() (all []Scale) {
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

// precisions holds the scales that the journals have said, ever or in the round,
// against ours. Money of an asset that has another precision elsewhere would change by
// powers of ten on its way, with equal units on both sides. An asset that only the other
// side has is none of ours.
func (k Known) precisions(r Round) (found []Finding) {
	for _, s := range distinct(slices.Concat(k.Scales, r.scales())) {
		if own, ours := k.Precision[s.AssetID]; ours && own != s.Precision {
			found = append(found, Finding{Kind: PrecisionDiffers, Side: s.Side, Account: Account{AssetID: s.AssetID},
				Expected: fmt.Sprintf("%d decimals", own), Got: fmt.Sprintf("%d decimals", s.Precision)})
		}
	}
	return found
}
