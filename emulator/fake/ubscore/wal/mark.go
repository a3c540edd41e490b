package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
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

const (
	markName  = "durable"
	markBytes = 3*8 + 4
)

func (m mark) bytes() []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, markBytes), m.seq)
	b = binary.LittleEndian.AppendUint64(b, m.base)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.offset))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// readMark returns the folder's mark, or the zero mark if there is no complete one.
func readMark(folder string) (mark, error) {
	b, err := os.ReadFile(filepath.Join(folder, markName))
	if os.IsNotExist(err) || err == nil && len(b) != markBytes {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, fmt.Errorf("read %s: %w", markName, err)
	}
	m := mark{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), int64(binary.LittleEndian.Uint64(b[16:]))}
	if string(m.bytes()) != string(b) {
		return mark{}, nil
	}
	return m, nil
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
