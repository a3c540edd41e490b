package worker

import (
	"github.com/fencepost/fencepost/shared/txmanager/session"
)

// invocationBy is an invocation of w within s.
func invocationBy(w *Worker, s session.Session) *invocation {
	s.Service = &w.Service
	return &invocation{Session: &s, worker: w}
}
