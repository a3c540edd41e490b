package processes

import (
	"bytes"
	"sync"
)

const maxLine = 64 << 10

// lineWriter cuts one stream of a child's output into lines.
type lineWriter struct {
	process *Process
	lock    *sync.Mutex // shared by the child's two streams: one line at a time
	rest    []byte
	races   raceReader
}

// Write takes the next piece of the stream. It never fails.
func (w *lineWriter) Write(b []byte) (int, error) {
	n := len(b)
	for {
		line, after, found := bytes.Cut(b, []byte("\n"))
		w.rest = append(w.rest, line...)
		if !found {
			break
		}
		w.emit()
		b = after
	}
	if len(w.rest) >= maxLine {
		w.emit()
	}
	return n, nil
}

// flush emits a last line without an end, and ends a report of the race detector.
func (w *lineWriter) flush() {
	if len(w.rest) > 0 {
		w.emit()
	}
	w.races.keep(w.process.spec.Name)
}

func (w *lineWriter) emit() {
	text := string(bytes.TrimSuffix(w.rest, []byte("\r")))
	w.rest = w.rest[:0]
	w.lock.Lock()
	defer w.lock.Unlock()
	p := w.process
	p.lastWritten.Store(&text)
	w.races.read(p.spec.Name, text)
	if p.spec.Output != nil {
		p.spec.Output(text)
	}
}
