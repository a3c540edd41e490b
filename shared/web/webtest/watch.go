package webtest

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
)

// maxKept bounds the violations that a [Watch] keeps.
const maxKept = 10

// Watch compares a server's answers with a document, and keeps the violations for the end.
type Watch struct {
	Contract *Contract

	mu    sync.Mutex
	found []error // the first ones
	n     int     // number of all
}

// Around serves by next and watches it.
func (w *Watch) Around(next http.Handler) http.Handler {
	return w.Contract.Handler(next, func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.n++; len(w.found) < maxKept {
			w.found = append(w.found, err)
		}
	})
}

// Err returns the violations so far; nil: none.
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n == 0 {
		return nil
	}
	return fmt.Errorf("%d answers are not as the API's description has them; the first: %w", w.n, errors.Join(w.found...))
}
