package conservation

import (
	"cmp"
	"slices"
)

// Scope is the extent of a halt.
type Scope string

// The scopes, each wider than the one before.
const (
	UserAsset Scope = "user_asset" // new transfers of one user in one asset
	Asset     Scope = "asset"      // new transfers of all users in one asset
	All       Scope = "all"        // all new transfers
)

// Mode is the setting conservation.halt.
type Mode string

// The modes: halt everything at the first finding, or only the affected part.
const (
	HaltAll    Mode = "all"
	HaltGraded Mode = "graded"
)

// Halt stops new transfers of a scope. Account has no user for the scope asset, and is empty for
// the scope all.
type Halt struct {
	Scope    Scope
	Account  Account
	Findings []Finding // the cause; unknown for an open halt
}

// Halts returns the halts for new findings, beside the open ones: one for each finding, so that
// resuming one leaves the others halted. It returns at most limit halts; the last of them covers
// all remaining findings.
func Halts(mode Mode, open []Halt, fresh []Finding, limit int) (all []Halt) {
	if len(fresh) == 0 {
		return nil
	}
	h := widest(mode, open, fresh)
	for len(fresh) > 0 {
		n := 1
		if len(all)+1 >= limit {
			n = len(fresh)
		}
		h.Findings, fresh = fresh[:n:n], fresh[n:]
		all = append(all, h)
	}
	return all
}

// widest returns the halt that covers all findings. In graded mode the first finding halts a user's
// asset. It halts the asset if a second user of it is affected, if an earlier user's halt is still
// open, or if its precision differs. It halts everything if a second asset is affected, or if a
// finding does not show whose money it is about.
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
