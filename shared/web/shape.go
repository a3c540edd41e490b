package web

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// walker reads a valid JSON text once beside the Go type that it must become, and stops at the first
// difference. The cost is linear in the text at any depth.
type walker struct {
	body []byte
	at   int    // index of the next byte
	path []step // from the body to the value at hand
}

// step leads from a value to one within it: the name of a member, or the index of an element.
type step struct {
	name  string
	index int // -1: a member
}

// where returns the path as text, such as "calls[2].to".
func (w *walker) where() string {
	var b strings.Builder
	for _, s := range w.path {
		switch {
		case s.index >= 0:
			fmt.Fprintf(&b, "[%d]", s.index)
		case b.Len() > 0:
			b.WriteString("." + s.name)
		default:
			b.WriteString(s.name)
		}
	}
	return clip(b.String())
}

// next returns the first byte of the next token.
func (w *walker) next() byte {
	for ; ; w.at++ {
		switch c := w.body[w.at]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
		default:
			return c
		}
	}
}

// text moves past the next token, which is no bracket or brace, and returns it.
func (w *walker) text() []byte {
	start := w.at
	if w.body[w.at] == '"' {
		for w.at++; w.body[w.at] != '"'; w.at++ {
			if w.body[w.at] == '\\' {
				w.at++ // past the escaped character
			}
		}
		w.at++
		return w.body[start:w.at]
	}
	for w.at < len(w.body) && strings.IndexByte(" \t\r\n,]}", w.body[w.at]) < 0 {
		w.at++
	}
	return w.body[start:w.at]
}

// value checks the next value of the text against t. A nil t allows everything but duplicate
// names.
func (w *walker) value(t reflect.Type, depth int) (err error) {
	if depth > maxDepth {
		return NewProblem(InvalidJSON, "the body nests deeper than %d", maxDepth)
	}
	first := w.next()
	start := w.at
	t, nullable := target(t)
	inner := t
	if t != nil && (decodesItself(t) || !takes(t, first)) {
		inner = nil // the whole value is read, then decoded or refused
	}
	switch first {
	case '{':
		err = w.object(inner, depth)
	case '[':
		err = w.array(inner, depth)
	default:
		w.text()
	}
	if err != nil || t == nil || first == 'n' && nullable || inner != nil && isContainer(first) {
		return err
	}
	return w.leaf(t, w.body[start:w.at])
}

// leaf decodes a single value.
func (w *walker) leaf(t reflect.Type, raw []byte) error {
	first := raw[0]
	if first == '"' && t.Kind() == reflect.String && !decodesItself(t) {
		return nil
	}
	if first != 'n' && json.Unmarshal(raw, reflect.New(t).Interface()) == nil {
		return nil
	}
	detail := fmt.Sprintf("got %s; want %s", describe(raw), wanted(t))
	if first == 'n' && decodesItself(t) {
		detail = "null is not a value of this field: leave it out, or give it a value"
	}
	at := w.where()
	if at == "" {
		return NewProblem(InvalidJSON, "%s", detail)
	}
	return FieldProblem(at, "%s", detail)
}

func (w *walker) object(t reflect.Type, depth int) error {
	place := len(w.path)
	w.path = append(w.path, step{index: -1})
	seen := map[string]bool{}
	for w.at++; w.next() != '}'; {
		name := nameOf(w.text())
		w.path[place].name = name
		if seen[name] {
			return FieldProblem(w.where(), "the name occurs twice in one object; send it once")
		}
		seen[name] = true
		inner, known := member(t, name)
		if !known {
			return &Problem{Code: UnsupportedField, Field: w.where(), Detail: "there is no such field; names are case-sensitive"}
		}
		if t != nil && t.Kind() == reflect.Map && !isKey(t.Key(), name) {
			return FieldProblem(w.where(), "the name is not %s in digits alone, without leading zeros", wanted(t.Key()))
		}
		if err := w.value(inner, depth+1); err != nil {
			return err
		}
	}
	w.path = w.path[:place]
	w.at++
	return nil
}

// nameOf returns the text of a JSON string.
func nameOf(raw []byte) (name string) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	_ = json.Unmarshal(raw, &name) // it is valid
	return name
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

func (w *walker) array(t reflect.Type, depth int) error {
	var inner reflect.Type
	if t != nil {
		inner = t.Elem()
	}
	place := len(w.path)
	w.path = append(w.path, step{})
	w.at++
	for i := 0; w.next() != ']'; i++ {
		w.path[place].index = i
		if err := w.value(inner, depth+1); err != nil {
			return err
		}
	}
	w.path = w.path[:place]
	w.at++
	return nil
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

var selfDecoding sync.Map // reflect.Type to bool

// decodesItself reports whether t has a method that decodes it.
func decodesItself(t reflect.Type) bool {
	if known, ok := selfDecoding.Load(t); ok {
		return known.(bool)
	}
	p := reflect.PointerTo(t)
	does := p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	selfDecoding.Store(t, does)
	return does
}

// takes reports whether a value that begins with first can be a t, as far as objects and arrays are
// concerned.
func takes(t reflect.Type, first byte) bool {
	switch first {
	case '{':
		return t.Kind() == reflect.Struct || t.Kind() == reflect.Map
	case '[':
		return t.Kind() == reflect.Slice || t.Kind() == reflect.Array
	}
	return true
}

func isContainer(first byte) bool { return first == '{' || first == '[' }

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
		byName[cmp.Or(name, f.Name)] = f.Type
	}
	fieldsOfType.Store(t, byName)
	return byName
}

// describe names a value by its first byte, without repeating a text.
func describe(raw []byte) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 'n', 't', 'f':
		return string(raw)
	}
	return "the number " + clip(string(raw))
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
