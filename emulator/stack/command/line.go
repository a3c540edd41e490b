package command

import (
	"bytes"
	"io"
	"os"
)

// IsTerminal reports whether the output is a terminal.
func IsTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

const maxLine = 64 << 10

// Lines is a writer that cuts what it gets into lines. It splits those longer than 64 KiB.
type Lines struct {
	Line func(string) // is called with each line, without its end
	rest []byte
}

// Write never fails.
func (l *Lines) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		l.rest = append(l.rest, line...)
		if bytes.HasSuffix(line, []byte("\n")) || len(l.rest) >= maxLine {
			l.emit()
		}
	}
	return len(b), nil
}

// Flush ends a last line without an end.
func (l *Lines) Flush() {
	if len(l.rest) > 0 {
		l.emit()
	}
}

func (l *Lines) emit() {
	text := string(bytes.TrimSuffix(bytes.TrimSuffix(l.rest, []byte("\n")), []byte("\r")))
	l.rest = l.rest[:0]
	l.Line(text)
}
