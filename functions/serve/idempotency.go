package serve

import (
	"net/http"
	"strings"

	"github.com/fencepost/fencepost/shared/web"
)

// KeyHeader replaces requestId or cid if the body has none.
const KeyHeader = "Idempotency-Key"

// KeyOf returns the caller's own key of a request: the body's field, else the header, else "". A key
// in both places counts once.
func KeyOf(r *http.Request, field, inBody string) (string, error) {
	values := r.Header.Values(KeyHeader)
	if len(values) == 0 {
		return inBody, nil
	}
	key, fault := headerKey(values)
	switch {
	case fault != "":
		return "", web.FieldProblem(KeyHeader, "%s", fault)
	case inBody != "" && inBody != key:
		return "", web.FieldProblem(field, "is another than the header %s: a request has one key, give it once or twice the same", KeyHeader)
	}
	return key, nil
}

// headerKey reads the header in either of its forms. The quoted form is a string of RFC 8941 (section
// 3.3.3), as the draft requires. The bare form is what most callers send. A bare key has no quotes,
// commas, semicolons or spaces. With them it could equally be two keys that a proxy has joined, or a
// string with parameters.
func headerKey(values []string) (key, fault string) {
	if len(values) > 1 {
		return "", "was given more than once; send one Idempotency-Key header"
	}
	text := values[0]
	if text == "" {
		return "", "is empty: leave it out, or give your own key for this request"
	}
	if text[0] == '"' {
		return quotedKey(text)
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\",;\\", c) >= 0 {
			return "", "is not a valid key; send printable ASCII without spaces, commas, semicolons, backslashes and quotes, or a string in double quotes"
		}
	}
	return text, ""
}

// quotedKey reads the text between the quotes.
func quotedKey(text string) (key, fault string) {
	const malformed = "is no string of RFC 8941: want printable ASCII in double quotes, with a backslash before each quote and backslash in it, and nothing behind"
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' && i == len(text)-1 && b.Len() == 0:
			return "", "is empty: leave it out, or give your own key for this request"
		case c == '"' && i == len(text)-1:
			return b.String(), ""
		case c == '\\':
			i++
			if i == len(text) || text[i] != '"' && text[i] != '\\' {
				return "", malformed
			}
			b.WriteByte(text[i])
		case c == '"' || c < ' ' || c >= 0x7f:
			return "", malformed
		default:
			b.WriteByte(c)
		}
	}
	return "", malformed
}
