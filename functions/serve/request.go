package serve

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// Parameters reads a query string that may contain only the given names, each at most once and with a
// value. "" means that the parameter is absent.
func Parameters(r *http.Request, names ...string) (map[string]string, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, web.NewProblem(web.InvalidField, "the query string is malformed: use percent-encoding")
	}
	found := make(map[string]string, len(names))
	for _, name := range names {
		if len(values[name]) > 1 {
			return nil, web.FieldProblem(name, "was given %d times; give it once", len(values[name]))
		}
		if found[name] = values.Get(name); !utf8.ValidString(found[name]) || strings.ContainsRune(found[name], 0) {
			return nil, web.FieldProblem(name, "is not text: want UTF-8 without the character U+0000, percent-encoded")
		}
		if values.Has(name) && found[name] == "" {
			return nil, web.FieldProblem(name, "is empty; give a value, or omit the parameter")
		}
		delete(values, name)
	}
	for name := range values {
		return nil, &web.Problem{Code: web.UnsupportedField, Field: name, Detail: fmt.Sprintf("no such parameter; known are %q", names)}
	}
	return found, nil
}

// Digits reads a number that is not negative in its only form: no sign and no leading zeros.
func Digits(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == text
}

// PathTxID returns the txId in the path.
func PathTxID(r *http.Request) (string, error) {
	id, ok := ParseTxID(r.PathValue("txId"))
	if !ok {
		return "", web.FieldProblem("txId", "is not a txId: want the UUID that create answered, "+UUIDForm)
	}
	return id, nil
}

// UUIDForm describes the accepted form of a UUID (RFC 9562, section 4).
const UUIDForm = "as 32 hex digits in groups of 8, 4, 4, 4 and 12 with hyphens between them"

// ParseTxID reads a UUID in UUIDForm, in either letter case. It refuses other forms, such as one in
// braces.
func ParseTxID(text string) (id string, ok bool) {
	u, err := uuid.Parse(text)
	return u.String(), err == nil && strings.EqualFold(text, u.String())
}

// Submitter reads the submitter that a caller named.
func (b *Base) Submitter(field, text string) (txmanager.Submitter, error) {
	if text == "" {
		return "", web.FieldProblem(field, "is required: %s", b.submitterForms())
	}
	s, err := b.Families.ParseSubmitter(text, b.Chains[0].Namespace, b.Chains[0].ID)
	if err != nil {
		return "", web.FieldProblem(field, "is not an account; send %s", b.submitterForms())
	}
	return s, nil
}

// submitterForms describes the accounts that a caller can name.
func (b *Base) submitterForms() string {
	forms := b.Families.SubmitterForms()
	if of, ok := b.Families[b.Chains[0].Namespace]; ok {
		forms += fmt.Sprintf(", or %s on chain %d", of.AddressForm(), b.Chains[0].ID)
	}
	return forms
}

// RequestID checks the caller's key: 1 to 128 bytes, compared byte for byte.
func RequestID(field, text string) error {
	const limit = 128
	switch {
	case text == "":
		return web.FieldProblem(field, "is required: 1 to %d bytes, your own key for this intent", limit)
	case len(text) > limit:
		return web.FieldProblem(field, "is %d bytes long: at most %d", len(text), limit)
	}
	for _, r := range text {
		if r < ' ' || r == 0x7f {
			return web.FieldProblem(field, "has the control character %s: use printable text", fmt.Sprintf("%U", r))
		}
	}
	return nil
}

// Unprintable refuses a requestId that a reader could confuse with another, or that breaks a line. It
// refuses control and format characters, such as those that change the writing direction, and
// separators of lines or paragraphs. Requests that an earlier release stored under such an id are
// still found.
func Unprintable(field, text string) error {
	for _, r := range text {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return web.FieldProblem(field, "has the character %U, which is not printed: use printable text", r)
		}
	}
	return nil
}

// NewRequestID is [RequestID] for an intent to be stored. It also refuses [txmanager.NoRequest], by
// which a release says that a transaction was no request.
func NewRequestID(field, text string) error {
	if IsNone(text) {
		return web.FieldProblem(field, "is %q, which a release from PROTECT takes for no request: choose another", text)
	}
	return RequestID(field, text)
}

// IsNone reports whether text is [txmanager.NoRequest] in any letter case.
func IsNone(text string) bool { return strings.EqualFold(strings.TrimSpace(text), txmanager.NoRequest) }

// Optional is a text that a body may omit. If it is present it must not be empty.
type Optional struct {
	text  string
	given bool
}

// UnmarshalText accepts any text; [Optional.Of] checks it.
func (o *Optional) UnmarshalText(text []byte) error {
	o.text, o.given = string(text), true
	return nil
}

// Of returns the text of the field; "" if the body omits it.
func (o Optional) Of(field string) (string, error) {
	if o.given && o.text == "" {
		return "", web.FieldProblem(field, "is empty: give it a value, or leave it out")
	}
	return o.text, nil
}
