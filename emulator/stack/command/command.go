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
	"syscall"
)

// Main runs the program with its arguments, and exits with status 1 on an error, and with 130 if it was
// interrupted before its end. It then prints the words given, unless they are "".
func Main(name, interrupted string, run func(ctx context.Context, args []string, out io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
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
func Logs(level slog.Level, verbose bool, path string) (*slog.Logger, io.Writer, error) {
	if verbose {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	slog.SetDefault(log)
	if path == "" {
		return log, io.Discard, nil
	}
	output, err := os.Create(path)
	return log, output, err
}
