package events

import (
	"context"
	"slices"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// OnlyOf publishes to p only the events of these callers' transactions, and accepts all others
// itself. An event without a known caller is published to no one.
func OnlyOf(callers []string, p txmanager.DomainEventPublisher) txmanager.DomainEventPublisher {
	return filter{callers, p}
}

type filter struct {
	callers []string
	next    txmanager.DomainEventPublisher
}

// skips reports whether none of the events is for the endpoint. Then it is not called, and nothing
// is learned about whether it answers.
func skips(p txmanager.DomainEventPublisher, all []txmanager.Event) bool {
	f, some := p.(filter)
	return !slices.ContainsFunc(all, func(e txmanager.Event) bool { return !some || slices.Contains(f.callers, e.Caller) })
}

// Publish implements [txmanager.DomainEventPublisher].
func (f filter) Publish(ctx context.Context, all []txmanager.Event) (int, error) {
	var theirs []txmanager.Event
	var indexes []int
	for i, e := range all {
		if slices.Contains(f.callers, e.Caller) {
			theirs, indexes = append(theirs, e), append(indexes, i)
		}
	}
	if len(theirs) == 0 {
		return len(all), nil
	}
	n, err := f.next.Publish(ctx, theirs)
	if n == len(theirs) {
		return len(all), err
	}
	return indexes[n], err
}
