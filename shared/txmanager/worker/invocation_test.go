package worker

import (
	"github.com/fencepost/fencepost/shared/txmanager/session"
)

// invocationBy is an invocation of w within s.
func invocationBy(w *Worker, s session.Session) *invocation {
	s.Service = &w.Service
	return &invocation{Session: &s, worker: w}
}

// queried is an invocation whose chain query included the queue.
func queried(t *invocation) *invocation {
	t.queueQueried = true
	return t
}
