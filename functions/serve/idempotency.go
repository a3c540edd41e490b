package serve

import (
	"net/http"
	"regexp"
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

// The two forms of the header. The quoted one is a string of RFC 8941 (section 3.3.3), as the draft requires: printable ASCII in
// which a backslash stands before each quote and backslash. The bare form is what most callers send. A bare key has no
// quotes, commas, semicolons, backslashes or spaces. With them it could equally be two keys that a proxy has joined, or a string
// with parameters.
var (
	quotedKey = regexp.MustCompile(`^"((?:[ !#-\[\]-~]|\\["\\])*)"$`)
	bareKey   = regexp.MustCompile(`^[!#-+\--:<-\[\]-~]+$`)
	unescape  = strings.NewReplacer(`\\`, `\`, `\"`, `"`)
)

// headerKey reads the header in either of its forms.
func headerKey(values []string) (key, fault string) {
	text := values[0]
	switch {
	case len(values) > 1:
		return "", "was given more than once; send one Idempotency-Key header"
	case text == "", text == `""`:
		return "", "is empty: leave it out, or give your own key for this request"
	case bareKey.MatchString(text):
		return text, ""
	case text[0] != '"':
		return "", "is not a valid key; send printable ASCII without spaces, commas, semicolons, backslashes and quotes, or a string in double quotes"
	}
	quoted := quotedKey.FindStringSubmatch(text)
	if quoted == nil {
		return "", "is no string of RFC 8941: want printable ASCII in double quotes, with a backslash before each quote and backslash in it, and nothing behind"
	}
	return unescape.Replace(quoted[1]), ""
}
