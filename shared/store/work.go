package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/nonce"
)

const loadSubmitter = `
select clock_timestamp(), s.max_in_flight, s.status <> 'ACTIVE', c.next_nonce,
       coalesce(c.final_block_number, 0), c.final_blocks, c.suspicion,
       coalesce(p.episode, 0), case when p.evidence ? 'why' then p.evidence end,
       (select min(m.set_aside_nonce) from managed_tx m
         where m.submitter = s.submitter and m.state = 'QUEUED' and m.set_aside_nonce is not null and not ` + notAside + `),
       is_authority()
  from submitter s
  join submitter_nonce_cursor c using (submitter)
  left join protect_episode p on p.submitter = s.submitter and p.closed_at is null
 where s.submitter = $1`

const txColumns = `
       m.tx_id, m.submitter, m.request_id, m.seq, m.payload, m.state, coalesce(m.sub_state, ''), m.nonce,
       m.set_aside_nonce, coalesce(m.raw_tx_hex, ''), m.last_gas_params, m.first_submit_at, m.last_submit_at,
       m.next_resubmit_at, m.submit_attempts, m.last_receipt_check_at, m.next_check_at,
       coalesce(m.last_error, ''), m.receipt, m.confirmations,
       array(select v.tx_hash from tx_version v where v.tx_id = m.tx_id order by v.version),
       array(select v.tx_hash from tx_version v where v.tx_id = m.tx_id and v.kind = 'PLACEHOLDER' order by v.version),
       coalesce(m.ordered, ''), coalesce(m.handler, '')`

const unsettledStates = `('IN_FLIGHT', 'SUBMITTED', 'TRACKING', 'STUCK', 'PROTECT')`

const loadUnsettled = `
select` + txColumns + `
  from managed_tx m
 where m.submitter = $1 and m.state in ` + unsettledStates + `
 order by m.nonce`

// notAside says of a queued m that nothing it was set aside for is unsettled.
const notAside = `(m.set_aside_nonce is null or not exists (
       select from managed_tx u
        where u.submitter = m.submitter and u.state in ` + unsettledStates + ` and u.nonce <= m.set_aside_nonce))`

// loadQueue reads one row more than may be used, to know whether there is more.
const loadQueue = `
select` + txColumns + `
  from managed_tx m
 where m.submitter = $1 and m.state = 'QUEUED'
   and ` + notAside + `
 order by m.seq
 limit 1 + case when $2 then (select max_in_flight from submitter where submitter = $1) else 1 end`

// queueLoad adds the load of a submitter's work to a batch. It stands after the
// statement that locks the lease, never in it: a snapshot is as old as its
// statement, and a lock may have been waited for.
func queueLoad(b *pgx.Batch, sub nonce.Submitter, wide bool, w *nonce.Work) {
	b.Queue(loadSubmitter, sub).QueryRow(func(row pgx.Row) error {
		var ours bool
		err := row.Scan(&w.Now, &w.Window, &w.Suspended, &w.NextNonce, &w.FinalHead, &w.FinalBlocks, &w.Suspicion,
			&w.Episode, &w.Evidence, &w.AsideUntil, &ours)
		w.Protected, w.Foreign = w.Episode != 0 || !ours, !ours
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%s: %w", sub, ErrUnknownSubmitter)
		}
		return err
	})
	b.Queue(loadUnsettled, sub).Query(func(rows pgx.Rows) (err error) {
		w.Unsettled, err = pgx.CollectRows(rows, scanTx)
		return err
	})
	b.Queue(loadQueue, sub, wide).Query(func(rows pgx.Rows) error {
		queue, err := pgx.CollectRows(rows, scanTx)
		limit := 1
		if wide {
			limit = int(w.Window)
		}
		w.QueueMore = len(queue) > limit
		w.Queue = queue[:min(len(queue), limit)]
		return err
	})
}

func scanTx(row pgx.CollectableRow) (nonce.Tx, error) {
	var t nonce.Tx
	var raw string
	var gas, receipt, confirmations []byte
	var hashes, placeholders []string
	err := row.Scan(&t.ID, &t.Submitter, &t.RequestID, &t.Seq, &t.Payload, &t.State, &t.Sub, &t.Nonce,
		&t.SetAsideNonce, &raw, &gas, &t.FirstSubmitAt, &t.LastSubmitAt,
		&t.NextResubmitAt, &t.SubmitAttempts, &t.LastCheckAt, &t.NextCheckAt,
		&t.LastError, &receipt, &confirmations, &hashes, &placeholders, &t.Ordered, &t.Handler)
	if err != nil {
		return t, err
	}
	if t.Raw, err = fromHex(raw); err != nil {
		return t, err
	}
	if t.Versions, err = parseHashes(hashes); err != nil {
		return t, err
	}
	if t.Placeholders, err = parseHashes(placeholders); err != nil {
		return t, err
	}
	return t, errors.Join(fromJSON(gas, &t.Gas), fromJSON(receipt, &t.Receipt), fromJSON(confirmations, &t.Confirmations))
}

func parseHashes(texts []string) (list []nonce.Hash, err error) {
	for _, text := range texts {
		h, err := nonce.ParseHash(text)
		if err != nil {
			return nil, err
		}
		list = append(list, h)
	}
	return list, nil
}

func fromJSON(text []byte, into any) error {
	if text == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// micros drops what Postgres would not keep.
func micros(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	r := t.Truncate(time.Microsecond)
	return &r
}

// bigint is n as Postgres keeps it. A nonce beyond it cannot be (EIP-2681
// bounds nonces by 2^64 - 2; 2^63 transactions are out of anyone's reach).
func bigint(n uint64) int64 {
	return int64(min(n, math.MaxInt64))
}
