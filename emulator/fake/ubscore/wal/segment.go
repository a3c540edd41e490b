package wal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A segment is one file. It begins with its magic. Then come, little endian, the number of its first
// line (u64), and the number of the first line (u64) and the size (u64) of the segment before it,
// or 0. The CRC-32C of all that (u32) ends the head. It is created when the segment before it is
// durable to its end, and that one never changes again.
const (
	segmentMagic = "UBSWAL01"
	segmentHead  = len(segmentMagic) + sealedNumbers
	segmentFirst = "wal-"
	segmentLast  = ".log"
)

type segment struct {
	base uint64 // number of its first line
	size int64  // durable bytes
}

func (s segment) name() string {
	return fmt.Sprintf("%s%020d%s", segmentFirst, s.base, segmentLast)
}

func headOf(base uint64, before segment) []byte {
	return seal(segmentMagic, numbers{base, before.base, uint64(before.size)})
}

// parseHead is the inverse of headOf. ok is false if the head is not complete.
func parseHead(head []byte) (base uint64, before segment, ok bool) {
	n, ok := unseal(segmentMagic, head)
	return n[0], segment{n[1], int64(n[2])}, ok
}

// numbers are the content of a segment's head and of the mark.
type numbers [3]uint64

const sealedNumbers = 3*8 + crc32.Size

// seal returns the magic, the numbers in little endian, and the CRC-32C of both.
func seal(magic string, n numbers) []byte {
	b, _ := binary.Append([]byte(magic), binary.LittleEndian, n) // never fails: the size is fixed
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// unseal returns the numbers at the beginning of b. ok is false if they are not complete there.
func unseal(magic string, b []byte) (n numbers, ok bool) {
	_, err := binary.Decode(b[min(len(magic), len(b)):], binary.LittleEndian, &n)
	return n, err == nil && bytes.HasPrefix(b, seal(magic, n))
}

// list returns the folder's segments with the sizes of their files, oldest first.
func list(folder string) ([]segment, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var all []segment
	for _, f := range files { // ordered by name, and so by line
		digits, isLog := strings.CutSuffix(strings.TrimPrefix(f.Name(), segmentFirst), segmentLast)
		if !isLog || !strings.HasPrefix(f.Name(), segmentFirst) {
			continue
		}
		base, err := strconv.ParseUint(digits, 10, 64)
		if s := (segment{base: base}); err != nil || s.name() != f.Name() {
			return nil, &DamageError{File: f.Name(), What: "no segment has this name"}
		}
		info, err := f.Info()
		if err != nil {
			return nil, err
		}
		all = append(all, segment{base: base, size: info.Size()})
	}
	return all, nil
}

// checkChain compares the heads with names and sizes. No segment may be missing, and each but the
// last must have the size that its successor's head states. The recovery checks the last head.
func checkChain(folder string, all []segment) error {
	for i, s := range all {
		switch {
		case i == 0 && s.base != 1:
			return &DamageError{File: s.name(), What: "the lines before it are missing"}
		case i == len(all)-1:
			return nil
		}
		if err := s.checkHead(folder, all[:i]); err != nil {
			return err
		}
	}
	return nil
}

func (s segment) checkHead(folder string, before []segment) error {
	f, err := os.Open(filepath.Join(folder, s.name()))
	if err != nil {
		return err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, int64(segmentHead)))
	if err != nil {
		return err
	}
	return s.fits(head, before)
}

// fits returns an error if the head does not belong to the segment and its predecessors.
func (s segment) fits(head []byte, before []segment) error {
	base, want, ok := parseHead(head)
	switch got := newest(before); {
	case !ok:
		return &DamageError{File: s.name(), What: "its head is damaged"}
	case base != s.base:
		return &DamageError{File: s.name(), What: fmt.Sprintf("its head says that it begins with line %d", base)}
	case got != want:
		return &DamageError{File: s.name(), What: fmt.Sprintf(
			"before it comes the segment of line %d with %d bytes; when it was made that was line %d with %d bytes", got.base, got.size, want.base, want.size)}
	}
	return nil
}

// newest returns the last of the segments; the zero segment if there is none.
func newest(segments []segment) segment {
	if len(segments) == 0 {
		return segment{}
	}
	return segments[len(segments)-1]
}

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

// Tear cuts the last segment of a log that is not open: of the bytes without an fsync only the first keep
// stay. It returns the number of bytes without an fsync. It is for tests.
func Tear(folder string, keep int64) (undurable int64, err error) {
	m, err := readMark(folder)
	if err != nil {
		return 0, err
	}
	all, err := list(folder)
	if err != nil || len(all) == 0 {
		return 0, fmt.Errorf("no log in %s: %w", folder, err)
	}
	last, durable := newest(all), int64(segmentHead)
	if m.base == last.base {
		durable = m.offset
	}
	if undurable = last.size - durable; keep < undurable {
		err = os.Truncate(filepath.Join(folder, last.name()), durable+keep)
	}
	return undurable, err
}
