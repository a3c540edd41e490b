package txmanager

// Forbidden counts the intents of w's queue that the submitter's policy and callers no longer
// allow. They would end FAILED/REJECTED in their turn.
func (r Rules) Forbidden(w SubmitterState, chain ChainConnector) (n int) {
	for _, t := range w.Queue {
		call, err := callOf(t, chain)
		if err != nil || r.forbiddenReason(w.Bounds, t, call) != "" {
			n++
		}
	}
	return n
}
