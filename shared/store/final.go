package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// finals reads back only as far as the remembered blocks can have transactions: one window's
// width for each block.
const finals = `
select last.tx_id, last.nonce, last.tx_hash, (last.receipt ->> 'succeeded')::boolean,
       (select d.bytes
          from tx_version v
          join tx_document d on d.tx_id = last.tx_id and d.name = 'version:' || v.version
         where v.tx_hash = last.tx_hash)
  from (select tx_id, nonce, tx_hash, receipt, state
          from managed_tx
         where submitter = $1 and nonce is not null and receipt is not null and recorded_nonce is null
         order by nonce desc
         limit (select 101 * greatest(max_in_flight, 1000) from submitter where submitter = $1)) as last
 where last.state in ('CONFIRMED', 'FAILED') and last.receipt ->> 'blockHash' = any($2)
 order by last.nonce`

// FinalTransactions implements [txmanager.Store].
func (s *Store) FinalTransactions(ctx context.Context, sub txmanager.Submitter, blocks []txmanager.Hash) ([]txmanager.FinalTx, error) {
	all, err := results.All(ctx, s.db, func(row pgx.CollectableRow) (f txmanager.FinalTx, err error) {
		err = row.Scan(&f.ID, &f.Nonce, hashText{&f.Hash}, &f.Succeeded, &f.Raw)
		if err == nil && f.Raw == nil {
			err = errArchived(f.ID)
		}
		return f, err
	}, finals, sub, each(blocks, func(h *txmanager.Hash) string { return h.String() }))
	return all, results.Wrap(err, "read final transactions of %s", sub)
}

// finalBlocks are the highest final blocks of all submitters of a chain from a
// height on, each once.
const finalBlocks = `
select distinct (final_blocks -> -1 ->> 'number')::bigint, final_blocks -> -1 ->> 'hash'
  from submitter_nonce_cursor
 where split_part(submitter, ':', 1) = $1 and split_part(submitter, ':', 2) = $2::text
   and (final_blocks -> -1 ->> 'number')::bigint >= $3
 order by 1`

// FinalBlocks lists the highest final block of each submitter of the chain, from
// the height on, each block once.
func (s *Store) FinalBlocks(ctx context.Context, namespace string, chainID, from uint64) ([]txmanager.Header, error) {
	all, err := results.All(ctx, s.db, func(row pgx.CollectableRow) (h txmanager.Header, err error) {
		err = row.Scan(&h.Number, hashText{&h.Hash})
		return h, err
	}, finalBlocks, namespace, fmt.Sprint(chainID), Bigint(from))
	return all, results.Wrap(err, "read the last final blocks")
}

// FinalIn lists the submitters whose highest final block is this one.
func (s *Store) FinalIn(ctx context.Context, h txmanager.Header) ([]txmanager.Submitter, error) {
	all, err := results.All(ctx, s.db, pgx.RowTo[txmanager.Submitter], `
		select submitter
		  from submitter_nonce_cursor
		 where (final_blocks -> -1 ->> 'number')::bigint = $1 and final_blocks -> -1 ->> 'hash' = $2`, Bigint(h.Number), h.Hash.String())
	return all, results.Wrap(err, "read the submitters with a final transaction in block %d", h.Number)
}

// Spent is a final transaction and what it cost.
type Spent struct {
	At      time.Time // when it was final
	Value   string    // in wei, of what was carried out
	Receipt []byte    // as the node gave it
}

// spending reads the submitter's newest nonces, and of those that were final within a day the mined version
// and its receipt, unless they are archived.
const spending = `
select m.confirmed_at, case when m.state = 'CONFIRMED' then coalesce(d.body ->> 'value', '0') else '0' end, r.body::text::bytea
  from (select * from managed_tx m where m.submitter = $1 and m.nonce is not null order by m.nonce desc limit 50) as m
  join tx_version v on v.tx_hash = m.receipt ->> 'txHash'
  join tx_document d on d.tx_id = m.tx_id and d.name = 'version:' || v.version
  join tx_document r on r.tx_id = m.tx_id and r.name = 'receipt:' || (m.receipt ->> 'blockHash')
 where m.confirmed_at > clock_timestamp() - interval '1 day'
 order by m.nonce desc`

// Spending lists up to 50 final transactions of the last day, the newest first, and the database's time.
func (s *Store) Spending(ctx context.Context, sub txmanager.Submitter) (all []Spent, now time.Time, err error) {
	all, now, err = results.AllNow(ctx, s.db, pgx.RowToStructByPos[Spent], spending, sub)
	return all, now, results.Wrap(err, "read what %s spent", sub)
}
