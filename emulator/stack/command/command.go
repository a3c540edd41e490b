// Package command runs the main function of the emulator's programs: until its end, or until Ctrl-C.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/buildinfo"
)

// Main runs the program with its arguments, or prints its version for --version. It exits with status 1 on an error, and with 130 if it was
// interrupted before its end. It then prints the words given, unless they are "".
func Main(name, interrupted string, run func(ctx context.Context, args []string, out io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if buildinfo.PrintVersion(name, os.Args[1:], os.Stdout) {
		return
	}
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case ctx.Err() == nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	default:
		if interrupted != "" {
			fmt.Fprintf(os.Stderr, "%s: %s\n", name, interrupted)
		}
		os.Exit(130)
	}
}

// Logs returns the log of the program itself at that level, made the default, and the file for the log of
// the processes that it runs. Without a path that log is discarded.
func Logs(level slog.Level, verbose bool, path string) (*slog.Logger, io.Writer) {
	if verbose {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	slog.SetDefault(log)
	if path == "" {
		return log, io.Discard
	}
	return log, steps.Value(os.Create(path))
}

// NewFlags returns a flag set whose usage is the text and the flags, those of a group together.
func NewFlags(name, usage string, groups ...Group) *flag.FlagSet {
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.Usage = func() {
		fmt.Fprint(set.Output(), usage)
		left := make(map[string]bool)
		set.VisitAll(func(f *flag.Flag) { left[f.Name] = true })
		for _, g := range groups {
			fmt.Fprintf(set.Output(), "%s:\n", g.Title)
			for _, name := range g.Flags {
				printFlag(set.Output(), set.Lookup(name))
				delete(left, name)
			}
			fmt.Fprintln(set.Output())
		}
		set.VisitAll(func(f *flag.Flag) {
			if left[f.Name] {
				printFlag(set.Output(), f)
			}
		})
		fmt.Fprintln(set.Output(), "  --version\n      print the version and the commit")
	}
	return set
}

// Group is flags that the usage shows together.
type Group struct {
	Title string
	Flags []string
}

// lineWidth is how many letters a line of the usage has at most.
const lineWidth = 90

// printFlag prints a flag with its meaning on indented lines.
func printFlag(out io.Writer, f *flag.Flag) {
	value, meaning := flag.UnquoteUsage(f)
	if value != "" {
		value = " " + strings.ToUpper(value)
	}
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" {
		meaning += " (default " + f.DefValue + ")"
	}
	fmt.Fprintf(out, "  --%s%s\n", f.Name, value)
	line := "     "
	for _, word := range strings.Fields(meaning) {
		if len(line)+1+len(word) > lineWidth {
			fmt.Fprintln(out, line)
			line = "     "
		}
		line += " " + word
	}
	fmt.Fprintln(out, line)
}

// Range is a flag's value with its bounds.
type Range struct {
	Flag            string
	Value, Min, Max float64
}

// Check returns an error for an argument that is no flag, and for a value out of its range.
func Check(set *flag.FlagSet, all ...Range) error {
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see --help", set.Arg(0))
	}
	for _, r := range all {
		if r.Value < r.Min || r.Value > r.Max {
			text := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
			return fmt.Errorf("--%s %s: want %s to %s", r.Flag, text(r.Value), text(r.Min), text(r.Max))
		}
	}
	return nil
}
