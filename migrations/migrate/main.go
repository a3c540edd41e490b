// Command migrate brings the database to the newest schema. It runs as a job
// before a release's functions are deployed; the changelog says which releases want
// the functions of the last one stopped meanwhile.
package main

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

	"github.com/fencepost/fencepost/migrations"
)

const usage = `usage: migrate up|status

  up      apply every migration that the database has not seen; two at once are safe
  status  list the migrations and when each was applied

FENCEPOST_DATABASE_URL is the database, as the role that owns its tables:
postgres://user:password@host:port/database

Exit codes: 0 done, 1 failed, 2 called wrongly.
`

// errUsage marks a call that cannot work whatever the database holds.
var errUsage = errors.New("called wrongly, see migrate --help")

func main() {
	// A job that is cancelled gets SIGTERM: the migration at work rolls back.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := realMain(ctx)
	stop()
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(1)
	}
}

func realMain(ctx context.Context) error {
	flags := flag.NewFlagSet("migrate", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error once
	if err := flags.Parse(os.Args[1:]); errors.Is(err, flag.ErrHelp) {
		_, err := fmt.Print(usage)
		return err
	} else if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("%w: got %d arguments, want one, up or status", errUsage, flags.NArg())
	}
	databaseURL := os.Getenv("FENCEPOST_DATABASE_URL")
	if databaseURL == "" {
		return fmt.Errorf("%w: FENCEPOST_DATABASE_URL is not set", errUsage)
	}
	switch command := flags.Arg(0); command {
	case "up":
		return up(ctx, databaseURL)
	case "status":
		return status(ctx, databaseURL)
	default:
		return fmt.Errorf("%w: got command %q, want up or status", errUsage, command)
	}
}

// up logs each applied migration and prints how many there were.
func up(ctx context.Context, databaseURL string) error {
	applied, err := migrations.Up(ctx, databaseURL, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if applied > 0 || err == nil {
		fmt.Printf("migrations applied: %d\n", applied)
	}
	return err
}

// status prints one line per migration.
func status(ctx context.Context, databaseURL string) error {
	states, err := migrations.Status(ctx, databaseURL)
	if err != nil {
		return err
	}
	for _, state := range states {
		appliedAt := "pending"
		if !state.AppliedAt.IsZero() {
			appliedAt = state.AppliedAt.UTC().Format("2006-01-02 15:04:05Z")
		}
		fmt.Printf("%-21s %s\n", appliedAt, state.Name)
	}
	return nil
}
