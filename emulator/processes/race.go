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
	maxRaces   = 10 // reports that are kept
)

// found is what the race detector reported in the children of this process.
var found struct {
	lock  sync.Mutex
	races []error
}

// Races is an error with each report, 10 at most, that Go's race detector wrote
// in a child of this process; nil if it wrote none. A child that was built
// without the detector never reports. A test whose children are built with it
// fails on this: the report is in the child's output, where nobody reads it,
// and a child that is killed has no status that would tell.
func Races() error {
	found.lock.Lock()
	defer found.lock.Unlock()
	return errors.Join(found.races...)
}

// raceReader finds the detector's reports in a child's lines.
type raceReader struct {
	report []string // nil outside a report
}

func (r *raceReader) read(child, line string) {
	switch {
	case line == raceBegins:
		r.report = []string{line}
	case r.report == nil:
	case line != raceEnds:
		r.report = append(r.report, line)
	default:
		r.keep(child)
	}
}

// keep ends a report. It is called too when the child has ended within one.
func (r *raceReader) keep(child string) {
	if r.report == nil {
		return
	}
	found.lock.Lock()
	defer found.lock.Unlock()
	if len(found.races) < maxRaces {
		found.races = append(found.races, fmt.Errorf("%s: %s", child, strings.Join(r.report, "\n")))
	}
	r.report = nil
}

// raceSettings is how the race detector is set in this process, for a child's
// environment: nothing if it is not set. A child of the detector otherwise
// waits for a second before it ends.
func raceSettings() []string {
	if v := os.Getenv("GORACE"); v != "" {
		return []string{"GORACE=" + v}
	}
	return nil
}
