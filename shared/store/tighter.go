package store

import (
	"cmp"
	"math/big"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// TighterThan reports whether p refuses everything that old refuses, whatever was used of
// both. Then each of its limits is at least as strict. An equal policy is tighter. If that is
// not certain, the result is false.
func (p Policy) TighterThan(old Policy) bool {
	return lowerAmount(p.MaxValue, old.MaxValue) &&
		lowerAmount(p.MaxValuePerDay, old.MaxValuePerDay) &&
		lower(p.MaxPerMinute, old.MaxPerMinute) &&
		fewerTargets(p.Targets, old.Targets) &&
		lowerAmount(p.MaxFeePerTx, old.MaxFeePerTx) &&
		lowerAmount(p.MaxPriorityFeePerGas, old.MaxPriorityFeePerGas) &&
		lower(p.MaxGas, old.MaxGas) &&
		lowerAmount(p.MaxFeesPerDay, old.MaxFeesPerDay) &&
		lowerCallers(p.PerCaller, old.PerCaller) &&
		lowerTokens(p, old)
}

// lowerCallers reports whether each caller has lower limits by a than by b, including the
// limits of callers that it succeeded. A caller that only a names had the limits of
// [AnyCaller].
func lowerCallers(a, b map[string]CallerLimits) bool {
	for name, limits := range b {
		if now, named := a[name]; !named || !now.lowerThan(limits) {
			return false
		}
	}
	for name, limits := range a {
		if _, named := b[name]; !named && !limits.lowerThan(b[AnyCaller]) {
			return false
		}
	}
	return true
}

func (l CallerLimits) lowerThan(old CallerLimits) bool {
	return lowerAmount(l.MaxValue, old.MaxValue) && lowerAmount(l.MaxValuePerDay, old.MaxValuePerDay) &&
		lower(l.MaxPerMinute, old.MaxPerMinute) && lower(l.MaxQueued, old.MaxQueued)
}

// lowerTokens reports whether p limits each token that old limits at least as strictly, and
// allows no further functions of such a token by name.
func lowerTokens(p, old Policy) bool {
	for token, limits := range old.Tokens {
		now, named := p.Tokens[token]
		if !named || !lowerAmount(now.MaxAmount, limits.MaxAmount) || !lowerAmount(now.MaxAmountPerDay, limits.MaxAmountPerDay) {
			return false
		}
	}
	return !slices.ContainsFunc(p.Targets, func(target string) bool {
		token, _, function := strings.Cut(target, ":")
		_, bounded := old.Tokens[token]
		return bounded && function && !txmanager.BoundedFunction(target) && !slices.Contains(old.Targets, target)
	})
}

// lower reports whether a is at most b. nil is no limit.
func lower[N cmp.Ordered](a, b *N) bool { return b == nil || a != nil && *a <= *b }

// lowerAmount is lower for amounts. A text that is no amount counts as not lower.
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

// fewerTargets reports whether b allows each target of a: by its own name, or as a function of
// an address that b allows entirely. nil allows all.
func fewerTargets(a, b []string) bool {
	if b == nil {
		return true
	}
	return a != nil && !slices.ContainsFunc(a, func(target string) bool {
		address, _, _ := strings.Cut(target, ":")
		return !slices.Contains(b, target) && !slices.Contains(b, address)
	})
}
