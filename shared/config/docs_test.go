package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

var update = flag.Bool("update", false, "write docs/settings.md anew")

const docs = "../../docs/settings.md"

const introduction = `<!-- Generated from shared/config by: go test ./shared/config --update -->

# Settings

Each setting is read once, when a process starts, from the variable beside it. A process does not start with a
` + "`FENCEPOST_`" + ` variable that is not listed here, an invalid value, or values that contradict each other. It names
all of them at once and says what to do. A variable that is set to nothing counts as not set.

A duration is a number with its unit, such as ` + "`500ms`, `10s`, `5m` or `24h`" + `.

| setting | variable | unit and range | default | meaning |
| --- | --- | --- | --- | --- |
`

const constantsIntroduction = `
## Constants

No deployment can change these values. Other pages refer to them by their names.

| constant | value | meaning |
| --- | --- | --- |
`

// page is docs/settings.md.
func page() string {
	var b strings.Builder
	b.WriteString(introduction)
	var constants strings.Builder
	for _, s := range new(Config).settings() {
		if s.constant {
			fmt.Fprintf(&constants, "| `%s` | `%s` | %s |\n", s.name, s.def, s.meaning)
			continue
		}
		def := "`" + s.def + "`"
		switch {
		case s.required:
			def = "required"
		case s.def == "":
			def = ""
		}
		name := "`" + s.name + "`"
		if s.google {
			name = "(Google's)"
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", name, s.variable(), s.field.want, def, s.meaning)
	}
	return b.String() + constantsIntroduction + constants.String()
}

// The page for users says what the code does.
func TestDocsAreTheTable(t *testing.T) {
	t.Parallel()
	want := page()
	if *update {
		check.OK(t)(os.WriteFile(docs, []byte(want), 0o644))
	}
	got := check.Value(os.ReadFile(docs))(t)
	check.Same(t, "docs/settings.md is not what the code says; run go test ./shared/config --update", string(got), want)
}

// Each declaration is whole, and its own.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, s := range new(Config).settings() {
		if v := s.variable(); seen[v] || s.google == strings.HasPrefix(v, prefix) {
			t.Errorf("%s: got variable %s, want one that is free, with %s exactly if it is ours", s.name, v, prefix)
		}
		seen[s.variable()] = true
		if s.meaning == "" || strings.HasSuffix(s.meaning, ".") || strings.ContainsAny(s.meaning+s.field.want, "|\n") {
			t.Errorf("%s: got meaning %q, takes %q; want text for one cell, without a full stop", s.name, s.meaning, s.field.want)
		}
		if s.required && s.def != "" {
			t.Errorf("%s: got required with the default %q, want one or the other", s.name, s.def)
		}
	}
	for _, r := range new(Config).rules() {
		for _, name := range r.of {
			if !strings.Contains(r.say, name) {
				t.Errorf("rule %v: got %q, want it to name %s", r.of, r.say, name)
			}
		}
	}
}

// The nearest name is found by what it takes to write one as the other.
func TestDistance(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abxc", 1}, {"abxc", "abc", 1},
		{"abc", "axc", 1}, {"kitten", "sitting", 3}, {"abcd", "bcda", 2},
	} {
		check.Equal(t, fmt.Sprintf("distance(%q, %q)", tt.a, tt.b), distance(tt.a, tt.b), tt.want)
	}
}
