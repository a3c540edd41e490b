package transfers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Transition is one line of a transfer's history. The first has no From.
type Transition struct {
	At         time.Time
	From       *transfer.State
	State      transfer.State
	Reason     transfer.Reason
	RetryCount int // at the time of the transition
}

// Story holds all records about a transfer, for operators.
type Story struct {
	Transfer    transfer.Transfer
	History     []Transition // in order
	Resolutions []Resolution // in order

	Acknowledged []Acknowledgement // in order: the newest counts
}

const history = `
select h.at, h.from_state, h.state, coalesce(h.reason, ''), h.retry_count
  from transfer_history h
 where h.transfer_id = (select transfer_id from transfers_tb where req_id = $1)
 order by h.id`

const resolutions = `
select r.op, r.by, r.reason, r.at, coalesce(r.verdict, ''), coalesce(r.verdict_reason, ''), r.answered_at,
       coalesce(r.outcome, ''), coalesce(r.line::text, '')
  from transfer_resolution r
 where r.transfer_id = (select transfer_id from transfers_tb where req_id = $1)
 order by r.id`

const acknowledgements = `
select k.state, k.by, k.reason, k.at, k.until
  from transfer_acknowledgement k
 where k.transfer_id = (select transfer_id from transfers_tb where req_id = $1)
 order by k.id`

// Why returns the records about the transfer, in one round trip. The error wraps [transfer.ErrNotFound]
// if there is none.
func (s *Store) Why(ctx context.Context, reqID string) (Story, error) {
	var story Story
	b := new(pgx.Batch)
	b.Queue(history, reqID).Query(func(rows pgx.Rows) (err error) {
		story.History, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Transition])
		return err
	})
	b.Queue(resolutions, reqID).Query(func(rows pgx.Rows) (err error) {
		story.Resolutions, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Resolution])
		return err
	})
	b.Queue(acknowledgements, reqID).Query(func(rows pgx.Rows) (err error) {
		story.Acknowledged, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Acknowledgement])
		return err
	})
	b.Queue(byReqID, reqID).QueryRow(func(row pgx.Row) (err error) {
		story.Transfer, err = scanTransfer(row)
		return err
	})
	err := s.send(ctx, b)
	if errors.Is(err, pgx.ErrNoRows) {
		err = transfer.ErrNotFound
	}
	if err != nil {
		return Story{}, fmt.Errorf("read the history of transfer %s: %w", reqID, err)
	}
	return story, nil
}
