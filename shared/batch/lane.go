package batch

import (
	"sync"
	"time"
)

// Pause is how long a lane stays taken after a round trip of several calls. The next one then has more
// calls, which cost a busy database less each. A slow round trip has no pause.
type Pause struct {
	Factor float64 // a multiple of the time that the round trip took
	Max    time.Duration
}

// Lane lets several groups have one round trip under way in all, which is not slow. Its groups take
// turns in the order in which they asked. The zero value is a free lane.
type Lane struct {
	Pause Pause

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

// exitAfter calls exit after the pause that follows a round trip of so many calls. A nil lane has no others.
func (l *Lane) exitAfter(calls int, took time.Duration) {
	switch {
	case l == nil:
	case calls == 1 || l.Pause.Factor == 0:
		l.exit()
	default:
		time.AfterFunc(min(time.Duration(l.Pause.Factor*float64(took)), l.Pause.Max), l.exit)
	}
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
