package config

import "log/slog"

const redacted = "[redacted]"

// Secret is a text that must not be seen in a log, an error, a row or a
// response: printed, encoded or logged it is "[redacted]", whatever it holds.
// Only [Secret.Reveal] gives the text itself. The zero Secret holds nothing.
//
// The text is behind a pointer, so that a printer that walks through unexported
// fields, where it may call no method, meets an address.
type Secret struct{ text *string }

// NewSecret keeps text as a secret.
func NewSecret(text string) Secret { return Secret{text: &text} }

// Reveal gives the text, to be handed at once to the one who needs it; "" for
// the zero Secret.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// String is always "[redacted]".
func (Secret) String() string { return redacted }

// GoString is always "[redacted]": what %#v prints.
func (Secret) GoString() string { return redacted }

// MarshalText is always "[redacted]": what JSON and other encoders write.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue is always "[redacted]": what package slog writes.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
