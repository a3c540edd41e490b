package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// recorder is the transport of a client. It keeps the last answer of the API, so that --json prints it as it came. A command
// sends one request after the other.
type recorder struct {
	body  []byte
	sent  bool              // a call was sent
	acted bool              // a call was sent that does more than read
	rows  []json.RawMessage // of body, those that are not printed yet; nil: they were not read yet
}

// maxAnswer is the longest answer that is kept; the client refuses longer ones.
const maxAnswer = 16<<20 + 1

// RoundTrip implements [http.RoundTripper].
func (r *recorder) RoundTrip(q *http.Request) (*http.Response, error) {
	r.sent = true
	r.acted = r.acted || q.Method != http.MethodGet
	resp, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	_ = resp.Body.Close() // all that is used was read
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	r.body, r.rows = text, nil
	return resp, nil
}

// row returns the next row of the last answer, which is one page of a list.
func (r *recorder) row() (row json.RawMessage, err error) {
	if r.rows == nil {
		if r.rows, err = rowsOf(r.body); err != nil {
			return nil, err
		}
	}
	if len(r.rows) == 0 {
		return nil, errors.New("the page has fewer rows than were decoded")
	}
	row, r.rows = r.rows[0], r.rows[1:]
	return row, nil
}

// rowsOf returns the member of a page that is a list.
func rowsOf(page []byte) (rows []json.RawMessage, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(page, &members); err != nil {
		return nil, err
	}
	found := 0
	for _, value := range members {
		if strings.HasPrefix(string(bytes.TrimSpace(value)), "[") {
			found++
			err = json.Unmarshal(value, &rows)
		}
	}
	if found != 1 {
		return nil, fmt.Errorf("the page has %d lists, want one", found)
	}
	return rows, err
}

func printJSON(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return printLine(w, text)
}

// printLine prints a JSON value on a line. Characters that could change what a terminal shows are escaped, which does
// not change the value.
func printLine(w io.Writer, value []byte) error {
	var compact bytes.Buffer
	if err := json.Compact(&compact, value); err != nil {
		return err
	}
	line := make([]byte, 0, compact.Len()+1)
	for _, r := range compact.String() {
		if r != utf8.RuneError && !isHidden(r) {
			line = utf8.AppendRune(line, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			line = fmt.Appendf(line, `\u%04x`, unit)
		}
	}
	_, err := w.Write(append(line, '\n'))
	return err
}

// answer prints the API's last answer with --json, and the pairs of names and values otherwise, or passes the call's error on. Pairs
// without a value are omitted. If the answer has no body, --json prints the pairs too.
func (a *app) answer(err error, pairs ...any) error {
	if err != nil {
		return err
	}
	if a.json && len(a.answers.body) > 0 {
		return printLine(a.out, a.answers.body)
	}
	if a.json {
		members := make(map[string]any)
		for i := 0; i+1 < len(pairs); i += 2 {
			members[fmt.Sprint(pairs[i])] = pairs[i+1]
		}
		return printJSON(a.out, members)
	}
	w := newTable(a.out)
	for i := 0; i+1 < len(pairs); i += 2 {
		if text := cell(pairs[i+1]); text != "" {
			fmt.Fprintf(w, "%s\t%s\n", cell(pairs[i]), text)
		}
	}
	return w.Flush()
}

// newTable aligns columns that are separated by tabs. Its errors are those of Flush.
func newTable(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 4, 2, ' ', 0) }

// printList prints the rows of a list: with --json each as the API has it, otherwise as a table with the titles.
func printList[T any](a *app, rows iter.Seq2[T, error], titles string, columns func(T) []any) error {
	const flushEvery = 1000
	w := newTable(a.out)
	if !a.json {
		fmt.Fprintln(w, strings.ReplaceAll(titles, " ", "\t"))
	}
	n := 0
	for one, err := range rows {
		if err != nil && n == 0 {
			return err // without the titles
		}
		if err != nil {
			return errors.Join(w.Flush(), err)
		}
		if a.limit > 0 && n == a.limit {
			a.noteMore()
			break
		}
		if n++; n%flushEvery == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		if err := a.printRow(w, columns(one)); err != nil {
			return err
		}
	}
	return w.Flush()
}

func (a *app) printRow(w io.Writer, columns []any) error {
	if a.json {
		row, err := a.answers.row()
		if err != nil {
			return err
		}
		return printLine(a.out, row)
	}
	texts := make([]string, len(columns))
	for i, c := range columns {
		texts[i] = cmp.Or(cell(c), "-")
	}
	_, err := fmt.Fprintln(w, strings.Join(texts, "\t"))
	return err
}

// printAlone prints a row at once, since the next one may be long in coming.
func (a *app) printAlone(columns ...any) error {
	w := newTable(a.out)
	return errors.Join(a.printRow(w, columns), w.Flush())
}

// each yields the elements of a slice, or the error.
func each[T any](all []T, err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, one := range all {
			if !yield(one, nil) {
				return
			}
		}
		if err != nil {
			var none T
			yield(none, err)
		}
	}
}

// cell returns a value, or the one that a pointer leads to, as text; "": there is none. Whole numbers have no separators.
func cell(value any) string {
	if p := reflect.ValueOf(value); p.Kind() == reflect.Pointer {
		if p.IsNil() {
			return ""
		}
		value = p.Elem().Interface()
	}
	switch v := value.(type) {
	case nil:
		return ""
	case time.Time:
		if v.IsZero() {
			return ""
		}
		return v.UTC().Format(time.RFC3339)
	case json.RawMessage:
		if string(v) == "null" {
			return ""
		}
		return clean(string(v))
	case []string:
		return clean(strings.Join(v, ","))
	}
	return clean(fmt.Sprint(value))
}

// clean replaces control characters, which could change what a terminal shows.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if isHidden(r) {
			return ' '
		}
		return r
	}, text)
}

// isHidden is true of control characters, of those that change the direction of text, and of those that end a line.
func isHidden(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

// note is a line for a person who waits, or the key of a request. It goes to stderr, with --json as JSON.
type note struct {
	Text      string `json:"note,omitempty"`
	RequestID string `json:"requestId,omitempty"`
	CID       string `json:"cid,omitempty"`
	TxID      string `json:"txId,omitempty"`
	ReqID     string `json:"req_id,omitempty"`
	State     string `json:"state,omitempty"`
}

// noteMore prints that a list has more rows than the limit.
func (a *app) noteMore() {
	a.note(note{Text: fmt.Sprintf("there are more rows than %d: give --limit 0 for all", a.limit)})
}

func (a *app) note(n note) {
	if a.json {
		_ = printJSON(a.err, n)
		return
	}
	fmt.Fprintln(a.err, clean(n.Text))
}
