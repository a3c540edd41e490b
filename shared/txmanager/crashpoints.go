package txmanager

// reached tells that a step of the function is done.
func (t *leaseSession) reached(step string) { t.Worker.reached(string(t.kind) + "." + step) }

func (w *Worker) reached(point string) {
	if w.Reached != nil {
		w.Reached(point)
	}
}
