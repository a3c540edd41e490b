package migrations

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// distrust sets a timeline that no server has. The next invocation opens PROTECT, and accepting the
// database does so at the latest.
const distrust = `
update database_identity
   set timeline_id = -1, accepted_by = 'distrusted: ' || $1, accepted_at = clock_timestamp()`

// Distrust marks a database as a copy that kept the server's identity but is not the one written last.
// Until an operator accepts it, nothing in it is used, moved, signed or sent. The reason is stored
// until then. Calling it again is no error.
func Distrust(ctx context.Context, databaseURL, reason string, how ...Option) error {
	return withConnection(ctx, "distrust", databaseURL, how, func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, distrust, reason)
		if err == nil && tag.RowsAffected() != 1 {
			err = errors.New("the table database_identity has no row: is this our database?")
		}
		return err
	})
}
