package conservation

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Reading is what was read of one side's journal at once, in its order.
type Reading struct {
	Side    Side
	Entries []transfer.Entry
	Scales  []Scale

	// Last says that nothing was read later: what is credited only here is not
	// judged yet, since its withdrawal may be younger than what was read of the
	// other side.
	Last bool
}

// Round is what one step of a run adds to what was known.
type Round struct {
	Claims   []Claim
	Readings []Reading
}

// Requests are the req_ids that the round is about, each once, in order.
func (r Round) Requests() []string {
	all := map[string]bool{}
	for _, c := range r.Claims {
		all[c.ReqID] = true
	}
	for _, reading := range r.Readings {
		for _, entry := range reading.Entries {
			if Concerns(entry) {
				all[entry.ReqID] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Moved is by how much the round changes the sum of each account of each side.
func (r Round) Moved() map[Side]map[Account]Sum {
	all := map[Side]map[Account]Sum{}
	for _, reading := range r.Readings {
		if all[reading.Side] == nil {
			all[reading.Side] = map[Account]Sum{}
		}
		of := all[reading.Side]
		for _, entry := range reading.Entries {
			at := Account{entry.UserID, entry.AssetID}
			switch change := Units(entry.Units); {
			case entry.Refused != "" || !entry.Op.Counts():
			case entry.Op.Credits():
				of[at] = of[at].Plus(change)
			default:
				of[at] = of[at].Minus(change)
			}
		}
	}
	return all
}

// Known is what is known of the requests of a round, and of those that are open,
// by req_id; and what the transfers' rows say of the requests of the round, as they
// were read after its journals.
type Known struct {
	Evidence map[string]*Evidence
	Terms    map[string]Terms

	Scales    []Scale         // that the journals have said before
	Precision map[int32]uint8 // of the assets that transfers are made of
}

// Merge brings what is known up to date by the round, and returns what is wrong
// whatever comes. It does not look for what is missing.
func (k Known) Merge(r Round) (found []Finding) {
	requests := r.Requests()
	for _, req := range requests {
		if k.Evidence[req] == nil {
			k.Evidence[req] = &Evidence{ReqID: req}
		}
	}
	for _, c := range r.Claims {
		found = append(found, k.Evidence[c.ReqID].Claims(c)...)
	}
	for _, req := range requests {
		if e := k.Evidence[req]; e.Type == 0 {
			found = append(found, e.Exists(k.terms(req))...)
		}
	}
	for _, reading := range r.Readings {
		for _, entry := range reading.Entries {
			if Concerns(entry) {
				found = append(found, k.Evidence[entry.ReqID].Add(reading.Side, entry)...)
			}
		}
	}
	for _, req := range requests {
		found = append(found, k.Evidence[req].Contradictions()...)
	}
	return found
}

func (k Known) terms(req string) *Terms {
	if t, ok := k.Terms[req]; ok {
		return &t
	}
	return nil
}

// Missing is what should be there by now, of all that is open. r is the round that
// has read every side up to now, and has been merged.
func (k Known) Missing(r Round, chain bool) (found []Finding) {
	early := r.early()
	for _, req := range slices.Sorted(maps.Keys(k.Evidence)) {
		if !early[req] {
			found = append(found, k.Evidence[req].Missing(chain)...)
		}
	}
	return found
}

// early are the requests that were credited where nothing was read later.
func (r Round) early() map[string]bool {
	all := map[string]bool{}
	for _, reading := range r.Readings {
		for _, entry := range reading.Entries {
			if reading.Last && Concerns(entry) && entry.Op.Credits() {
				all[entry.ReqID] = true
			}
		}
	}
	return all
}

// Balances holds the balances of a side against the sums of its journal at the same
// point. An account that only one of them has is 0 in the other.
func Balances(side Side, sums, balances map[Account]Sum) (found []Finding) {
	for at, sum := range sums {
		if got := balances[at]; got != sum {
			found = append(found, differs(side, at, sum, got))
		}
	}
	for at, got := range balances {
		if _, ok := sums[at]; !ok && got != (Sum{}) {
			found = append(found, differs(side, at, Sum{}, got))
		}
	}
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Account.UserID, b.Account.UserID), cmp.Compare(a.Account.AssetID, b.Account.AssetID))
	})
	return found
}

func differs(side Side, at Account, sum, got Sum) Finding {
	return Finding{Kind: BalanceDiffers, Side: side, Account: at, Expected: sum.String(), Got: got.String()}
}
