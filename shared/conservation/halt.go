package conservation

import (
	"cmp"
	"slices"
)

// Scope is how much a halt stops.
type Scope string

// The scopes, each wider than the one before.
const (
	UserAsset Scope = "user_asset" // new transfers of one user in one asset
	Asset     Scope = "asset"      // of anybody in one asset
	All       Scope = "all"        // of anybody
)

// Mode is the setting conservation.halt.
type Mode string

// The modes: halt everything at the first finding, or only as much as is known to be
// wrong.
const (
	HaltAll    Mode = "all"
	HaltGraded Mode = "graded"
)

// Halt is what new transfers are stopped for. Account has no user where the scope is
// an asset, and is empty where it is all.
type Halt struct {
	Scope    Scope
	Account  Account
	Findings []Finding // why; of one that is open: not known
}

// Halts are the halts that new findings ask for, beside those that are open: one for
// each, so that resuming one does not let another pass unseen; but most at most, of
// which the last is for all that are left.
func Halts(mode Mode, open []Halt, fresh []Finding, most int) (all []Halt) {
	if len(fresh) == 0 {
		return nil
	}
	h := widest(mode, open, fresh)
	for len(fresh) > 0 {
		n := 1
		if len(all)+1 >= most {
			n = len(fresh)
		}
		h.Findings, fresh = fresh[:n:n], fresh[n:]
		all = append(all, h)
	}
	return all
}

// widest is as much as all of it together stops. Graded, a user's asset is halted
// first; the asset when a second user of it is wrong, or was and nobody has resumed, or
// where its precision is in doubt; everything with a second asset, or where a finding
// does not say whose money it is about.
func widest(mode Mode, open []Halt, fresh []Finding) Halt {
	wrong, unclear := []Account{}, mode != HaltGraded
	for _, f := range fresh {
		wrong = append(wrong, f.Account)
		unclear = unclear || f.Account.UserID <= 0 && f.Kind != PrecisionDiffers || f.Account.AssetID <= 0
	}
	for _, h := range open {
		if h.Scope != All {
			wrong = append(wrong, h.Account)
		}
	}
	slices.SortFunc(wrong, func(a, b Account) int {
		return cmp.Or(cmp.Compare(a.AssetID, b.AssetID), cmp.Compare(a.UserID, b.UserID))
	})
	wrong = slices.Compact(wrong)
	switch first, last := wrong[0], wrong[len(wrong)-1]; {
	case unclear || first.AssetID != last.AssetID:
		return Halt{Scope: All}
	case first.UserID != last.UserID || first.UserID == 0:
		return Halt{Scope: Asset, Account: Account{AssetID: first.AssetID}}
	default:
		return Halt{Scope: UserAsset, Account: first}
	}
}
