package command

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"
)

// lineEvery is how often a line is shown that is not on a terminal.
const lineEvery = 10 * time.Second

// Line is one line that shows progress. On a terminal it is drawn again in its place; elsewhere it is printed
// every ten seconds.
type Line struct {
	out      io.Writer
	terminal bool
	last     time.Time
}

// NewLine returns a line of the output.
func NewLine(out io.Writer) *Line {
	return &Line{out: out, terminal: IsTerminal(out), last: time.Now()}
}

// Show shows the text.
func (l *Line) Show(format string, args ...any) {
	switch {
	case l.terminal:
		fmt.Fprintf(l.out, "\r"+format+"\x1b[K", args...) // and clear the rest of the line
	case time.Since(l.last) >= lineEvery:
		l.last = time.Now()
		fmt.Fprintf(l.out, format+"\n", args...)
	}
}

// End shows the last text, and ends the line.
func (l *Line) End(format string, args ...any) {
	if l.terminal {
		format = "\r" + format + "\x1b[K"
	}
	fmt.Fprintf(l.out, format+"\n", args...)
}

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
	n := len(b)
	for {
		line, after, found := bytes.Cut(b, []byte("\n"))
		l.rest = append(l.rest, line...)
		if !found {
			break
		}
		l.emit()
		b = after
	}
	if len(l.rest) >= maxLine {
		l.emit()
	}
	return n, nil
}

// Flush ends a last line without an end.
func (l *Lines) Flush() {
	if len(l.rest) > 0 {
		l.emit()
	}
}

func (l *Lines) emit() {
	text := string(bytes.TrimSuffix(l.rest, []byte("\r")))
	l.rest = l.rest[:0]
	l.Line(text)
}
