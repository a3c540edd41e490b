package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// distrust names a timeline that no server has. PROTECT is opened by whoever looks
// next, and at the latest by the acceptance.
const distrust = `
update authority
   set timeline_id = -1, accepted_by = 'distrusted: ' || $1, accepted_at = clock_timestamp()`

// Distrust says that the database is not the one written last, though it looks like it:
// a copy that kept the server's identity. Nothing in it is believed, moved, signed or
// sent until an operator accepts it. The reason is on record until then. To say it twice is no error.
func Distrust(ctx context.Context, databaseURL, reason string, how ...Option) (err error) {
	config, err := parse(databaseURL, how)
	if err != nil {
		return fmt.Errorf("distrust: %w", err)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("distrust: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	tag, err := conn.Exec(ctx, distrust, reason)
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("the table authority has no row: is this our database?")
	}
	if err != nil {
		return fmt.Errorf("distrust: %w", err)
	}
	return nil
}
