package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// epochTTL is how long an epoch is cached. It changes when an operator accepts a restored
// database. Until the cache expires, a task name may be used up; the sweep then enqueues
// again.
const epochTTL = 10 * time.Second

// thisDatabase is the one key of [Store.epoch].
type thisDatabase struct{}

// Epoch is the database's epoch, a part of every name that leaves the deployment. The value is
// at most [epochTTL] old. Loads and creates return it too, so it is seldom queried.
func (s *Store) Epoch(ctx context.Context) (string, error) {
	epoch := s.epoch.last(thisDatabase{})
	if epoch != "" {
		return epoch, nil
	}
	if err := s.db.QueryRow(ctx, `select epoch from database_identity`).Scan(&epoch); err != nil {
		return "", fmt.Errorf("read the epoch of the database: %w", err)
	}
	s.epoch.note(thisDatabase{}, epoch)
	return epoch, nil
}

// NameEpoch is the submitter's own part of its task names. Each release by resync draws a new
// one. It is "" if the submitter has none, or if this process has loaded nothing of it. In the
// second case a task name may be used up; the sweep then enqueues again.
func (s *Store) NameEpoch(sub txmanager.Submitter) string {
	return s.names.last(sub)
}

// protectAll opens PROTECT on every submitter. The database is not the one written last, so it
// is not trusted until an operator has reconciled it with the chain.
const protectAll = `select protect_all()`

// ProtectRestored opens PROTECT on every submitter of a database that was not accepted, also where no
// submitter has work whose load would open it. It changes nothing in the accepted database.
func (s *Store) ProtectRestored(ctx context.Context) error {
	_, err := s.db.Exec(ctx, protectAll+` where not is_accepted_database()`)
	return results.Wrap(err, "protect every submitter of a restored database")
}

// RequireAccepted returns the error foreign unless the database is the accepted one.
func RequireAccepted(ctx context.Context, db results.DB, foreign error) error {
	var ours bool
	err := db.QueryRow(ctx, `select is_accepted_database()`).Scan(&ours)
	if err == nil && !ours {
		err = foreign
	}
	return err
}

// ErrDatabaseAccepted reports an acceptance of a database that is the accepted database
// already. Nothing was changed.
var ErrDatabaseAccepted = errors.New("the database is the one written last")

// ErrNumbersAhead reports that the journals have rows with transaction numbers that the
// cluster has not reached. This happens after a dump is loaded into another cluster. A reader
// that remembers the transactions it has seen would read these rows for ever and skip new
// ones. Nothing was accepted.
var ErrNumbersAhead = errors.New("the journals are ahead of the cluster's transactions")

// ahead is the highest transaction number in the journals that has not ended by the cluster's
// count. Rows of the cluster's own have none. Each index on tx is read from its end.
const ahead = `
select max(tx::text::numeric)::text as tx
  from (select pg_current_snapshot() as now offset 0) as c,
       lateral ((select tx from transfer_operations where ` + txNotEnded + ` order by tx desc limit 1)
       union all (select tx from transfer_history where ` + txNotEnded + ` and state in (40, -10, -30) order by tx desc limit 1)
       union all (select tx from payout_confirmed where ` + txNotEnded + ` order by tx desc limit 1)) as rows`

const txNotEnded = `tx >= pg_snapshot_xmin(now) and not pg_visible_in_snapshot(tx, now)`

// acceptDatabase makes the database, as it is now, the authority under a new epoch. The new
// epoch keeps new names distinct from all names used before the restore.
const acceptDatabase = `
with accepted as (
  update database_identity a
     set system_identifier = s.system_identifier, timeline_id = current_timeline(),
         epoch = left(md5(gen_random_uuid()::text), 8), accepted_at = clock_timestamp(), accepted_by = $1
    from pg_control_system() s
   where not is_accepted_database() and (` + ahead + `) is null
  returning a.system_identifier, a.timeline_id
)
insert into identity_change (system_identifier, timeline_id, by, reason)
select system_identifier, timeline_id, $1, $2 from accepted`

// AcceptDatabase records that an operator has reconciled a restored database and accepts it.
// Every submitter stays in PROTECT until it is released. Every intent in the queue is held:
// see [Store.Proceed]. The error wraps [ErrDatabaseAccepted] if there is nothing to accept, and
// [ErrNumbersAhead] if the cluster's transaction numbers must be advanced first.
func (s *Store) AcceptDatabase(ctx context.Context, by, reason string) error {
	if err := s.holdAllQueued(ctx); err != nil {
		return err
	}
	var accepted bool
	var last string
	b := new(pgx.Batch)
	queueCarryOut(ctx, b)
	b.Queue(protectAll)
	b.Queue(`select coalesce(a.tx, '') from (` + ahead + `) as a where not is_accepted_database()`).QueryRow(results.Maybe(&last))
	b.Queue(holdQueued, "", holdRest)
	b.Queue(acceptDatabase, by, reason).Exec(results.Any(&accepted))
	if err := s.send(ctx, b); err != nil {
		return fmt.Errorf("accept the database: %w", err)
	}
	switch {
	case accepted:
		return nil
	case last != "":
		return fmt.Errorf("accept the database: rows of transaction %s: %w", last, ErrNumbersAhead)
	}
	return ErrDatabaseAccepted
}
