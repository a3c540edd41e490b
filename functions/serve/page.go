package serve

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/shared/web"
)

// The number of rows on a page of a list.
const (
	listDefault = 50
	listMost    = 500
)

// place is the position of a list's next page: after the row of this id, which is the caller's own.
// Rows are never deleted, so tokens never expire.
type place struct {
	version byte // the first byte of a token; it ties the token to its list
	write   func(id string) ([16]byte, error)
	read    func([16]byte) string
}

var (
	TxPlace = place{1,
		func(id string) ([16]byte, error) { u, err := uuid.Parse(id); return u, err },
		func(b [16]byte) string { return uuid.UUID(b).String() }}
	TransferPlace = place{2,
		func(id string) ([16]byte, error) { u, err := ulid.ParseStrict(id); return u, err },
		func(b [16]byte) string { return ulid.ULID(b).String() }}
	HistoryPlace = place{3,
		func(id string) (b [16]byte, err error) {
			n, err := strconv.ParseUint(id, 10, 63)
			binary.BigEndian.PutUint64(b[8:], n)
			return b, err
		},
		func(b [16]byte) string { return strconv.FormatUint(binary.BigEndian.Uint64(b[8:])&math.MaxInt64, 10) }}
)

// tokens encodes page tokens; each token has exactly one text.
var tokens = base64.RawURLEncoding.Strict()

// PageToken returns the token of the page after the row of this id; "" means that the list ends there.
func PageToken(id string, p place) string {
	b, err := p.write(id)
	if id == "" || err != nil {
		return ""
	}
	return tokens.EncodeToString(append([]byte{p.version}, b[:]...))
}

// PageOf returns the requested page size and the row after which the page begins.
func PageOf(q map[string]string, p place) (size int, after string, err error) {
	size = listDefault
	if text := q["pageSize"]; text != "" {
		n, ok := Digits(text)
		if !ok || n < 1 || n > listMost {
			return 0, "", web.FieldProblem("pageSize", "is %.40q: want 1 to %d", text, listMost)
		}
		size = int(n)
	}
	if q["pageToken"] == "" {
		return size, "", nil
	}
	b, err := tokens.DecodeString(q["pageToken"])
	if err != nil || len(b) != 17 || b[0] != p.version {
		return 0, "", NoSuchPage()
	}
	return size, p.read([16]byte(b[1:])), nil
}

func NoSuchPage() error {
	return web.FieldProblem("pageToken", "is not from this list; send nextPageToken of the page before, or omit it for the first page")
}
