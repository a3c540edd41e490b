// Package plan draws the schedule of faults from a seed: the kind, the time and the seed of
// each fault.
package plan

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Event is one fault to be injected. K is a kind of fault.
type Event[K any] struct {
	At   time.Duration // after the start
	Kind K
	Seed uint64 // of the fault's own random numbers
}

// Source returns the random numbers of a seed.
func Source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x66656e6365706f73)) }

// firstRound is the part of the length in which each kind comes once.
const firstRound = 0.6

// Draw schedules events over the length, on average one each every. Each kind comes once
// before any kind comes again; in a short run this first round is compressed to fit. The weight of a
// kind is its frequency relative to the others; 0 counts as 1. The same source, kinds and times give
// the same events.
func Draw[K any](source *rand.Rand, kinds []K, weight func(K) int, length, every time.Duration) []Event[K] {
	if len(kinds) == 0 || length <= 0 {
		return nil
	}
	order := source.Perm(len(kinds))
	pace := min(every, time.Duration(firstRound*float64(length))/time.Duration(len(kinds)))
	var events []Event[K]
	for at := time.Duration(0); ; at += between(source, pace) {
		var k K
		switch n := len(events); {
		case n < len(kinds):
			k = kinds[order[n]]
		case at >= length:
			return events
		default:
			k, pace = draw(source, kinds, weight), every
		}
		events = append(events, Event[K]{At: at, Kind: k, Seed: source.Uint64()})
	}
}

// between draws a pause of half to one and a half times the pace.
func between(source *rand.Rand, pace time.Duration) time.Duration {
	return pace/2 + time.Duration(source.Int64N(int64(pace)+1))
}

func draw[K any](source *rand.Rand, kinds []K, weight func(K) int) K {
	sum := 0
	for _, k := range kinds {
		sum += max(weight(k), 1)
	}
	at := source.IntN(sum)
	return kinds[slices.IndexFunc(kinds, func(k K) bool {
		at -= max(weight(k), 1)
		return at < 0
	})]
}
