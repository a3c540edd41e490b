package wal

import (
	"fmt"
	"os"
	"path/filepath"
)

// A mark is a lower bound of the durable log. It is written in place after each fsync, without an
// fsync for itself. After a power cut it can be too old, never too new. A bad end of the log after the
// mark is a torn write that was never answered; before it, it is damage.
type mark struct {
	seq    uint64 // the last durable line
	base   uint64 // of the segment that has it
	offset int64  // where the line ends
}

const markName = "durable"

func (m mark) bytes() []byte { return seal("", numbers{m.seq, m.base, uint64(m.offset)}) }

// readMark returns the folder's mark, or the zero mark if there is no complete one.
func readMark(folder string) (mark, error) {
	b, err := os.ReadFile(filepath.Join(folder, markName))
	if err != nil && !os.IsNotExist(err) {
		return mark{}, fmt.Errorf("read %s: %w", markName, err)
	}
	n, ok := unseal("", b)
	if !ok || len(b) != sealedNumbers {
		return mark{}, nil
	}
	return mark{n[0], n[1], int64(n[2])}, nil
}

// Undurable returns the last segment's file, and the offset from which no fsync covers it. It is for
// tests that tear the log.
func Undurable(folder string) (path string, from int64, err error) {
	m, err := readMark(folder)
	if err != nil {
		return "", 0, err
	}
	all, err := list(folder)
	if err != nil || len(all) == 0 {
		return "", 0, fmt.Errorf("no log in %s: %w", folder, err)
	}
	last := all[len(all)-1]
	from = int64(segmentHead)
	if m.base == last.base {
		from = m.offset
	}
	return filepath.Join(folder, last.name()), from, nil
}
