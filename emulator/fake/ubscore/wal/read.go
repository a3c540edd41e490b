package wal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// place is the start of the record that has a line.
type place struct {
	base   uint64 // of the segment
	offset int64
}

// maxPlaces is the number of readers whose places are kept.
const maxPlaces = 64

// ErrEnough is returned by a visitor that takes neither this line nor any more.
var ErrEnough = errors.New("no more lines are wanted")

// Read visits the durable lines after the given one, in order and without gaps. It stops after limit
// lines (0: no limit), or when the visitor returns [ErrEnough]. A line's bytes are valid only during
// the visit. The error is a [*DamageError], or the visitor's.
func (l *Log) Read(after uint64, limit int, visit func(seq uint64, line []byte) error) error {
	l.mu.Lock()
	segments, durable := slices.Clone(l.segments), l.durable
	start, known := l.places[after]
	l.mu.Unlock()
	r := reading{folder: l.folder, after: after, visited: after, until: durable, visit: visit}
	if after >= durable {
		return nil
	}
	if limit > 0 {
		r.until = min(durable, after+uint64(limit))
	}
	i := 0
	for i+1 < len(segments) && segments[i+1].base <= after+1 {
		i++
	}
	r.last, r.at = segments[i].base-1, place{segments[i].base, int64(segmentHead)}
	if known && start.base == segments[i].base {
		r.at, r.last = start, 0 // the record there can begin with any line
	}
	for ; i < len(segments) && r.last < r.until; i++ {
		switch err := r.segment(segments[i]); {
		case errors.Is(err, ErrEnough):
			l.remember(r.visited, r.at)
			return nil
		case err != nil:
			return err
		}
	}
	if r.last < r.until {
		return &DamageError{File: segments[len(segments)-1].name(), What: fmt.Sprintf("it ends with line %d, want %d", r.last, r.until)}
	}
	l.remember(r.until, r.at)
	return nil
}

// remember keeps the place of the line's record, for a reader that continues after it.
func (l *Log) remember(after uint64, at place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.places) >= maxPlaces {
		clear(l.places)
	}
	l.places[after] = at
}

// reading is the state of one pass over the files.
type reading struct {
	folder       string
	after, until uint64
	last         uint64 // number of the last line seen; 0: any can come
	visited      uint64 // number of the last line that was taken
	at           place  // of the record that has it, or of the next
	visit        func(uint64, []byte) error
}

func (r *reading) segment(s segment) error {
	offset := int64(segmentHead)
	switch {
	case r.at.base == s.base:
		offset = r.at.offset
	case s.base != r.last+1:
		return &DamageError{File: s.name(), What: fmt.Sprintf("it follows line %d", r.last)}
	}
	f, err := os.Open(filepath.Join(r.folder, s.name()))
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return &DamageError{File: s.name(), What: "it is gone"}
		}
		return err
	}
	defer f.Close()
	from := bufio.NewReaderSize(io.NewSectionReader(f, offset, s.size-offset), 64<<10)
	for r.last < r.until {
		rec, err := readRecord(from)
		if err == io.EOF && offset == s.size {
			return nil
		}
		if err := r.check(rec, err, s, offset); err != nil {
			return err
		}
		r.at = place{s.base, offset}
		if err := r.lines(rec); err != nil {
			return err
		}
		offset += rec.size
	}
	return nil
}

// check returns an error if the record, or the error of reading it, cannot come at that offset.
func (r *reading) check(rec record, err error, s segment, offset int64) error {
	switch {
	case errors.Is(err, errBad) || err == io.EOF:
		return &DamageError{File: s.name(), Offset: offset, What: "no complete record, and it had been durable"}
	case err != nil:
		return err
	case r.last != 0 && rec.first != r.last+1 || r.last == 0 && rec.first > r.after+1:
		return &DamageError{File: s.name(), Offset: offset, What: fmt.Sprintf("line %d follows line %d", rec.first, r.last)}
	}
	return nil
}

func (r *reading) lines(rec record) error {
	r.last = rec.last()
	for i, line := range rec.lines {
		seq := rec.first + uint64(i)
		if seq <= r.after || seq > r.until {
			continue
		}
		if err := r.visit(seq, line); err != nil {
			return err
		}
		r.visited = seq
	}
	return nil
}
