package batch

import "sync"

// Lane lets several groups have one round trip under way in all, which is not slow. Its groups take
// turns in the order in which they asked. The zero value is a free lane.
type Lane struct {
	mu      sync.Mutex
	busy    bool
	waiting []func() // each starts a round trip, or calls exit
}

// enter calls start once the lane is free. Each start is followed by one exit.
func (l *Lane) enter(start func()) {
	l.mu.Lock()
	if l.busy {
		l.waiting = append(l.waiting, start)
		l.mu.Unlock()
		return
	}
	l.busy = true
	l.mu.Unlock()
	go start()
}

// exit frees the lane, or gives it to the next that asked.
func (l *Lane) exit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy = len(l.waiting) > 0; l.busy {
		next := l.waiting[0]
		l.waiting = l.waiting[1:]
		go next()
	}
}
