package webtest

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
)

// maxKept bounds the violations that a [Watch] keeps.
const maxKept = 10

// Watch compares a server's answers with a document, and keeps the violations for the end. Create it
// with [NewWatch].
type Watch struct {
	contract *Contract

	mu    sync.Mutex
	found []error // the first ones
	n     int     // number of all
}

// NewWatch returns a watch by the document in the file. The file is read once and shared by all
// watches, because reading it takes longer than many tests. The error is that of [Load].
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

// Around serves by next and watches it.
func (w *Watch) Around(next http.Handler) http.Handler {
	return w.contract.Handler(next, func(err error) {
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
