// Package wal is the trading core's log. Its lines are appended, made durable by fsync, read again,
// and never removed.
//
// The log is a list of segments, a segment a list of records, and a record the lines of one commit.
// A record is written only after the one before it is durable. So a crash can tear only the last
// record of the last segment, which was never answered: [Open] cuts it off. Every other difference
// is [DamageError], and then the log is not opened:
//
// A complete record after a bad one is damage, because the bad one had been durable. So is a log that ends
// before the mark that is kept beside it. A line whose number does not follow the one before is damage too,
// and so is a segment that is missing, or shorter than when the next was made.
//
// A failed write or fsync ends the log for good: the disk's content is then unknown, and a second
// fsync can report success without writing.
package wal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// ErrLocked reports that another process has the folder.
var ErrLocked = errors.New("another process has this folder")

// ErrFailed reports that a write or an fsync has failed. The log takes no more lines.
var ErrFailed = errors.New("the log cannot be written")

// DamageError is a difference between the folder and the log as it was written.
type DamageError struct {
	File   string // in the folder
	Offset int64  // in bytes; 0 where the whole file is meant
	What   string
}

func (d *DamageError) Error() string {
	return fmt.Sprintf("damage in %s at byte %d: %s", d.File, d.Offset, d.What)
}

// Options are the log's folder and the size of its segments.
type Options struct {
	Folder       string // made if there is none
	SegmentBytes int64  // a segment of this size is followed by the next; 0: 64 MiB
	Disk         Disk   // nil: the operating system's
}

// Disk makes writes durable. A power cut removes every other write.
type Disk interface {
	Sync(f *os.File) error          // the content of a file
	SyncFolder(folder string) error // the names in a folder
}

// System is the operating system's [Disk].
type System struct{}

func (System) Sync(f *os.File) error { return f.Sync() }

func (System) SyncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

const defaultSegmentBytes = 64 << 20

// Log is an open log. One goroutine may call Append and Sync; any may call Read. Make one with
// [Open].
type Log struct {
	folder       string
	disk         Disk
	segmentBytes int64
	lock, mark   *os.File
	file         *os.File // the last segment
	end          int64    // size of the last segment
	last         uint64   // number of the last line written
	failed       error
	buffer       []byte

	mu       sync.Mutex
	segments []segment
	durable  uint64 // number of the last durable line
	places   map[uint64]place
}

// Last is the number of the last durable line.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable
}

// Append writes the lines in order. They become durable and readable with [Log.Sync], which must come
// before the next Append. The error wraps [ErrFailed].
func (l *Log) Append(lines [][]byte) error {
	if l.failed == nil && l.end >= l.segmentBytes && l.end > int64(segmentHead) {
		l.failed = l.rotate()
	}
	if l.failed == nil {
		l.buffer = appendRecord(l.buffer[:0], l.last+1, lines)
		if len(l.buffer)-headBytes > maxBody {
			return fmt.Errorf("%d lines are too long for one record", len(lines)) // nothing is written
		}
		_, l.failed = l.file.WriteAt(l.buffer, l.end)
	}
	if l.failed != nil {
		return fmt.Errorf("%w: %w", ErrFailed, l.failed)
	}
	l.end += int64(len(l.buffer))
	l.last += uint64(len(lines))
	return nil
}

// Sync makes the written lines durable and readable. The error wraps [ErrFailed]; then it is unknown
// whether the lines are durable.
func (l *Log) Sync() error {
	if l.failed == nil {
		l.failed = l.sync()
	}
	if l.failed != nil {
		return fmt.Errorf("%w: %w", ErrFailed, l.failed)
	}
	return nil
}

func (l *Log) sync() error {
	if err := l.disk.Sync(l.file); err != nil {
		return err
	}
	l.mu.Lock()
	at := &l.segments[len(l.segments)-1]
	at.size, l.durable = l.end, l.last
	m := mark{seq: l.last, base: at.base, offset: l.end}
	l.mu.Unlock()
	if _, err := l.mark.WriteAt(m.bytes(), 0); err != nil {
		return fmt.Errorf("write the mark: %w", err)
	}
	return nil
}

// rotate begins the segment after the last line, with a durable head and name. All earlier lines are durable.
func (l *Log) rotate() error {
	next := segment{base: l.last + 1, size: int64(segmentHead)}
	f, err := os.OpenFile(filepath.Join(l.folder, next.name()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(headOf(next.base, newest(l.segments)))
	if err = errors.Join(err, l.disk.Sync(f), l.disk.SyncFolder(l.folder)); err != nil {
		return errors.Join(err, f.Close())
	}
	if l.file != nil {
		err = l.file.Close()
	}
	l.file, l.end = f, next.size
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments = append(l.segments, next)
	return err
}

// Close releases the folder. Lines without a Sync can be lost.
func (l *Log) Close() error {
	var errs []error
	if l.mark != nil {
		errs = append(errs, l.disk.Sync(l.mark))
	}
	for _, f := range []*os.File{l.file, l.mark, l.lock} { // the lock is released last
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

const lockName = "lock"

func lock(folder string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(folder, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", folder, ErrLocked)
		}
		return nil, fmt.Errorf("lock %s: %w", folder, err)
	}
	return f, nil
}
