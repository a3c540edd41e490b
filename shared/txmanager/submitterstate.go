package txmanager

// Submitter is the submitter that w was loaded for.
func (w SubmitterState) Submitter() Submitter { return Submitter(w.Lease.Submitter) }
