package migrations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	awaitTry   = 10 * time.Second // of one connection
	awaitPause = time.Second
)

// Await waits until a server answers at the URL, for as long as patience, since the network of a new
// instance can take a minute. It calls report after each failed try with the time since it began. A
// server that refuses the connection has answered: then Await returns nil, and the caller's own
// connection fails with the server's reason. The error is that of the last try.
func Await(ctx context.Context, databaseURL string, patience time.Duration, report func(time.Duration, error), how ...Option) error {
	config, err := parse(databaseURL, how)
	if err != nil {
		return err
	}
	for began := time.Now(); ; {
		err := tryConnection(ctx, config)
		if err == nil {
			return nil
		}
		waited := time.Since(began)
		if waited+awaitPause >= patience {
			return fmt.Errorf("no server answered within %s: %w", patience, err)
		}
		report(waited, err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(awaitPause):
		}
	}
}

// startingUp is the SQLSTATE of a server that accepts no connections yet, or no longer.
const startingUp = "57P03"

// tryConnection returns nil if a server accepted the connection, or refused it for a reason that waiting does not change.
func tryConnection(ctx context.Context, config *pgx.ConnConfig) error {
	ctx, cancel := context.WithTimeout(ctx, awaitTry)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		return conn.Close(ctx)
	}
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok && refusal.Code != startingUp {
		return nil
	}
	return err
}
