package serve

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/shared/web"
)

// The number of rows on a page of a list.
const (
	listDefault = 100
	maxPageSize = 1000
)

// Place is the position of a list's next page: after the row of this id, which is the caller's own.
// Rows are never deleted, so tokens never expire.
type Place struct {
	version byte // the first byte of a token; it ties the token to its list
	write   func(id string) ([]byte, error)
	read    func([]byte) (id string, err error)
}

var (
	TxPlace       = txPlace(1)
	TransferPlace = Place{2,
		func(id string) ([]byte, error) { u, err := ulid.ParseStrict(id); return u[:], err },
		func(b []byte) (id string, err error) {
			var u ulid.ULID
			err = u.UnmarshalBinary(b)
			return u.String(), err
		}}
	ChangePlace    = numberPlace(3)
	HistoryPlace   = numberPlace(4)
	VersionPlace   = numberPlace(5)
	DecisionPlace  = numberPlace(6)
	ProposalPlace  = numberPlace(7)
	ForeignPlace   = numberPlace(8)
	LostPlace      = numberPlace(9)
	SubmitterPlace = textPlace(10)
	UntouchedPlace = textPlace(11)
	LanePlace      = numberPlace(12)
	QueuePlace     = numberPlace(13)
	FoundPlace     = txPlace(14)
	ActPlace       = Place{18, // a time in microseconds, and the two numbers of store.ActPlace
		func(id string) ([]byte, error) {
			var at, number int64
			var source uint16
			_, err := fmt.Sscanf(id, "%d/%d/%d", &at, &source, &number)
			b := binary.BigEndian.AppendUint64(nil, uint64(at))
			return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint16(b, source), uint64(number)), err
		},
		func(b []byte) (string, error) {
			if len(b) != 18 {
				return "", errors.New("no place of an act")
			}
			return fmt.Sprintf("%d/%d/%d", int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint16(b[8:]), int64(binary.BigEndian.Uint64(b[10:]))), nil
		}}
	AssetPlace    = numberPlace(19)
	AddressPlace  = numberPlace(21)
	IncidentPlace = numberPlace(22)
	ScopePlace    = textPlace(23)
	NamePlace     = textPlace(24) // a submitter, a space, and its name
)

// txPlace is the place after a transaction.
func txPlace(version byte) Place {
	return Place{version,
		func(id string) ([]byte, error) { u, err := uuid.Parse(id); return u[:], err },
		func(b []byte) (string, error) { u, err := uuid.FromBytes(b); return u.String(), err }}
}

// textPlace is the place after a row with a name.
func textPlace(version byte) Place {
	return Place{version,
		func(id string) ([]byte, error) { return []byte(id), nil },
		func(b []byte) (string, error) {
			if len(b) == 0 || !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
				return "", errors.New("no name")
			}
			return string(b), nil
		}}
}

// numberPlace is the place after a row with a number.
func numberPlace(version byte) Place {
	return Place{version,
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
func PageToken(id string, p Place) string {
	b, err := p.write(id)
	if id == "" || err != nil {
		return ""
	}
	return tokens.EncodeToString(append([]byte{p.version}, b...))
}

// PageOf returns the requested page size and the row after which the page begins.
func PageOf(q map[string]string, p Place) (size int, after string, err error) {
	size = listDefault
	if text := q["pageSize"]; text != "" {
		n, ok := Digits(text)
		if !ok || n < 1 || n > maxPageSize {
			return 0, "", web.FieldProblem("pageSize", "is %.40q: want 1 to %d", text, maxPageSize)
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
func NumberedPageOf(q map[string]string, p Place) (size int, below int64, err error) {
	size, after, err := PageOf(q, p)
	if after == "" || err != nil {
		return size, math.MaxInt64, err
	}
	below, err = strconv.ParseInt(after, 10, 64)
	return size, below, err
}

// AscendingPageOf is [PageOf] for a list by numbers, the lowest first. It returns the number after which the
// page begins: -1 on the first page.
func AscendingPageOf(q map[string]string, p Place) (size int, after int64, err error) {
	size, text, err := PageOf(q, p)
	if text == "" || err != nil {
		return size, -1, err
	}
	after, err = strconv.ParseInt(text, 10, 64)
	return size, after, err
}

// CutPage returns the first size rows, and the token of the next page if there are more rows.
func CutPage[Row any](rows []Row, size int, p Place, id func(Row) string) (page []Row, token string) {
	if len(rows) <= size {
		return rows, ""
	}
	return rows[:size], PageToken(id(rows[size-1]), p)
}

func NoSuchPage() error {
	return web.FieldProblem("pageToken", "is not from this list; send nextPageToken of the page before, or omit it for the first page")
}
