package txmanager

// invocationBy is an invocation of w within s.
func invocationBy(w *Worker, s leaseSession) *invocation {
	s.Service = &w.Service
	return &invocation{leaseSession: &s, worker: w}
}

// queried is an invocation whose chain query included the queue.
func queried(t *invocation) *invocation {
	t.queueQueried = true
	return t
}
