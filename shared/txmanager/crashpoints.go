package txmanager

// reached reports a crash point of the function.
func (t *leaseSession) reached(step string) { t.Worker.reached(string(t.kind) + "." + step) }

func (w *Worker) reached(point string) {
	if w.Reached != nil {
		w.Reached(point)
	}
}
