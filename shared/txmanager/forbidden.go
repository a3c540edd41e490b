package txmanager

// Forbidden is how many intents of w's queue the submitter's policy and callers do not allow
// by now: they would end FAILED/REJECTED when their turn comes.
func (r Rules) Forbidden(w SubmitterState, chain ChainConnector) (n int) {
	for _, t := range w.Queue {
		call, err := callOf(t, chain)
		if err != nil || r.forbiddenReason(w.Bounds, t, call) != "" {
			n++
		}
	}
	return n
}
