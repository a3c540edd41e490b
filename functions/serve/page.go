package serve

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
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
	write   func(id string) ([]byte, error)
	read    func([]byte) (id string, err error)
}

var (
	TxPlace = place{1,
		func(id string) ([]byte, error) { u, err := uuid.Parse(id); return u[:], err },
		func(b []byte) (string, error) { u, err := uuid.FromBytes(b); return u.String(), err }}
	TransferPlace = place{2,
		func(id string) ([]byte, error) { u, err := ulid.ParseStrict(id); return u[:], err },
		func(b []byte) (id string, err error) {
			var u ulid.ULID
			err = u.UnmarshalBinary(b)
			return u.String(), err
		}}
	ChangePlace  = numberPlace(3)
	HistoryPlace = numberPlace(4)
	AssetPlace   = numberPlace(19)
)

// numberPlace is the place after a row with a number above 0.
func numberPlace(version byte) place {
	return place{version,
		func(id string) ([]byte, error) {
			n, err := strconv.ParseInt(id, 10, 64)
			return binary.BigEndian.AppendUint64(nil, uint64(n)), err
		},
		func(b []byte) (string, error) {
			if len(b) != 8 || b[0] > 127 {
				return "", errors.New("no number")
			}
			return strconv.FormatUint(binary.BigEndian.Uint64(b), 10), nil
		}}
}

// tokens encodes page tokens; each token has exactly one text.
var tokens = base64.RawURLEncoding.Strict()

// PageToken returns the token of the page after the row of this id; "" means that the list ends there.
func PageToken(id string, p place) string {
	b, err := p.write(id)
	if id == "" || err != nil {
		return ""
	}
	return tokens.EncodeToString(append([]byte{p.version}, b...))
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
	if err != nil || len(b) == 0 || b[0] != p.version {
		return 0, "", NoSuchPage()
	}
	if after, err = p.read(b[1:]); err != nil {
		return 0, "", NoSuchPage()
	}
	return size, after, nil
}

// NumberedPageOf is [PageOf] for a list by numbers, newest first. It returns the number below which the page
// begins.
func NumberedPageOf(q map[string]string, p place) (size int, below int64, err error) {
	size, after, err := PageOf(q, p)
	if after == "" || err != nil {
		return size, math.MaxInt64, err
	}
	below, err = strconv.ParseInt(after, 10, 64)
	return size, below, err
}

// CutPage returns the first size rows, and the token of the next page if there are more rows.
func CutPage[Row any](rows []Row, size int, p place, id func(Row) string) (page []Row, token string) {
	if len(rows) <= size {
		return rows, ""
	}
	return rows[:size], PageToken(id(rows[size-1]), p)
}

func NoSuchPage() error {
	return web.FieldProblem("pageToken", "is not from this list; send nextPageToken of the page before, or omit it for the first page")
}
