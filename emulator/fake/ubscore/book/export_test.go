package book

import (
	"encoding/binary"
	"hash/crc32"
)

// Sealed returns an image of this content, with its magic and checksum.
func Sealed(content []byte) []byte {
	b := append([]byte(magic), content...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}
