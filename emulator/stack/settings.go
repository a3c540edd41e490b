package stack

import (
	"errors"
	"flag"
	"strings"
	"unicode"
)

// Settings are settings of the functions from the command line, by variable. The flag can be repeated.
type Settings map[string]string

var _ flag.Value = Settings{}

// String implements [flag.Value].
func (s Settings) String() string { return "" }

// Set implements [flag.Value]. A name is one of docs/settings.md or a variable. The functions refuse an
// unknown one.
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
