package webtest

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
)

// keptMost is how many faults a [Watch] keeps.
const keptMost = 10

// Watch holds what a server answers to a document, and keeps what it finds for the
// end. Make one with [NewWatch].
type Watch struct {
	contract *Contract

	mu    sync.Mutex
	found []error // the first
	n     int     // of all
}

// NewWatch watches by the document in the file, which is read once and then shared by
// all watches: reading it takes longer than many a test. The error is that of [Load].
func NewWatch(file string) (*Watch, error) {
	load := sync.OnceValues(func() (*Contract, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		return Load(text)
	})
	first, _ := contracts.LoadOrStore(file, load)
	c, err := first.(func() (*Contract, error))()
	return &Watch{contract: c}, err
}

var contracts sync.Map // by file: func() (*Contract, error)

// Around serves by next, watched.
func (w *Watch) Around(next http.Handler) http.Handler {
	return w.contract.Handler(next, func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.n++; len(w.found) < keptMost {
			w.found = append(w.found, err)
		}
	})
}

// Err is what was found so far; nil: nothing.
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n == 0 {
		return nil
	}
	return fmt.Errorf("%d answers are not as the API's description has them; the first: %w", w.n, errors.Join(w.found...))
}
