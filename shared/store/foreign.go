package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/nonce"
)

const foreignTransactions = `
select nonce, episode, tx_hash, block_number, block_hash, to_address, value_wei::text, data, call_digest,
       succeeded, receipt, node, read_at,
       coalesce((select p.req_id from payout_proof p where p.chain_id = split_part(submitter, ':', 2)::bigint and p.tx_hash = f.tx_hash limit 1), '')
  from foreign_transaction f
 where submitter = $1 and nonce >= $2 and nonce < $3
 order by nonce`

// ForeignTransactions lists the stored foreign transactions of the submitter with
// nonces from one on and below another, by nonce. It implements [nonce.Book].
func (s *Store) ForeignTransactions(ctx context.Context, sub nonce.Submitter, from, below uint64) ([]nonce.ForeignTransaction, error) {
	rows, err := s.db.Query(ctx, foreignTransactions, sub, bigint(from), bigint(below))
	if err != nil {
		return nil, fmt.Errorf("read foreign transactions of %s: %w", sub, err)
	}
	return pgx.CollectRows(rows, scanForeign)
}

func scanForeign(row pgx.CollectableRow) (f nonce.ForeignTransaction, err error) {
	var hash, block string
	var to *string
	var digest []byte
	if err := row.Scan(&f.Nonce, &f.Episode, &hash, &f.Taker.BlockNumber, &block, &to, &f.Taker.ValueWei, &f.Taker.Data, &digest,
		&f.Succeeded, &f.Receipt, &f.Taker.Node, &f.ReadAt, &f.Proves); err != nil {
		return f, err
	}
	copy(f.CallDigest[:], digest)
	if to != nil {
		address, err := nonce.ParseAddress(*to)
		if err != nil {
			return f, err
		}
		f.Taker.To = &address
	}
	var errHash, errBlock error
	f.Taker.Hash, errHash = nonce.ParseHash(hash)
	f.Taker.BlockHash, errBlock = nonce.ParseHash(block)
	return f, errors.Join(errHash, errBlock)
}

// insertForeign keeps what was read later, where a reorg put another transaction in the
// place of one that was final; but not once a release has judged by that one: its requests
// ended by it, and foreign_hold has the digest of its call.
const insertForeign = `
insert into foreign_transaction (submitter, nonce, episode, tx_hash, block_number, block_hash, to_address, value_wei, data,
                                 call_digest, succeeded, receipt, node)
values ($1, $2, $3, $4, $5, $6, $7, $8::text::numeric, $9, $10, $11, $12::text::json, $13)
    on conflict (submitter, nonce) do update
   set (episode, tx_hash, block_number, block_hash, to_address, value_wei, data, call_digest, succeeded, receipt, node, read_at)
     = (excluded.episode, excluded.tx_hash, excluded.block_number, excluded.block_hash, excluded.to_address, excluded.value_wei,
        excluded.data, excluded.call_digest, excluded.succeeded, excluded.receipt, excluded.node, clock_timestamp())
 where foreign_transaction.tx_hash = excluded.tx_hash
    or not exists (select from protect_episode e
                    where e.submitter = foreign_transaction.submitter and e.episode >= foreign_transaction.episode and e.mode = 'resync')`

// demandForeign ends the batch by a division by zero where one was not stored.
const demandForeign = `
select 1 / (case when count(*) = cardinality($2::bigint[]) then 1 else 0 end)
  from unnest($2::bigint[], $3::text[]) as r (nonce, hash)
  join foreign_transaction f on f.submitter = $1 and f.nonce = r.nonce and f.tx_hash = r.hash`

// StoreForeign implements [nonce.Book].
func (s *Store) StoreForeign(ctx context.Context, l lease.Lease, all []nonce.ForeignTransaction) error {
	return changed(s.send(ctx, foreignBatch(l, all)))
}

// changed is what a division by zero of demandForeign means.
func changed(err error) error {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == noProofCode {
		return nonce.ErrForeignChanged
	}
	return err
}

func foreignBatch(l lease.Lease, all []nonce.ForeignTransaction) *pgx.Batch {
	b := new(pgx.Batch)
	b.Queue(`select hold_lease($1, $2, $3)`, l.Submitter, l.Owner, l.Token)
	var nonces []int64
	var hashes []string
	for _, f := range all {
		nonces, hashes = append(nonces, bigint(f.Nonce)), append(hashes, f.Taker.Hash.String())
		var to *string
		if f.Taker.To != nil {
			to = textOrNull(strings.ToLower(f.Taker.To.String()))
		}
		b.Queue(insertForeign, l.Submitter, bigint(f.Nonce), f.Episode, f.Taker.Hash.String(), bigint(f.Taker.BlockNumber),
			f.Taker.BlockHash.String(), to, f.Taker.ValueWei, f.Taker.Data, f.CallDigest[:], f.Succeeded, string(f.Receipt), f.Taker.Node)
	}
	if len(all) > 0 {
		b.Queue(demandForeign, l.Submitter, nonces, hashes)
	}
	return b
}

// foreignReading finds also where a reading begins: at the block of the last nonce below
// $3 whose transaction is known.
const foreignReading = `
select r.submitter is not null, coalesce(r.start_block, 0), coalesce(r.block, 0), coalesce(r.final_block, 0), r.again, coalesce(r.passes, 0),
       r.ended_at, coalesce(r.moved_at, s.created_at), s.created_at, greatest(
         (select (m.receipt ->> 'blockNumber')::bigint from managed_tx m
           where m.submitter = s.submitter and m.nonce < $3 and not m.unsettled and m.receipt is not null and m.recorded_nonce is null
           order by m.nonce desc limit 1),
         (select f.block_number from foreign_transaction f
           where f.submitter = s.submitter and f.nonce < $3
           order by f.nonce desc limit 1))
  from submitter s
  left join foreign_reading r on r.submitter = s.submitter and r.episode = $2
 where s.submitter = $1`

// ForeignReading implements [nonce.Book].
func (s *Store) ForeignReading(ctx context.Context, sub nonce.Submitter, episode int, from uint64) (nonce.ForeignReading, error) {
	r := nonce.ForeignReading{Episode: episode}
	err := s.db.QueryRow(ctx, foreignReading, sub, episode, bigint(from)).Scan(&r.Begun, &r.Start, &r.Block, &r.Final, &r.Again, &r.Passes,
		&r.EndedAt, &r.MovedAt, &r.Registered, &r.Settled)
	if err != nil {
		return r, fmt.Errorf("read how far blocks of %s were read: %w", sub, err)
	}
	return r, nil
}

const moveForeignReading = `
insert into foreign_reading (submitter, episode, start_block, block, final_block, again, passes, ended_at)
values ($1, $2, $3, $4, $5, $6, $7, $8)
    on conflict (submitter) do update
   set (episode, start_block, block, final_block, again, passes, ended_at, moved_at)
     = (excluded.episode, excluded.start_block, excluded.block, excluded.final_block, excluded.again, excluded.passes,
        excluded.ended_at, clock_timestamp())`

// StoreForeignRead implements [nonce.Book].
func (s *Store) StoreForeignRead(ctx context.Context, l lease.Lease, found []nonce.ForeignTransaction, r nonce.ForeignReading) error {
	b := foreignBatch(l, found)
	var again *int64
	if r.Again != nil {
		again = new(bigint(*r.Again))
	}
	b.Queue(moveForeignReading, l.Submitter, r.Episode, bigint(r.Start), bigint(r.Block), bigint(r.Final), again, r.Passes, r.EndedAt)
	return changed(s.send(ctx, b))
}
