package stack

import (
	"errors"
	"flag"
	"strings"
	"unicode"
)

// Settings are those of the functions that a command line gives, by variable. It is a
// flag that may be given again.
type Settings map[string]string

var _ flag.Value = Settings{}

// String implements [flag.Value].
func (s Settings) String() string { return "" }

// Set implements [flag.Value]. A name is read as docs/settings.md has it, or as the
// variable; what is no setting the functions refuse.
func (s Settings) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return errors.New("want NAME=VALUE, such as gasbump.enabled=true")
	}
	if strings.ToUpper(name) == name {
		s[name] = value
		return nil
	}
	var variable strings.Builder
	variable.WriteString("FENCEPOST_")
	for _, r := range name {
		if r == '.' || unicode.IsUpper(r) {
			variable.WriteByte('_')
		}
		if r != '.' {
			variable.WriteRune(unicode.ToUpper(r))
		}
	}
	s[variable.String()] = value
	return nil
}
