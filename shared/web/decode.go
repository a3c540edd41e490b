package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a body, so that no caller chooses the depth of our recursion.
const maxDepth = 64

// Decode reads the request's body as exactly one JSON value of type T. It refuses, each with a
// *[Problem]:
//
//   - INVALID_JSON: a Content-Type other than application/json (none is accepted), bytes that are not UTF-8, syntax
//     errors, lone surrogates, the character U+0000, data after the value, nesting deeper than 64, and a value of
//     another kind than T;
//   - BODY_TOO_LARGE: a body longer than maxBytes;
//   - BODY_TIMEOUT: a body that does not arrive completely in time, if [Arrival] limits it;
//   - UNSUPPORTED_FIELD: a name that T does not have, in exact letter case;
//   - INVALID_FIELD: a duplicate name in an object, null for a type without pointer, and a value of the wrong type.
//
// Inside a [json.RawMessage] or an interface any names are allowed, each once. T is a struct, or a
// slice or map of structs; the "string" option of JSON tags is not supported. Missing fields stay zero:
// the caller must require them.
func Decode[T any](w http.ResponseWriter, r *http.Request, maxBytes int64) (T, error) {
	body, err := readBody(w, r, maxBytes)
	if err != nil {
		var zero T
		return zero, err
	}
	return DecodeText[T](body)
}

// DecodeText is [Decode] for text that was read before, such as the answer of a service.
func DecodeText[T any](body []byte) (T, error) {
	var value T
	if err := checkText(body); err != nil {
		return value, err
	}
	w := walker{body: body}
	if err := w.value(reflect.TypeFor[T](), 0); err != nil {
		return value, err
	}
	if err := json.Unmarshal(body, &value); err != nil {
		var zero T
		return zero, &Problem{Code: InvalidJSON, Detail: "the body does not fit", Cause: err}
	}
	return value, nil
}

func readBody(w http.ResponseWriter, r *http.Request, maxBytes int64) ([]byte, error) {
	if ct := r.Header.Get("Content-Type"); ct != "" && ct != "application/json" {
		media, _, err := mime.ParseMediaType(ct)
		if err != nil || media != "application/json" {
			return nil, NewProblem(InvalidJSON, "Content-Type is %q; want application/json", ct)
		}
	}
	if r.ContentLength > maxBytes { // not a byte of it need come
		return nil, NewProblem(BodyTooLarge, "the body is longer than %d bytes", maxBytes)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, NewProblem(BodyTooLarge, "the body is longer than %d bytes", tooLarge.Limit)
	case err != nil:
		return nil, incomplete(err)
	case len(bytes.TrimSpace(body)) == 0:
		return nil, NewProblem(InvalidJSON, "the body is empty; want one JSON value")
	}
	return body, nil
}

// checkText refuses text that encoding/json would silently accept or change: two different texts must
// never become one value, since request ids are compared by it.
func checkText(body []byte) error {
	if !utf8.Valid(body) {
		return NewProblem(InvalidJSON, "the body is not UTF-8")
	}
	if !json.Valid(body) {
		var raw json.RawMessage
		err := json.Unmarshal(body, &raw)
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return NewProblem(InvalidJSON, "byte %d: %s; want exactly one JSON value", syntax.Offset, syntax)
		}
		return &Problem{Code: InvalidJSON, Detail: "the body is not JSON", Cause: err}
	}
	if at, what := badEscape(body); at >= 0 {
		return NewProblem(InvalidJSON, "byte %d: a \\u escape is %s", at+1, what)
	}
	return nil
}

// badEscape returns the index of the first \u escape in valid JSON that is no character, or is the one
// that no text column accepts; or -1.
func badEscape(body []byte) (at int, what string) {
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		first := escaped(body[i:])
		switch {
		case !utf16.IsSurrogate(first):
			if first == 0 && body[i+1] == 'u' {
				return i, "the character U+0000"
			}
			i++ // past the escaped character, which may be a backslash
		case utf16.DecodeRune(first, escaped(body[i+6:])) == utf8.RuneError:
			return i, "half of a surrogate pair"
		default:
			i += 11
		}
	}
	return -1, ""
}

// escaped returns the code unit of the \uXXXX at the start of text, or 0.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	unit, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(unit)
}

// clip shortens a caller's own text before it is returned.
func clip(text string) string {
	const limit = 200
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
