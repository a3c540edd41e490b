package txmanager

// reached reports a crash point of the function.
func (t *leaseSession) reached(step string) { t.Service.reached(string(t.kind) + "." + step) }

func (w *Service) reached(point string) {
	if w.Reached != nil {
		w.Reached(point)
	}
}
