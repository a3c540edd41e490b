package nonce

// pass tells that a step of the function is done.
func (t *tenure) pass(step string) { t.Worker.pass(string(t.kind) + "." + step) }

func (w *Worker) pass(point string) {
	if w.At != nil {
		w.At(point)
	}
}
