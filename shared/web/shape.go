package web

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// walker reads a valid JSON text once beside the Go type that it must become, and stops at the first
// difference. It works on tokens, so the cost is linear in the text at any depth.
type walker struct {
	body []byte
	dec  *json.Decoder
}

// checkShape compares body, which is valid JSON, with type t.
func checkShape(body []byte, t reflect.Type) error {
	w := walker{body: body, dec: json.NewDecoder(bytes.NewReader(body))}
	w.dec.UseNumber()
	return w.value("", t, 0)
}

// value checks the next value of the text, at path, against t. A nil t allows everything but duplicate
// names.
func (w *walker) value(path string, t reflect.Type, depth int) error {
	if depth > maxDepth {
		return NewProblem(InvalidJSON, "the body nests deeper than %d", maxDepth)
	}
	start := w.dec.InputOffset()
	token, err := w.dec.Token()
	if err != nil {
		return &Problem{Code: InvalidJSON, Detail: "the body is not JSON", Cause: err}
	}
	t, nullable := target(t)
	if token == nil && nullable {
		return nil
	}
	inner := t
	if t != nil && (decodesItself(t) || !takes(t, token)) {
		inner = nil // the whole value is read, then decoded or refused
	}
	switch token {
	case json.Delim('{'):
		err = w.object(path, inner, depth)
	case json.Delim('['):
		err = w.array(path, inner, depth)
	}
	if err != nil || t == nil || (inner != nil && isContainer(token)) {
		return err
	}
	return w.leaf(path, t, token, start)
}

// leaf decodes the single value that began after offset start.
func (w *walker) leaf(path string, t reflect.Type, token json.Token, start int64) error {
	raw := bytes.TrimLeft(w.body[start:w.dec.InputOffset()], " \t\r\n,:")
	if token != nil && json.Unmarshal(raw, reflect.New(t).Interface()) == nil {
		return nil
	}
	detail := fmt.Sprintf("got %s; want %s", describe(token), wanted(t))
	if token == nil && decodesItself(t) {
		detail = "null is not a value of this field: leave it out, or give it a value"
	}
	if path == "" {
		return NewProblem(InvalidJSON, "%s", detail)
	}
	return FieldProblem(clip(path), "%s", detail)
}

func (w *walker) object(path string, t reflect.Type, depth int) error {
	seen := map[string]bool{}
	for w.dec.More() {
		token, err := w.dec.Token()
		name, isName := token.(string)
		if err != nil || !isName {
			return &Problem{Code: InvalidJSON, Detail: "the body is not JSON", Cause: err}
		}
		at := name
		if path != "" {
			at = path + "." + name
		}
		if seen[name] {
			return FieldProblem(clip(at), "the name occurs twice in one object; send it once")
		}
		seen[name] = true
		inner, known := member(t, name)
		if !known {
			return &Problem{Code: UnsupportedField, Field: clip(at), Detail: "there is no such field; names are case-sensitive"}
		}
		if t != nil && t.Kind() == reflect.Map && !isKey(t.Key(), name) {
			return FieldProblem(clip(at), "the name is not %s in digits alone, without leading zeros", wanted(t.Key()))
		}
		if err := w.value(at, inner, depth+1); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	return err
}

// isKey reports whether name is the canonical form of a key of type t. Two forms would be one entry,
// and the first would be lost.
func isKey(t reflect.Type, name string) bool {
	if t.Kind() != reflect.Uint64 {
		return true
	}
	n, err := strconv.ParseUint(name, 10, 64)
	return err == nil && strconv.FormatUint(n, 10) == name
}

func (w *walker) array(path string, t reflect.Type, depth int) error {
	var inner reflect.Type
	if t != nil {
		inner = t.Elem()
	}
	for i := 0; w.dec.More(); i++ {
		if err := w.value(fmt.Sprintf("%s[%d]", path, i), inner, depth+1); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	return err
}

// target strips pointers from t; nil is a type that accepts any value. nullable reports whether null is
// a value of the type.
func target(t reflect.Type) (_ reflect.Type, nullable bool) {
	for t != nil && t.Kind() == reflect.Pointer {
		t, nullable = t.Elem(), true
	}
	if t == nil || t == reflect.TypeFor[json.RawMessage]() || t.Kind() == reflect.Interface {
		return nil, true
	}
	return t, nullable
}

func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// takes reports whether a value that begins with token can be a t, as far as objects and arrays are
// concerned.
func takes(t reflect.Type, token json.Token) bool {
	switch token {
	case json.Delim('{'):
		return t.Kind() == reflect.Struct || t.Kind() == reflect.Map
	case json.Delim('['):
		return t.Kind() == reflect.Slice || t.Kind() == reflect.Array
	}
	return true
}

func isContainer(token json.Token) bool {
	_, ok := token.(json.Delim)
	return ok
}

// member returns the type of the member with that name, in an object that becomes a t.
func member(t reflect.Type, name string) (inner reflect.Type, known bool) {
	switch {
	case t == nil:
		return nil, true
	case t.Kind() == reflect.Map:
		return t.Elem(), true
	}
	inner, known = fields(t)[name]
	return inner, known
}

var fieldsOfType sync.Map // reflect.Type to map[string]reflect.Type

// fields returns the JSON names of struct type t, promoted ones included.
func fields(t reflect.Type) map[string]reflect.Type {
	if known, ok := fieldsOfType.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	byName := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Tag.Get("json") == "-" || (f.Anonymous && name == "") {
			continue
		}
		if name == "" {
			name = f.Name
		}
		byName[name] = f.Type
	}
	fieldsOfType.Store(t, byName)
	return byName
}

// describe names a value by its first token, without repeating it.
func describe(token json.Token) string {
	switch v := token.(type) {
	case nil:
		return "null"
	case json.Delim:
		if v == '{' {
			return "an object"
		}
		return "an array"
	case string:
		return "a string"
	case json.Number:
		return "the number " + clip(v.String())
	}
	return fmt.Sprint(token)
}

// wanted describes the JSON form of a value of type t.
func wanted(t reflect.Type) string {
	switch k := t.Kind(); {
	case decodesItself(t):
		return "a value in the form of this field"
	case k == reflect.String:
		return "a string"
	case k == reflect.Bool:
		return "true or false"
	case k >= reflect.Int && k <= reflect.Uintptr:
		return "a whole number in the range of " + k.String()
	case k == reflect.Float32 || k == reflect.Float64:
		return "a number"
	case k == reflect.Struct || k == reflect.Map:
		return "an object"
	}
	return "an array"
}
