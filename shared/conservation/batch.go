package conservation

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Entry is an entry of a side's journal.
type Entry struct {
	transfer.Entry
	Side Side

	// Last marks an entry of the last read of a run. A credit that is only in it is not evaluated yet,
	// since its withdrawal may be newer than the read of the other side.
	Last bool
}

// moves are the operations that move a transfer's money.
var moves = []transfer.Op{transfer.Withdraw, transfer.Deposit, transfer.Refund}

// concerns reports whether the entry moved a transfer's money. A refusal moved none, and money from
// outside has no other side.
func (e Entry) concerns() bool {
	return e.Refused == "" && slices.Contains(moves, e.Op)
}

// Batch holds the input of one step of a run: the final states, entries and scales that it has read, in order.
type Batch struct {
	Claims  []Claim
	Entries []Entry
	Scales  []Scale
}

// Requests returns the req_ids of the batch, each once, in order.
func (r Batch) Requests() []string {
	all := map[string]bool{}
	for _, c := range r.Claims {
		all[c.ReqID] = true
	}
	for _, entry := range r.Entries {
		if entry.concerns() {
			all[entry.ReqID] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Moved returns the batch's change of the sum of each account on each side.
func (r Batch) Moved() map[Side]map[Account]Sum {
	all := map[Side]map[Account]Sum{}
	for _, entry := range r.Entries {
		if all[entry.Side] == nil {
			all[entry.Side] = map[Account]Sum{}
		}
		of, at := all[entry.Side], Account{entry.UserID, entry.AssetID}
		switch change := Units(entry.Units); {
		case entry.Refused != "" || !entry.Op.Counts():
		case entry.Op.Credits():
			of[at] = of[at].Plus(change)
		default:
			of[at] = of[at].Minus(change)
		}
	}
	return all
}

// Known holds, by req_id, the evidence about the batch's requests and about the open ones. It also
// has the transfers' rows of the batch's requests, read after its journals.
type Known struct {
	Evidence map[string]*Evidence
	Terms    map[string]Terms

	Scales    []Scale         // from earlier reads of the journals
	Precision map[int32]uint8 // of the assets, by asset id
}

// Merge adds the batch to the evidence and returns the violations that no later entry can resolve.
// It does not check for missing entries.
func (k Known) Merge(r Batch) (found []Finding) {
	requests := r.Requests()
	for _, req := range requests {
		k.Evidence[req] = cmp.Or(k.Evidence[req], &Evidence{ReqID: req})
	}
	for _, c := range r.Claims {
		found = append(found, k.Evidence[c.ReqID].Claims(c)...)
	}
	for _, req := range requests {
		if e := k.Evidence[req]; e.Type == 0 {
			terms, exists := k.Terms[req]
			found = append(found, e.Exists(terms, exists)...)
		}
	}
	for _, entry := range r.Entries {
		if entry.concerns() {
			found = append(found, k.Evidence[entry.ReqID].Add(entry)...)
		}
	}
	for _, req := range requests {
		found = append(found, k.Evidence[req].Contradictions()...)
	}
	return found
}

// Missing returns the missing entries of all open requests. r is the batch that has read every side
// up to now, and was merged.
func (k Known) Missing(r Batch, chain bool) (found []Finding) {
	early := map[string]bool{} // requests with a credit that only the last read has seen
	for _, entry := range r.Entries {
		if entry.Last && entry.concerns() && entry.Op.Credits() {
			early[entry.ReqID] = true
		}
	}
	for _, req := range slices.Sorted(maps.Keys(k.Evidence)) {
		if !early[req] {
			found = append(found, k.Evidence[req].Missing(chain)...)
		}
	}
	return found
}

// Balances compares the balances of a side with the sums of its journal at the same point. An
// account that is in only one of them counts as 0 in the other.
func Balances(side Side, sums, balances map[Account]Sum) (found []Finding) {
	all := make(map[Account]Sum, len(sums))
	maps.Copy(all, sums)
	for at := range balances {
		all[at] = sums[at]
	}
	for at, sum := range all {
		if got := balances[at]; got != sum {
			found = append(found, Finding{Kind: BalanceDiffers, Side: side, Account: at, Expected: sum.String(), Got: got.String()})
		}
	}
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Account.UserID, b.Account.UserID), cmp.Compare(a.Account.AssetID, b.Account.AssetID))
	})
	return found
}
