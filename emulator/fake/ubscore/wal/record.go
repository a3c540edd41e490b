package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// A record is the unit of one write and one fsync: one or more lines. It begins with its magic. Numbers
// are little endian. The length of its body (u32), the CRC-32C of all but magic and CRC (u32), the
// sequence number of its first line (u64) and the count of lines (u32) follow. The body has each line after its
// length as a varint.
const (
	headBytes = 24
	maxBody   = 4 << 20
)

// magic has bytes that no line can have, so that the search after damage finds it.
var magic = [4]byte{0xff, 'U', 'B', 0x01}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errBad reports that there is no complete record where one should begin.
var errBad = errors.New("not a complete record")

type record struct {
	first uint64
	lines [][]byte
	size  int64 // of head and body
}

func (r record) last() uint64 { return r.first + uint64(len(r.lines)) - 1 }

func appendRecord(to []byte, first uint64, lines [][]byte) []byte {
	start := len(to)
	to = append(to, magic[:]...)
	to = append(to, make([]byte, 8)...)
	to = binary.LittleEndian.AppendUint64(to, first)
	to = binary.LittleEndian.AppendUint32(to, uint32(len(lines)))
	for _, line := range lines {
		to = binary.AppendUvarint(to, uint64(len(line)))
		to = append(to, line...)
	}
	head, body := to[start:start+headBytes], to[start+headBytes:]
	binary.LittleEndian.PutUint32(head[4:], uint32(len(body)))
	binary.LittleEndian.PutUint32(head[8:], checksum(head, body))
	return to
}

func checksum(head, body []byte) uint32 {
	sum := crc32.Update(0, castagnoli, head[4:8])
	sum = crc32.Update(sum, castagnoli, head[12:headBytes])
	return crc32.Update(sum, castagnoli, body)
}

// readRecord reads the next record. It returns io.EOF at the end, and errBad for an incomplete
// record. It allocates at most the claimed size, which is bounded.
func readRecord(from io.Reader) (record, error) {
	var head [headBytes]byte
	switch _, err := io.ReadFull(from, head[:]); {
	case err == io.ErrUnexpectedEOF:
		return record{}, errBad
	case err != nil:
		return record{}, err
	}
	length := binary.LittleEndian.Uint32(head[4:])
	if [4]byte(head[:4]) != magic || length > maxBody {
		return record{}, errBad
	}
	body := make([]byte, length)
	switch _, err := io.ReadFull(from, body); {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return record{}, errBad
	case err != nil:
		return record{}, err
	}
	if binary.LittleEndian.Uint32(head[8:]) != checksum(head[:], body) {
		return record{}, errBad
	}
	return parseBody(head[:], body)
}

func parseBody(head, body []byte) (record, error) {
	r := record{first: binary.LittleEndian.Uint64(head[12:]), size: int64(headBytes + len(body))}
	for len(body) > 0 {
		length, n := binary.Uvarint(body)
		if n <= 0 || length > uint64(len(body)-n) {
			return record{}, errBad
		}
		r.lines = append(r.lines, body[n:n+int(length)])
		body = body[n+int(length):]
	}
	if count := binary.LittleEndian.Uint32(head[20:]); len(r.lines) == 0 || uint64(len(r.lines)) != uint64(count) {
		return record{}, errBad
	}
	return r, nil
}

// findRecord returns the offset of the first complete record in data, or -1.
func findRecord(data []byte) int {
	for at := 0; ; at++ {
		next := bytes.Index(data[at:], magic[:])
		if next < 0 {
			return -1
		}
		at += next
		if _, err := readRecord(bytes.NewReader(data[at:])); err == nil {
			return at
		}
	}
}
