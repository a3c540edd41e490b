package web

import (
	"context"
	"time"
)

// Holds delays answers to refused requests. A client that repeats a request without the pause that it
// was told would otherwise take the processor from others.
type Holds struct {
	places chan struct{}
	length time.Duration
}

// NewHolds delays each answer by length, and at most so many answers at once.
func NewHolds(places int, length time.Duration) *Holds {
	return &Holds{make(chan struct{}, places), length}
}

// Hold waits. It returns early when the client has left or the instance stops, and at once if all places
// are taken. The caller's share of its limit is free meanwhile; see [Callers.Free].
func (h *Holds) Hold(ctx context.Context, atWork *Callers) {
	select {
	case h.places <- struct{}{}:
	default:
		return
	}
	defer func() { <-h.places }()
	atWork.Free(ctx)
	timer := time.NewTimer(h.length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-closing(ctx):
	}
}
