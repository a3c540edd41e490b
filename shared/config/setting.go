package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

const prefix = "FENCEPOST_"

// setting declares a setting: its name, meaning and values, and the field that holds it.
type setting struct {
	name     string // as the specification writes it; for Google's, the variable
	google   bool   // the platform's own variable, which keeps its name
	constant bool   // always the default; only [LoadForTests] and programs built with the tag crashpoints read the variable
	required bool   // there is no default and nothing starts without it
	def      string // the default, as it would be written; "": none
	meaning  string // half a sentence for the table, without a full stop
	field    field
}

// variable is the setting's name in the environment: dots and capitals become
// underscores.
func (s setting) variable() string {
	if s.google {
		return s.name
	}
	var b strings.Builder
	b.WriteString(prefix)
	for _, r := range s.name {
		switch {
		case r == '.':
			r = '_'
		case unicode.IsUpper(r):
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}

// load parses the given text, or else the default, into the field.
func (s setting) load(given string) error {
	text := cmp.Or(given, s.def)
	switch {
	case text == "" && s.required:
		return s.missing()
	case text == "" || s.field.set(text):
		return nil
	case s.field.why != nil:
		return fmt.Errorf("%s: %w: want %s", s.shown(given), s.field.why(text), s.field.want)
	default:
		return fmt.Errorf("%s: want %s", s.shown(given), s.field.want)
	}
}

// missing is the problem of a required setting that is not given.
func (s setting) missing() error {
	return fmt.Errorf("%s is not set: want %s (%s)", s.variable(), s.field.want, s.meaning)
}

// shown is the variable with the value in force, as a problem shows it.
func (s setting) shown(given string) string {
	if s.field.secret {
		return s.variable() + "=" + redacted
	}
	return fmt.Sprintf("%s=%q", s.variable(), cmp.Or(given, s.def))
}

// nearest is the known variable with the name most like the given one.
func nearest(settings []setting, given string) string {
	ours := slices.DeleteFunc(slices.Clone(settings), func(s setting) bool { return s.google })
	return slices.MinFunc(ours, func(a, b setting) int {
		return cmp.Compare(distance(a.variable(), given), distance(b.variable(), given))
	}).variable()
}

// distance is the number of letters to insert, delete or replace that turn a
// into b (Levenshtein's).
func distance(a, b string) int {
	row := make([]int, len(b)+1) // from the part of a seen so far to each start of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
