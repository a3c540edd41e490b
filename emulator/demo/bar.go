package demo

import (
	"fmt"
	"io"
	"strings"

	"github.com/fencepost/fencepost/emulator/stack/command"
)

// bar is a progress bar. On a terminal it redraws one line; elsewhere it prints a line for each tenth.
type bar struct {
	out      io.Writer
	all      int
	terminal bool
	shown    int // in tenths, unless on a terminal
}

func newBar(out io.Writer, all int) *bar {
	return &bar{out: out, all: all, terminal: command.IsTerminal(out), shown: -1}
}

func (b *bar) show(done int) {
	const width = 40
	filled := width * done / b.all
	line := fmt.Sprintf("[%s%s] %d/%d", strings.Repeat("#", filled), strings.Repeat(".", width-filled), done, b.all)
	switch tenth := 10 * done / b.all; {
	case b.terminal && done == b.all:
		fmt.Fprintf(b.out, "\r%s\n\n", line)
	case b.terminal:
		fmt.Fprint(b.out, "\r"+line)
	case tenth > b.shown:
		b.shown = tenth
		fmt.Fprintln(b.out, line)
	}
}

// say writes a line between two states of the bar.
func (b *bar) say(format string, args ...any) {
	if b.terminal {
		fmt.Fprintln(b.out)
	}
	fmt.Fprintf(b.out, format+"\n", args...)
}
