package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

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
	hashes := make([]string, len(blocks))
	for i, h := range blocks {
		hashes[i] = h.String()
	}
	rows, err := s.db.Query(ctx, finals, sub, hashes)
	if err != nil {
		return nil, fmt.Errorf("read final transactions of %s: %w", sub, err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f txmanager.FinalTx, err error) {
		var hash string
		if err := row.Scan(&f.ID, &f.Nonce, &hash, &f.Succeeded, &f.Raw); err != nil {
			return f, err
		}
		if f.Raw == nil {
			return f, errArchived(f.ID)
		}
		f.Hash, err = txmanager.ParseHash(hash)
		return f, err
	})
}

// finalBlocks are the highest final blocks of all submitters of a chain from a
// height on, each once.
const finalBlocks = `
select distinct (final_blocks -> -1 ->> 'number')::bigint, final_blocks -> -1 ->> 'hash'
  from submitter_nonce_cursor
 where submitter like 'eip155:' || $1::text || ':%'
   and (final_blocks -> -1 ->> 'number')::bigint >= $2
 order by 1`

// FinalBlocks lists the highest final block of each submitter of the chain, from
// the height on, each block once.
func (s *Store) FinalBlocks(ctx context.Context, chainID, from uint64) ([]txmanager.Header, error) {
	rows, err := s.db.Query(ctx, finalBlocks, fmt.Sprint(chainID), Bigint(from))
	if err != nil {
		return nil, fmt.Errorf("read the last final blocks: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (h txmanager.Header, err error) {
		var hash string
		if err := row.Scan(&h.Number, &hash); err != nil {
			return h, err
		}
		h.Hash, err = txmanager.ParseHash(hash)
		return h, err
	})
}

// FinalIn lists the submitters whose highest final block is this one.
func (s *Store) FinalIn(ctx context.Context, h txmanager.Header) ([]txmanager.Submitter, error) {
	rows, err := s.db.Query(ctx, `
		select submitter
		  from submitter_nonce_cursor
		 where (final_blocks -> -1 ->> 'number')::bigint = $1 and final_blocks -> -1 ->> 'hash' = $2`,
		Bigint(h.Number), h.Hash.String())
	if err != nil {
		return nil, fmt.Errorf("read the submitters with a final transaction in block %d: %w", h.Number, err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[txmanager.Submitter])
}
