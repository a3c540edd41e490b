package nonce

// Points are the steps of a tenure and of a release at which a test may end the
// process, by the names that [Worker.At] is called with: what has been done
// last, by the function that did it.
func Points() []string {
	return []string{
		"advance.taken", "advance.looked", "advance.signed", "advance.stored", "advance.sending", "advance.sent", "advance.released",
		"advance.version_signed", "advance.version_stored",
		"receipt.taken", "receipt.looked", "receipt.released",
		"confirm.taken", "confirm.looked", "confirm.released",
		"resubmit.taken", "resubmit.looked", "resubmit.claimed", "resubmit.sending", "resubmit.sent", "resubmit.released",
		"release.taken", "release.written",
	}
}

// pass tells that a step of the function is done.
func (t *tenure) pass(step string) { t.Worker.pass(string(t.kind) + "." + step) }

func (w *Worker) pass(point string) {
	if w.At != nil {
		w.At(point)
	}
}
