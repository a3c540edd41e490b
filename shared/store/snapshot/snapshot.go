// Package snapshot reads journals in Postgres page by page. The cursor of such a journal is the set of
// transactions that its reader has seen. A sequence number would not do, since a lower one can be
// committed after a higher one was read.
package snapshot

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/store/internal/results"
)

// Unseen is the condition for rows that a reader with the snapshot $1 has not seen. Their column tx
// is the transaction that wrote them (xid8). An index on tx serves it.
const Unseen = `tx >= pg_snapshot_xmin($1::text::pg_snapshot) and not pg_visible_in_snapshot(tx, $1::text::pg_snapshot)`

// ReadPage reads about limit rows after a cursor in one round trip, as [conservation.Journal] has it. The statement has
// the parameters $1 of [Unseen] and the limit $2. It reads the rows in the order of their transactions' numbers. It never
// splits those of one transaction, so it may return a few more than limit. scan also sets tx, the number of the row's
// transaction: the next page begins behind the last one.
func ReadPage[Row any](
	ctx context.Context, db results.DB, after conservation.Cursor, limit int,
	statement string, scan func(row pgx.CollectableRow, tx *uint64) (Row, error),
) (rows []Row, next conservation.Cursor, more bool, err error) {
	seen, err := Parse(string(after))
	if err != nil {
		return nil, "", false, err
	}
	var text string
	var last uint64
	b := new(pgx.Batch)
	b.Queue(`begin isolation level repeatable read read only`) // every statement reads the same snapshot
	b.Queue(`select pg_current_snapshot()::text`).QueryRow(results.Scan(&text))
	b.Queue(statement, seen.String(), limit).Query(results.Into(&rows, func(row pgx.CollectableRow) (Row, error) { return scan(row, &last) }))
	b.Queue(`commit`)
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return nil, "", false, err
	}
	now, err := Parse(text)
	if err != nil {
		return nil, "", false, err
	}
	if more = len(rows) >= limit; more {
		now = seen.Upto(last, now)
	}
	return rows, conservation.Cursor(now.String()), more, nil
}

// Snapshot is the set of transactions below xmax without those that were in progress. Source:
// https://www.postgresql.org/docs/17/functions-info.html (pg_snapshot)
type Snapshot struct {
	xmax       uint64
	inProgress []uint64 // ascending, all below xmax
}

// Parse reads Postgres's notation; empty text is before everything.
func Parse(text string) (s Snapshot, err error) {
	if text == "" {
		return Snapshot{xmax: 1}, nil
	}
	wrong := fmt.Errorf("%q is not a snapshot", text)
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return s, wrong
	}
	if s.xmax, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return s, wrong
	}
	for one := range strings.FieldsFuncSeq(parts[2], func(r rune) bool { return r == ',' }) {
		xid, err := strconv.ParseUint(one, 10, 64)
		if err != nil {
			return s, wrong
		}
		s.inProgress = append(s.inProgress, xid)
	}
	return s, nil
}

// String returns s in Postgres's notation.
func (s Snapshot) String() string {
	xmin, texts := s.xmax, make([]string, len(s.inProgress))
	for i, xid := range s.inProgress {
		xmin, texts[i] = min(xmin, xid), strconv.FormatUint(xid, 10)
	}
	return fmt.Sprintf("%d:%d:%s", xmin, s.xmax, strings.Join(texts, ","))
}

// Upto returns s plus the transactions up to last that now sees. now is a later snapshot than s.
func (s Snapshot) Upto(last uint64, now Snapshot) Snapshot {
	if last == math.MaxUint64 {
		return now
	}
	inNow, _ := slices.BinarySearch(now.inProgress, last+1)
	inOld, _ := slices.BinarySearch(s.inProgress, last+1)
	return Snapshot{xmax: max(s.xmax, last+1), inProgress: slices.Concat(now.inProgress[:inNow], s.inProgress[inOld:])}
}
