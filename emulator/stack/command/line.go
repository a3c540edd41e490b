package command

import (
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
