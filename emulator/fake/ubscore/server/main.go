// Command server is UBSCore, which replaces the exchange's trading core in this repository. It keeps
// balances in memory and a log on disk, and serves the protocol of docs/ubscore.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/edge"
	"github.com/fencepost/fencepost/shared/buildinfo"
	"github.com/fencepost/fencepost/shared/crash"
)

func main() {
	if buildinfo.PrintVersion("ubscore", os.Args[1:], os.Stdout) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	err := realMain(ctx, os.Args[1:], os.Getenv)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ubscore:", err)
		os.Exit(1)
	}
}

// drain is the time that SIGTERM leaves to requests in flight.
const drain = 8 * time.Second

func realMain(ctx context.Context, args []string, env func(string) string) (err error) {
	s, err := parse(args, env)
	if err != nil {
		return err
	}
	if s.Points, err = crash.FromEnvironment(); err != nil {
		return err
	}
	c, err := core.Open(s.Options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	listener, err := net.Listen("tcp", net.JoinHostPort(s.host, s.port))
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: edge.New(c, s.secret), MaxHeaderBytes: 16 << 10, ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	slog.Info("listening", "address", listener.Addr().String(), "folder", s.Folder)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	return server.Shutdown(limited)
}
