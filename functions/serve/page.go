package serve

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/web"
)

// The number of rows on a page of a list.
const (
	listDefault = 100
	maxPageSize = 1000
)

// Place is where a page of a list begins: after the row that an At names. Callers get it as a token. Rows are
// never deleted, so tokens never expire.
type Place[At any] struct {
	version byte // the first byte of a token; it ties the token to its list
	first   At   // of the first page
	write   func(At) ([]byte, error)
	read    func([]byte) (At, error)
}

const (
	newestFirst = math.MaxInt64
	lowestFirst = -1
)

var (
	TxPlace       = txPlace(1)
	TransferPlace = Place[string]{version: 2,
		write: func(id string) ([]byte, error) { u, err := ulid.ParseStrict(id); return u[:], err },
		read: func(b []byte) (id string, err error) {
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
	ActPlace       = Place[*store.ActPlace]{version: 18, write: writeAct, read: readAct}
	AssetPlace     = numberPlace(19, lowestFirst)
	AddressPlace   = numberPlace(21, newestFirst)
	IncidentPlace  = numberPlace(22, newestFirst)
	ScopePlace     = textPlace(23)
	NamePlace      = textPlace(24) // a submitter, a space, and its name
	AttentionPlace = Place[store.AttentionPlace]{version: 25,
		write: func(p store.AttentionPlace) ([]byte, error) { return []byte(attentionText(p)), nil }, read: readAttention}
)

// errNoPlace reports bytes that are no place, or a place that is none.
var errNoPlace = errors.New("no place")

// txPlace is the place after a transaction.
func txPlace(version byte) Place[string] {
	return Place[string]{version: version,
		write: func(id string) ([]byte, error) { u, err := uuid.Parse(id); return u[:], err },
		read:  func(b []byte) (string, error) { u, err := uuid.FromBytes(b); return u.String(), err }}
}

// textPlace is the place after a row with a name.
func textPlace(version byte) Place[string] {
	return Place[string]{version: version,
		write: func(name string) ([]byte, error) { return []byte(name), nil },
		read: func(b []byte) (string, error) {
			if len(b) == 0 || !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
				return "", errNoPlace
			}
			return string(b), nil
		}}
}

// numberPlace is the place after a row with a number. The first page begins below or after the number first.
func numberPlace(version byte, first int64) Place[int64] {
	return Place[int64]{version: version, first: first,
		write: func(n int64) ([]byte, error) { return binary.BigEndian.AppendUint64(nil, uint64(n)), nil },
		read: func(b []byte) (int64, error) {
			if len(b) != 8 || b[0] > 127 {
				return 0, errNoPlace
			}
			return int64(binary.BigEndian.Uint64(b)), nil
		}}
}

// writeAct writes the time of an act in microseconds, and the two numbers of its place.
func writeAct(p *store.ActPlace) ([]byte, error) {
	if p == nil {
		return nil, errNoPlace
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(p.At.UnixMicro()))
	b = binary.BigEndian.AppendUint16(b, uint16(p.Source))
	return binary.BigEndian.AppendUint64(b, uint64(p.ID)), nil
}

func readAct(b []byte) (*store.ActPlace, error) {
	if len(b) != 18 {
		return nil, errNoPlace
	}
	return &store.ActPlace{
		At:     time.UnixMicro(int64(binary.BigEndian.Uint64(b))).UTC(),
		Source: int(binary.BigEndian.Uint16(b[8:])), ID: int64(binary.BigEndian.Uint64(b[10:])),
	}, nil
}

// attentionText is the text of a place in the list of what needs attention.
func attentionText(p store.AttentionPlace) string {
	return fmt.Sprintf("%d %d %s", p.Rank, p.Since.UnixMicro(), p.Key)
}

// readAttention reads a text of [attentionText]; "" is the first place.
func readAttention(text []byte) (p store.AttentionPlace, err error) {
	if len(text) == 0 {
		return p, nil
	}
	rank, rest, _ := strings.Cut(string(text), " ")
	since, key, ok := strings.Cut(rest, " ")
	micros, err := strconv.ParseInt(since, 10, 64)
	p.Since, p.Key = time.UnixMicro(micros).UTC(), key
	if p.Rank, _ = strconv.Atoi(rank); err != nil || !ok || attentionText(p) != string(text) || strings.ContainsRune(key, 0) {
		return p, errNoPlace
	}
	return p, nil
}

// tokens encodes page tokens; each token has exactly one text.
var tokens = base64.RawURLEncoding.Strict()

// PageToken returns the token of the page after the row at this place; "" if the place is "" or nil: the list ends there.
func PageToken[At any](at At, p Place[At]) string {
	b, err := p.write(at)
	if len(b) == 0 || err != nil {
		return ""
	}
	return tokens.EncodeToString(append([]byte{p.version}, b...))
}

// PageOf returns the page size that q requests, and the row after which the page begins. The newest first, it begins below a
// number.
func PageOf[At any](q map[string]string, p Place[At]) (size int, at At, err error) {
	size = listDefault
	if text := q["pageSize"]; text != "" {
		n, ok := Digits(text)
		if !ok || n < 1 || n > maxPageSize {
			return 0, at, web.FieldProblem("pageSize", "is %.40q: want 1 to %d", text, maxPageSize)
		}
		size = int(n)
	}
	if q["pageToken"] == "" {
		return size, p.first, nil
	}
	b, err := tokens.DecodeString(q["pageToken"])
	if err != nil || len(b) == 0 || b[0] != p.version {
		return 0, at, web.FieldProblem("pageToken", noSuchPage)
	}
	if at, err = p.read(b[1:]); err != nil {
		return 0, at, web.FieldProblem("pageToken", noSuchPage)
	}
	return size, at, nil
}

// Page returns the page of a list that q requests, and the token of the next page. The function read returns at most limit rows
// from the place on that [PageOf] returns.
func Page[Row, At any](
	q map[string]string, p Place[At], read func(at At, limit int) ([]Row, error), place func(Row) At,
) (page []Row, next string, err error) {
	size, at, err := PageOf(q, p)
	if err != nil {
		return nil, "", err
	}
	rows, err := read(at, size+1)
	if err != nil {
		return nil, "", err
	}
	if len(rows) > size {
		rows, next = rows[:size], PageToken(place(rows[size-1]), p)
	}
	return append([]Row{}, rows...), next, nil
}

// PageList is [Page] as the answer of a list, which has the rows under the name.
func PageList[Row, At any](
	name string, q map[string]string, p Place[At], read func(at At, limit int) ([]Row, error), place func(Row) At,
) (List, error) {
	page, next, err := Page(q, p, read, place)
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

// ViewsOf returns the view of each row, or another form of each element.
func ViewsOf[Row, View any](rows []Row, view func(Row) View) []View {
	all := make([]View, len(rows))
	for i, row := range rows {
		all[i] = view(row)
	}
	return all
}

const noSuchPage = "is not from this list; send nextPageToken of the page before, or omit it for the first page"
