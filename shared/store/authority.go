package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// epochFor is how long an epoch is believed: it changes when an operator accepts a
// restored database. Until then names may be used up, and the sweep helps.
const epochFor = 10 * time.Second

// epochCache remembers the epoch that the last load or create came with.
type epochCache struct {
	mu    sync.Mutex
	epoch string
	until time.Time // by the monotonic clock
}

func (e *epochCache) note(epoch string) {
	if epoch == "" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.epoch, e.until = epoch, time.Now().Add(epochFor)
}

// last is the epoch seen lately; "" where none was.
func (e *epochCache) last() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Now().After(e.until) {
		return ""
	}
	return e.epoch
}

// Epoch is the database's mark in every name that leaves the house, at most
// [epochFor] old. Loads and creates bring it along, so that it is seldom asked for.
func (s *Store) Epoch(ctx context.Context) (string, error) {
	if epoch := s.epochs.last(); epoch != "" {
		return epoch, nil
	}
	var epoch string
	if err := s.db.QueryRow(ctx, `select epoch from authority`).Scan(&epoch); err != nil {
		return "", fmt.Errorf("read the epoch of the database: %w", err)
	}
	s.epochs.note(epoch)
	return epoch, nil
}

// nameEpochCache are the name epochs of submitters, as the last load or create brought them:
// only of those that were released by resync.
type nameEpochCache struct {
	mu   sync.Mutex
	seen map[txmanager.Submitter]string
}

func (n *nameEpochCache) note(s txmanager.Submitter, epoch string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if epoch == "" {
		delete(n.seen, s)
		return
	}
	if n.seen == nil {
		n.seen = make(map[txmanager.Submitter]string)
	}
	n.seen[s] = epoch
}

// NameEpoch is a submitter's own mark in the names of its tasks, drawn anew by each
// release by resync; "" if it has none, or nothing was read of it by this process: then
// the name may be used up already, and the sweep helps.
func (s *Store) NameEpoch(sub txmanager.Submitter) string {
	s.names.mu.Lock()
	defer s.names.mu.Unlock()
	return s.names.seen[sub]
}

// protectAll opens PROTECT on every submitter: this database is not the one that
// we wrote last, and nothing in it is believed until a person has reconciled it
// with the chain.
const protectAll = `select protect_all()`

// distrustDatabase protects every submitter of a database that is not the authority.
func (s *Store) distrustDatabase(ctx context.Context) error {
	if _, err := s.db.Exec(ctx, protectAll); err != nil {
		return fmt.Errorf("protect every submitter of a foreign database: %w", err)
	}
	return nil
}

// ErrIsAuthority reports an acceptance of a database that is the authority
// already. Nothing was changed.
var ErrIsAuthority = errors.New("the database is the one written last")

// ErrNumbersAhead reports an acceptance of a database whose journals have rows of
// transactions that its cluster has yet to number, as after a dump was loaded into
// another cluster: whoever reads a journal by the transactions that it has seen would
// read these rows for ever, and pass over new ones. Nothing was accepted.
var ErrNumbersAhead = errors.New("the journals are ahead of the cluster's transactions")

// ahead is the latest transaction whose rows are there and which, by the cluster's
// count, is not over: no row of the cluster's own is like that. Each index on tx is
// looked at from its end.
const ahead = `
select max(tx::text::numeric)::text as tx
  from (select pg_current_snapshot() as now offset 0) as c,
       lateral ((select tx from transfer_operations where ` + notOver + ` order by tx desc limit 1)
       union all (select tx from transfer_history where ` + notOver + ` and state in (40, -10, -30) order by tx desc limit 1)
       union all (select tx from payout_confirmed where ` + notOver + ` order by tx desc limit 1)) as rows`

const notOver = `tx >= pg_snapshot_xmin(now) and not pg_visible_in_snapshot(tx, now)`

// acceptAuthority makes the database, as it is now, the authority, under a new
// epoch: no name that was used before the restore is met again.
const acceptAuthority = `
with accepted as (
  update authority a
     set system_identifier = s.system_identifier, timeline_id = current_timeline(),
         epoch = left(md5(gen_random_uuid()::text), 8), accepted_at = clock_timestamp(), accepted_by = $1
    from pg_control_system() s
   where not is_authority() and (` + ahead + `) is null
  returning a.system_identifier, a.timeline_id
)
insert into authority_change (system_identifier, timeline_id, by, reason)
select system_identifier, timeline_id, $1, $2 from accepted`

// AcceptAuthority records that an operator has reconciled a restored database
// and accepts it. Every submitter stays in PROTECT until it is released, and every
// intent in the queue is held: see [Store.Proceed]. The
// error wraps [ErrIsAuthority] where there is nothing to accept, and [ErrNumbersAhead]
// where the cluster's transactions must be numbered on first.
func (s *Store) AcceptAuthority(ctx context.Context, by, reason string) error {
	return s.Accept(ctx, Acceptance{By: by, Reason: reason})
}

// Acceptance is an operator's word that a database is the authority.
type Acceptance struct {
	By, Reason string

	// Planned: the database was moved as planned and has all that was ever committed.
	// Its queue is not held. False: it was restored, or may have been.
	Planned bool
}

// Accept is [Store.AcceptAuthority] for a database that may have been moved as planned.
func (s *Store) Accept(ctx context.Context, a Acceptance) error {
	if !a.Planned {
		if err := s.holdAllQueued(ctx); err != nil {
			return err
		}
	}
	var accepted bool
	var last string
	b := new(pgx.Batch)
	queueCarryOut(ctx, b)
	b.Queue(protectAll)
	b.Queue(`select coalesce(a.tx, '') from (` + ahead + `) as a where not is_authority()`).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(&last); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	})
	if !a.Planned {
		b.Queue(holdQueued, "", holdRest)
	}
	b.Queue(acceptAuthority, a.By, a.Reason).Exec(func(tag pgconn.CommandTag) error {
		accepted = tag.RowsAffected() == 1
		return nil
	})
	if err := s.send(ctx, b); err != nil {
		return fmt.Errorf("accept the database: %w", err)
	}
	switch {
	case accepted:
		return nil
	case last != "":
		return fmt.Errorf("accept the database: rows of transaction %s: %w", last, ErrNumbersAhead)
	}
	return ErrIsAuthority
}
