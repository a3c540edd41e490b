package processes

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
)

const (
	raceBegins = "WARNING: DATA RACE"
	raceEnds   = "=================="
	maxRaces   = 10 // maximum of reports kept
)

// found are the race detector's reports in the children of this process.
var found struct {
	lock  sync.Mutex
	races []error
}

// Races returns an error with each report of Go's race detector in a child of this process, at most 10; nil
// without reports. Only children built with the detector report. Tests with such children fail on this:
// otherwise the report would be only in the child's output, and a killed child has no exit status.
func Races() error {
	found.lock.Lock()
	defer found.lock.Unlock()
	return errors.Join(found.races...)
}

// readReport finds the detector's reports in a child's lines.
func (s *stream) readReport(line string) {
	switch {
	case line == raceBegins:
		s.report = []string{line}
	case s.report == nil:
	case line != raceEnds:
		s.report = append(s.report, line)
	default:
		s.keepReport()
	}
}

// keepReport ends a report. It is also called if the child ends within one.
func (s *stream) keepReport() {
	if s.report == nil {
		return
	}
	found.lock.Lock()
	defer found.lock.Unlock()
	if len(found.races) < maxRaces {
		found.races = append(found.races, fmt.Errorf("%s: %s", s.process.spec.Name, strings.Join(s.report, "\n")))
	}
	s.report = nil
}

// raceSettings returns this process' settings of the race detector for a child's environment. By default a
// child with the detector waits for a second before it ends.
func raceSettings() []string {
	if v := os.Getenv("GORACE"); v != "" {
		return []string{"GORACE=" + v}
	}
	return nil
}
