package store

import (
	"cmp"
	"math/big"
	"slices"
	"strings"
)

// TighterThan says that p refuses whatever old refuses, whatever was used of both by then:
// each of its limits is at least as strict. An equal policy is. It says no where it is not sure.
func (p Policy) TighterThan(old Policy) bool {
	return lowerAmount(p.MaxValue, old.MaxValue) &&
		lowerAmount(p.MaxValuePerDay, old.MaxValuePerDay) &&
		lower(p.MaxPerMinute, old.MaxPerMinute) &&
		fewerTargets(p.Targets, old.Targets) &&
		lowerAmount(p.MaxFeePerTx, old.MaxFeePerTx) &&
		lowerAmount(p.MaxPriorityFeePerGas, old.MaxPriorityFeePerGas) &&
		lower(p.MaxGas, old.MaxGas) &&
		lowerAmount(p.MaxFeesPerDay, old.MaxFeesPerDay)
}

// lower says that a is no more than b. nil is no limit.
func lower[N cmp.Ordered](a, b *N) bool { return b == nil || a != nil && *a <= *b }

// lowerAmount is lower for amounts. What is no amount is lower than none.
func lowerAmount(a, b *string) bool {
	switch {
	case b == nil:
		return true
	case a == nil:
		return false
	}
	x, ok := new(big.Int).SetString(*a, 10)
	y, known := new(big.Int).SetString(*b, 10)
	return ok && known && x.Cmp(y) <= 0
}

// fewerTargets says that b allows each target that a allows: by its own name, or as a function
// of an address that stands alone. nil allows all.
func fewerTargets(a, b []string) bool {
	if b == nil {
		return true
	}
	return a != nil && !slices.ContainsFunc(a, func(target string) bool {
		address, _, _ := strings.Cut(target, ":")
		return !slices.Contains(b, target) && !slices.Contains(b, address)
	})
}
