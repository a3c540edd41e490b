// Package conservation stores the state of [conservation.Monitor] in Postgres: positions in the
// journals, sums, evidence, findings and halts.
package conservation

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/store/internal/results"
)

// Book is a [conservation.Store].
type Book struct{ db *pgxpool.Pool }

var _ conservation.Store = (*Book)(nil)

// New returns the book in the transfers' database. The caller closes db.
func New(db *pgxpool.Pool) *Book { return &Book{db: db} }

// supersededCode is the error code of the database's function conservation_advance.
const supersededCode = "FP008"

// resumable is the maximum age of a full run that another run continues.
const resumable = `interval '1 hour'`

// current returns the checkpoint from which runs continue. A restored or recreated database is not the
// one of its cursors.
const current = `
select generation, version, cursors, not is_current, clock_timestamp()
  from conservation_checkpoint
 where epoch = (select epoch from database_identity) and not over
   and case when $1 then begun_at > clock_timestamp() - ` + resumable + `
                      and generation > coalesce((select generation from conservation_checkpoint where is_current), 0)
            else is_current end
 order by generation desc
 limit 1`

const begin = `
insert into conservation_checkpoint (epoch, over)
select epoch, false from database_identity
returning generation, version, cursors, true, clock_timestamp()`

// Begin returns the checkpoint from which a run continues. Without a current one an incremental run
// becomes a full one.
func (b *Book) Begin(ctx context.Context, full bool) (c conservation.Checkpoint, err error) {
	for _, try := range []struct {
		statement string
		args      []any
	}{{current, []any{full}}, {current, []any{true}}, {begin, nil}} {
		err = b.db.QueryRow(ctx, try.statement, try.args...).Scan(&c.Generation, &c.Version, &c.Cursors, &c.Full, &c.Began)
		if !errors.Is(err, pgx.ErrNoRows) {
			break
		}
	}
	return c, results.Wrap(err, "find the checkpoint")
}

// at reads from one snapshot in which the checkpoint is unchanged.
func (b *Book) at(ctx context.Context, c conservation.Checkpoint, read func(pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, b.db, options, func(tx pgx.Tx) error {
		var version int64
		err := tx.QueryRow(ctx, `select version from conservation_checkpoint where generation = $1`, c.Generation).Scan(&version)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && version != c.Version {
			return conservation.ErrSuperseded
		}
		if err != nil {
			return err
		}
		return read(tx)
	})
}

// rowsPerStatement bounds the rows of one statement, so that it ends before its time-out.
const rowsPerStatement = 20_000

// ReadSums reads the sums of accounts: each row of the statement has a user, an asset and a sum as a text. The
// statement reads the accounts after user $1 and asset $2 in their order, $3 at most.
func ReadSums(ctx context.Context, tx pgx.Tx, statement string, args ...any) (map[conservation.Account]conservation.Sum, error) {
	all := map[conservation.Account]conservation.Sum{}
	var last conservation.Account
	for {
		rows := results.Query(ctx, tx, statement, append([]any{last.UserID, last.AssetID, rowsPerStatement}, args...)...)
		before := len(all)
		var units string
		_, err := pgx.ForEachRow(rows, []any{&last.UserID, &last.AssetID, &units}, func() (err error) {
			all[last], err = conservation.ParseSum(units)
			return err
		})
		if err != nil || len(all)-before < rowsPerStatement {
			return all, err
		}
	}
}

// Sums returns a side's sums.
func (b *Book) Sums(ctx context.Context, c conservation.Checkpoint, side conservation.Side) (all map[conservation.Account]conservation.Sum, err error) {
	err = b.at(ctx, c, func(tx pgx.Tx) (err error) {
		all, err = ReadSums(ctx, tx, `
select user_id, asset_id, units::text
  from conservation_sum
 where (user_id, asset_id) > ($1, $2) and generation = $4 and side = $5
 order by user_id, asset_id
 limit $3`, c.Generation, side)
		return err
	})
	return all, results.Wrap(err, "read the sums of %s", side)
}

// retire also supersedes runs that still use the generation to be deleted.
const retire = `
update conservation_checkpoint
   set is_current = false, version = version + 1
 where generation < $1`

// righted closes findings from before the full run, which has checked everything and did not find them.
const righted = `
delete from conservation_standing
 where seen < $1`

// Finish makes c the checkpoint from which runs continue. Findings of a run that began later stay open.
// Then it deletes a part of the old generations.
func (b *Book) Finish(ctx context.Context, c conservation.Checkpoint) error {
	err := pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		var newest int64
		err := tx.QueryRow(ctx, `select generation from conservation_checkpoint where is_current for update`).Scan(&newest)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) || newest > c.Generation {
			return results.Missing(err, nil)
		}
		if _, err := tx.Exec(ctx, retire, c.Generation); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, righted, c.Generation); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `update conservation_checkpoint set is_current = true where generation = $1`, c.Generation)
		return err
	})
	if err == nil {
		err = b.forget(ctx)
	}
	return results.Wrap(err, "finish the full check %d", c.Generation)
}

// deletesPerStatement bounds the rows of old generations that one statement deletes.
const deletesPerStatement = 10_000

// forget deletes generations before the current one, a limited number of rows at a time.
func (b *Book) forget(ctx context.Context) error {
	for _, table := range []string{"conservation_request", "conservation_sum", "conservation_scale"} {
		statement := `
delete from ` + table + `
 where ctid = any (array(select ctid from ` + table + `
        where generation < (select generation from conservation_checkpoint where is_current) limit $1))`
		for {
			tag, err := b.db.Exec(ctx, statement, deletesPerStatement)
			if err != nil {
				return fmt.Errorf("delete old generations: %w", err)
			}
			if tag.RowsAffected() < deletesPerStatement {
				break
			}
		}
	}
	_, err := b.db.Exec(ctx, `
delete from conservation_checkpoint c
 where generation < (select generation from conservation_checkpoint where is_current)
   and not exists (select from conservation_request r where r.generation = c.generation)
   and not exists (select from conservation_sum s where s.generation = c.generation)
   and not exists (select from conservation_scale s where s.generation = c.generation)`)
	return err
}
