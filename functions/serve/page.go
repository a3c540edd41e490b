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

// NumberPlace is the [Place] of a list by numbers.
type NumberPlace struct {
	Place
	first int64 // below or after which the first page begins
}

const (
	newestFirst = math.MaxInt64
	lowestFirst = -1
)

var (
	TxPlace       = txPlace(1)
	TransferPlace = Place{2,
		func(id string) ([]byte, error) { u, err := ulid.ParseStrict(id); return u[:], err },
		func(b []byte) (id string, err error) {
			var u ulid.ULID
			err = u.UnmarshalBinary(b)
			return u.String(), err
		}}
	ChangePlace    = numberPlace(3, newestFirst)
	HistoryPlace   = numberPlace(4, lowestFirst)
	VersionPlace   = numberPlace(5, lowestFirst)
	DecisionPlace  = numberPlace(6, lowestFirst)
	ProposalPlace  = numberPlace(7, newestFirst)
	ForeignPlace   = numberPlace(8, lowestFirst)
	LostPlace      = numberPlace(9, lowestFirst)
	SubmitterPlace = textPlace(10)
	UntouchedPlace = textPlace(11)
	LanePlace      = numberPlace(12, lowestFirst)
	QueuePlace     = numberPlace(13, lowestFirst)
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
	AssetPlace    = numberPlace(19, lowestFirst)
	AddressPlace  = numberPlace(21, newestFirst)
	IncidentPlace = numberPlace(22, newestFirst)
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
func numberPlace(version byte, first int64) NumberPlace {
	return NumberPlace{first: first, Place: Place{version,
		func(id string) ([]byte, error) {
			n, err := strconv.ParseInt(id, 10, 64)
			return binary.BigEndian.AppendUint64(nil, uint64(n)), err
		},
		func(b []byte) (string, error) {
			if len(b) != 8 || b[0] > 127 {
				return "", errors.New("no number")
			}
			return strconv.FormatUint(binary.BigEndian.Uint64(b), 10), nil
		}}}
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

// NumberedPageOf is [PageOf] for a list by numbers. It returns the number below which the page begins, newest first, or after
// which it begins, lowest first.
func NumberedPageOf(q map[string]string, p NumberPlace) (size int, at int64, err error) {
	size, text, err := PageOf(q, p.Place)
	if text == "" || err != nil {
		return size, p.first, err
	}
	at, err = strconv.ParseInt(text, 10, 64)
	return size, at, err
}

// NumberedPage returns the page of a list by numbers that q requests, and the token of the next page. The function read returns
// at most limit rows from the place on that [NumberedPageOf] returns.
func NumberedPage[Row any](
	q map[string]string, p NumberPlace, read func(at int64, limit int) ([]Row, error), number func(Row) int64,
) (page []Row, next string, err error) {
	size, at, err := NumberedPageOf(q, p)
	if err != nil {
		return nil, "", err
	}
	rows, err := read(at, size+1)
	if err != nil {
		return nil, "", err
	}
	page, next = CutPage(rows, size, p.Place, func(row Row) string { return strconv.FormatInt(number(row), 10) })
	return append([]Row{}, page...), next, nil
}

// NumberedList is [NumberedPage] as the answer of a list, which has the rows under the name.
func NumberedList[Row any](
	name string, q map[string]string, p NumberPlace, read func(at int64, limit int) ([]Row, error), number func(Row) int64,
) (List, error) {
	page, next, err := NumberedPage(q, p, read, number)
	return List{name, page, next}, err
}

// List is the answer of a list: the rows of a page, and the token of the next one.
type List struct {
	Name string // the member that has the rows
	Rows any
	Next string // the member nextPageToken; "": none, on the last page
}

// MarshalJSON implements [json.Marshaler].
func (l List) MarshalJSON() ([]byte, error) {
	rows, err := web.Encode(l.Rows)
	text := fmt.Appendf(nil, `{%q:%s`, l.Name, rows)
	if l.Next != "" {
		text = fmt.Appendf(text, `,"nextPageToken":%q`, l.Next)
	}
	return append(text, '}'), err
}

// ViewsOf returns the view of each row.
func ViewsOf[Row, View any](rows []Row, view func(Row) View) []View {
	all := make([]View, len(rows))
	for i, row := range rows {
		all[i] = view(row)
	}
	return all
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
