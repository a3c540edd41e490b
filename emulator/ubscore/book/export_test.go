package book

import (
	"encoding/binary"
	"hash/crc32"
)

// Sealed is an image of these contents, with the magic and the checksum that it
// needs.
func Sealed(content []byte) []byte {
	b := append([]byte(magic), content...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}
