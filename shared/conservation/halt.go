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
	Scope   Scope
	Account Account
}

// Halts are the halts that new findings ask for, beside those that are open. Graded,
// a user's asset is halted first; the asset when a second user of it is wrong, or was
// and nobody has resumed; everything with a second asset, or where a finding does not
// say whose money it is about.
func Halts(mode Mode, open []Halt, fresh []Finding) []Halt {
	if len(fresh) == 0 {
		return nil
	}
	wrong, unclear := []Account{}, mode != HaltGraded
	for _, f := range fresh {
		wrong = append(wrong, f.Account)
		unclear = unclear || f.Account.UserID <= 0 || f.Account.AssetID <= 0
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
		return []Halt{{Scope: All}}
	case first.UserID != last.UserID:
		return []Halt{{Asset, Account{AssetID: first.AssetID}}}
	default:
		return []Halt{{UserAsset, first}}
	}
}
