package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
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

// showEvery is how often progress that costs no request is shown.
const showEvery = 100 * time.Millisecond

// act is done once so many are done. It may write by the bar.
type act struct {
	at int
	do func(*bar)
}

// watch shows how many are done until the progress has ended, and does the acts on the way.
func watch(ctx context.Context, out io.Writer, all int, every time.Duration, progress func() (done int, ended bool), acts ...act) {
	shown := newBar(out, all)
	for {
		done, ended := progress()
		shown.show(done)
		for len(acts) > 0 && done >= acts[0].at {
			acts[0].do(shown)
			acts = acts[1:]
		}
		if ended || ctx.Err() != nil {
			return
		}
		retry.Pause(ctx, every)
	}
}

// say writes a line between two states of the bar.
func (b *bar) say(format string, args ...any) {
	if b.terminal {
		fmt.Fprintln(b.out)
	}
	fmt.Fprintf(b.out, format+"\n", args...)
}
