package wal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Open opens the folder's log, or begins one, and locks the folder until [Log.Close]. It returns how many
// bytes of a torn record were cut off the log's end. The error is [ErrLocked] if another process has the
// folder, and a [*DamageError] if the log is damaged. Then the folder is unchanged.
func Open(o Options) (l *Log, torn int64, err error) {
	o.SegmentBytes, o.Disk = cmp.Or(o.SegmentBytes, defaultSegmentBytes), cmp.Or[Disk](o.Disk, System{})
	if err := makeFolder(o.Disk, o.Folder); err != nil {
		return nil, 0, err
	}
	l = &Log{folder: o.Folder, disk: o.Disk, segmentBytes: o.SegmentBytes, places: map[uint64]place{}}
	if torn, err = l.recover(); err != nil {
		return nil, 0, errors.Join(err, l.Close())
	}
	return l, torn, nil
}

// makeFolder creates the folder if it is missing, and makes its name durable.
func makeFolder(disk Disk, path string) error {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return disk.SyncFolder(filepath.Dir(path))
}

func (l *Log) recover() (torn int64, err error) {
	if l.lock, err = lock(l.folder); err != nil {
		return 0, err
	}
	m, err := readMark(l.folder)
	if err != nil {
		return 0, err
	}
	if l.segments, err = list(l.folder); err != nil {
		return 0, err
	}
	if err := checkChain(l.folder, l.segments); err != nil {
		return 0, err
	}
	t, err := l.tail()
	if err != nil {
		return 0, err
	}
	if m.seq > t.last {
		return 0, &DamageError{
			File: t.name(), Offset: t.end,
			What: fmt.Sprintf("the log ends with line %d, but line %d was durable, and may have been answered", t.last, m.seq),
		}
	}
	if l.mark, err = os.OpenFile(filepath.Join(l.folder, markName), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return 0, err
	}
	l.last = t.last
	if t.made {
		err = l.reopen(t, m)
	} else {
		err = l.remake(t)
	}
	if err == nil {
		err = l.sync()
	}
	return int64(len(t.data)) - t.end, err
}

// tail is the state at the end of the log.
type tail struct {
	segment
	data []byte // the whole last segment
	end  int64  // end of its last complete record
	last uint64 // number of that record's last line
	made bool   // whether the segment has a complete head
}

// tail reads the last segment and finds its valid part.
func (l *Log) tail() (tail, error) {
	if len(l.segments) == 0 {
		return tail{segment: segment{base: 1}}, nil
	}
	before := l.segments[:len(l.segments)-1]
	t := tail{segment: l.segments[len(before)]}
	t.last = t.base - 1
	var err error
	if t.data, err = os.ReadFile(filepath.Join(l.folder, t.name())); err != nil {
		return t, err
	}
	headErr := t.fits(t.data, before)
	if _, _, whole := parseHead(t.data); headErr != nil && (whole || findRecord(t.data) >= 0) {
		return t, headErr
	}
	if headErr != nil {
		return t, nil // a crash came while it was made: its head becomes durable before its first record is written
	}
	t.made = true
	return t, t.scan()
}

// scan finds the end of the segment's last complete record. The bytes after it are torn, unless they
// contain a complete record: all bytes before that one had been durable.
func (t *tail) scan() error {
	from := bytes.NewReader(t.data[segmentHead:])
	for t.end = int64(segmentHead); ; {
		r, err := readRecord(from)
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			rest := t.data[t.end:]
			if at := findRecord(rest); at >= 0 {
				return &DamageError{File: t.name(), Offset: t.end, What: fmt.Sprintf("no complete record, but one follows %d bytes later", at)}
			}
			return nil
		case r.first != t.last+1:
			return &DamageError{File: t.name(), Offset: t.end, What: fmt.Sprintf("line %d follows line %d", r.first, t.last)}
		}
		t.end += r.size
		t.last = r.last()
	}
}

// reopen cuts off the torn part and writes again the part after the mark. After a failed fsync the
// operating system can regard pages as written that the disk does not have. Only a page that is
// written again reaches the disk with the next fsync.
func (l *Log) reopen(t tail, m mark) (err error) {
	if l.file, err = os.OpenFile(filepath.Join(l.folder, t.name()), os.O_RDWR, 0); err != nil {
		return err
	}
	from := int64(0)
	if m.base == t.base && m.offset <= t.end {
		from = m.offset
	}
	if err := l.file.Truncate(t.end); err != nil {
		return err
	}
	_, err = l.file.WriteAt(t.data[from:t.end], from)
	l.end = t.end
	return errors.Join(err, l.disk.SyncFolder(l.folder))
}

// remake makes the segment that the folder lacks or has only a part of.
func (l *Log) remake(t tail) error {
	if len(l.segments) > 0 {
		if err := os.Remove(filepath.Join(l.folder, t.name())); err != nil {
			return err
		}
		l.segments = l.segments[:len(l.segments)-1]
	}
	return l.rotate()
}
