package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/nonce"
)

const foreignTransactions = `
select nonce, episode, tx_hash, block_number, block_hash, to_address, value_wei::text, data, call_digest,
       succeeded, receipt, node, read_at
  from foreign_transaction
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
		&f.Succeeded, &f.Receipt, &f.Taker.Node, &f.ReadAt); err != nil {
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
// place of one that was final.
const insertForeign = `
insert into foreign_transaction (submitter, nonce, episode, tx_hash, block_number, block_hash, to_address, value_wei, data,
                                 call_digest, succeeded, receipt, node)
values ($1, $2, $3, $4, $5, $6, $7, $8::text::numeric, $9, $10, $11, $12::text::json, $13)
    on conflict (submitter, nonce) do update
   set (episode, tx_hash, block_number, block_hash, to_address, value_wei, data, call_digest, succeeded, receipt, node, read_at)
     = (excluded.episode, excluded.tx_hash, excluded.block_number, excluded.block_hash, excluded.to_address, excluded.value_wei,
        excluded.data, excluded.call_digest, excluded.succeeded, excluded.receipt, excluded.node, clock_timestamp())`

// StoreForeign implements [nonce.Book].
func (s *Store) StoreForeign(ctx context.Context, l lease.Lease, all []nonce.ForeignTransaction) error {
	b := new(pgx.Batch)
	b.Queue(`select hold_lease($1, $2, $3)`, l.Submitter, l.Owner, l.Token)
	for _, f := range all {
		var to *string
		if f.Taker.To != nil {
			to = textOrNull(strings.ToLower(f.Taker.To.String()))
		}
		b.Queue(insertForeign, l.Submitter, bigint(f.Nonce), f.Episode, f.Taker.Hash.String(), bigint(f.Taker.BlockNumber),
			f.Taker.BlockHash.String(), to, f.Taker.ValueWei, f.Taker.Data, f.CallDigest[:], f.Succeeded, string(f.Receipt), f.Taker.Node)
	}
	return s.send(ctx, b)
}
