package book

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
)

// magic begins an image and identifies its format.
const magic = "UBSIMG01"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrImage reports bytes that are not an image of a book, or a damaged image.
var ErrImage = errors.New("not a whole image of a book")

// Image is the book at one moment, for another goroutine to write to disk.
type Image struct {
	book Book // without what only a decision needs
}

// Image returns the book as it is now. It shares the entries with the book.
func (b *Book) Image() *Image {
	return &Image{Book{seq: b.seq, at: b.at, floor: b.floor, assets: maps.Clone(b.assets), holdings: holdings{accounts: b.Accounts()}, past: b.past}}
}

// Seq is the number of the last entry in the image.
func (i *Image) Seq() uint64 { return i.book.seq }

// Write writes the image: the magic, the numbers and the lists as varints with their lengths first,
// and the CRC-32C of all these bytes.
func (i *Image) Write(to io.Writer) error {
	b := &i.book
	sum := crc32.New(castagnoli)
	w := bufio.NewWriterSize(io.MultiWriter(to, sum), 1<<20) // keeps the first error until Flush
	numbers := func(list ...uint64) {
		for _, n := range list {
			_, _ = w.Write(binary.AppendUvarint(w.AvailableBuffer(), n))
		}
	}
	_, _ = w.WriteString(magic)
	numbers(b.seq, uint64(b.at), uint64(b.floor), uint64(len(b.assets)))
	for id, precision := range b.assets {
		numbers(uint64(id), uint64(precision))
	}
	numbers(uint64(len(b.accounts)))
	for _, a := range b.accounts {
		numbers(uint64(a.UserID), uint64(a.AssetID), a.Units, uint64(a.Status))
	}
	var entry []byte
	for _, e := range b.past {
		entry = e.Append(entry[:0])
		numbers(e.Seq, uint64(len(entry)))
		_, _ = w.Write(entry)
	}
	numbers(0) // ends the list: no entry has this number
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := to.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

// Read returns the book of the image. The error wraps [ErrImage] if the image is not complete.
func Read(image []byte) (*Book, error) {
	if len(image) < len(magic)+crc32.Size || string(image[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it begins with something else, or ends there", ErrImage)
	}
	body, sum := image[:len(image)-crc32.Size], image[len(image)-crc32.Size:]
	if binary.LittleEndian.Uint32(sum) != crc32.Checksum(body, castagnoli) {
		return nil, fmt.Errorf("%w: its checksum does not fit", ErrImage)
	}
	r := imageReader{varints: varints{rest: body[len(magic):]}}
	b := r.book()
	if r.err == nil && len(r.rest) > 0 {
		r.fail("it goes on after its end")
	}
	return b, r.err
}

// imageReader keeps the first error.
type imageReader struct {
	varints
	err error
}

func (r *imageReader) number() uint64 {
	n := r.unsigned()
	if r.ended {
		r.fail("it ends within a number")
	}
	return n
}

func (r *imageReader) book() *Book {
	b := New()
	b.seq, b.at, b.floor = r.number(), Micros(r.number()), Micros(r.number())
	for n := r.number(); n > 0 && r.err == nil; n-- {
		id := int32(r.number())
		b.assets[id] = uint8(r.number())
	}
	for n := r.number(); n > 0 && r.err == nil; n-- {
		k := AccountKey{int64(r.number()), int32(r.number())}
		a := Account{r.number(), Status(r.number())}
		if a.Status == 0 || a.Status > Disabled {
			r.fail("an account has no status")
		}
		b.put(k, a)
	}
	for before := uint64(0); r.err == nil; {
		seq := r.number()
		if seq == 0 {
			break
		}
		r.entry(b, before, seq)
		before = seq
	}
	return b
}

func (r *imageReader) entry(b *Book, before, seq uint64) {
	length := r.number()
	if r.err != nil || length > uint64(len(r.rest)) || seq <= before || seq > b.seq {
		r.fail("an entry is out of order or too long")
		return
	}
	e, err := Parse(seq, r.rest[:length])
	if err != nil {
		r.fail(err.Error())
		return
	}
	r.rest = r.rest[length:]
	b.remember(e)
}

func (r *imageReader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrImage, what)
	}
}
