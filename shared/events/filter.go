package events

import (
	"context"
	"slices"

	"github.com/fencepost/fencepost/shared/nonce"
)

// OnlyOf tells p of the events of these callers' transactions alone; it takes all
// others for it. An event whose caller is not known is told to nobody.
func OnlyOf(callers []string, p nonce.DomainEventPublisher) nonce.DomainEventPublisher {
	return filter{callers, p}
}

type filter struct {
	callers []string
	next    nonce.DomainEventPublisher
}

// skips says that the receiver is told of none of the events: then it is not asked, and
// says nothing of whether it answers.
func skips(p nonce.DomainEventPublisher, all []nonce.Event) bool {
	f, some := p.(filter)
	return !slices.ContainsFunc(all, func(e nonce.Event) bool { return !some || slices.Contains(f.callers, e.Caller) })
}

// Publish implements [nonce.DomainEventPublisher].
func (f filter) Publish(ctx context.Context, all []nonce.Event) (int, error) {
	var theirs []nonce.Event
	var places []int
	for i, e := range all {
		if slices.Contains(f.callers, e.Caller) {
			theirs, places = append(theirs, e), append(places, i)
		}
	}
	if len(theirs) == 0 {
		return len(all), nil
	}
	n, err := f.next.Publish(ctx, theirs)
	if n == len(theirs) {
		return len(all), err
	}
	return places[n], err
}
