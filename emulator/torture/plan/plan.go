// Package plan draws the schedule of a run of faults from a seed: which kind
// comes when, and with what numbers.
package plan

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is what may come.
type Kind struct {
	Name   string
	Weight int // how often it is drawn, against the others; 0 counts as 1
}

// Event is one fault to be injected.
type Event struct {
	At   time.Duration // after the start
	Kind string
	Seed uint64 // of the fault's own numbers
}

// Source is the one source of random numbers of a seed.
func Source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x66656e6365706f73)) }

// Source is the source of the event's own numbers.
func (e Event) Source() *rand.Rand { return Source(e.Seed) }

// firstRound is the part of the length in which each kind comes once.
const firstRound = 0.6

// Draw schedules events over the length, one each every on average: first each
// kind once, in an order drawn anew, then any. Where the length is too short for
// that, the first round is made to fit. The same source, kinds and times give the
// same events.
func Draw(source *rand.Rand, kinds []Kind, length, every time.Duration) []Event {
	if len(kinds) == 0 || length <= 0 {
		return nil
	}
	order := source.Perm(len(kinds))
	pace := min(every, time.Duration(firstRound*float64(length))/time.Duration(len(kinds)))
	var events []Event
	for at := time.Duration(0); ; at += between(source, pace) {
		var k Kind
		switch n := len(events); {
		case n < len(kinds):
			k = kinds[order[n]]
		case at >= length:
			return events
		default:
			k, pace = draw(source, kinds), every
		}
		events = append(events, Event{At: at, Kind: k.Name, Seed: source.Uint64()})
	}
}

// between is a pause of half to one and a half times the pace.
func between(source *rand.Rand, pace time.Duration) time.Duration {
	return pace/2 + time.Duration(source.Int64N(int64(pace)+1))
}

func draw(source *rand.Rand, kinds []Kind) Kind {
	sum := 0
	for _, k := range kinds {
		sum += max(k.Weight, 1)
	}
	at := source.IntN(sum)
	return kinds[slices.IndexFunc(kinds, func(k Kind) bool {
		at -= max(k.Weight, 1)
		return at < 0
	})]
}
