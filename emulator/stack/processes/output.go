package processes

import (
	"sync"

	"github.com/fencepost/fencepost/emulator/stack/command"
)

// stream is one stream of a child's output.
type stream struct {
	command.Lines
	process *Process
	lock    *sync.Mutex // shared by the child's two streams: one line at a time
	report  []string    // of the race detector; nil outside of one
}

func newStream(p *Process, lock *sync.Mutex) *stream {
	s := &stream{process: p, lock: lock}
	s.Line = s.read
	return s
}

func (s *stream) read(line string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.process.lastWritten.Store(line)
	s.readReport(line)
	if s.process.spec.Output != nil {
		s.process.spec.Output(line)
	}
}

// end reads a last line without an end, and ends a report of the race detector.
func (s *stream) end() {
	s.Flush()
	s.keepReport()
}
