package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const foreignTransactions = `
select nonce, incident, tx_hash, block_number, block_hash, to_address, value_wei::text, data, call_digest,
       succeeded, receipt, node, read_at,
       coalesce((select p.req_id from payout_proof p where p.chain_id = split_part(submitter, ':', 2)::bigint and p.tx_hash = f.tx_hash limit 1), '')
  from foreign_transaction f
 where submitter = $1 and nonce >= $2 and nonce < $3
 order by nonce`

// ForeignTransactions lists the stored foreign transactions of the submitter with
// nonces from one on and below another, by nonce. It implements [txmanager.Store].
func (s *Store) ForeignTransactions(ctx context.Context, sub txmanager.Submitter, from, below uint64) ([]txmanager.ForeignTransaction, error) {
	all, err := results.All(ctx, s.db, scanForeign, foreignTransactions, sub, Bigint(from), Bigint(below))
	return all, results.Wrap(err, "read foreign transactions of %s", sub)
}

func scanForeign(row pgx.CollectableRow) (f txmanager.ForeignTransaction, err error) {
	var digest []byte
	err = row.Scan(&f.Nonce, &f.Incident, hashText{&f.Tx.Hash}, &f.Tx.BlockNumber, hashText{&f.Tx.BlockHash},
		&f.Tx.To, &f.Tx.ValueWei, &f.Tx.Data, &digest, &f.Succeeded, &f.Receipt, &f.Tx.Node, &f.ReadAt, &f.Proves)
	copy(f.CallDigest[:], digest)
	return f, err
}

// insertForeign stores the later reading if a reorg replaced a final foreign transaction. Once
// a release has used the first reading it stays: requests ended by it, and foreign_hold has
// the digest of its call.
const insertForeign = `
insert into foreign_transaction (submitter, nonce, incident, tx_hash, block_number, block_hash, to_address, value_wei, data,
                                 call_digest, succeeded, receipt, node)
values (@submitter, @nonce, @incident, @tx_hash, @block_number, @block_hash, @to_address, @value_wei::text::numeric, @data, @call_digest, @succeeded, @receipt::text::json, @node)
    on conflict (submitter, nonce) do update
   set (incident, tx_hash, block_number, block_hash, to_address, value_wei, data, call_digest, succeeded, receipt, node, read_at)
     = (excluded.incident, excluded.tx_hash, excluded.block_number, excluded.block_hash, excluded.to_address, excluded.value_wei,
        excluded.data, excluded.call_digest, excluded.succeeded, excluded.receipt, excluded.node, clock_timestamp())
 where foreign_transaction.tx_hash = excluded.tx_hash
    or not exists (select from protect_incident e
                    where e.submitter = foreign_transaction.submitter and e.incident >= foreign_transaction.incident and e.mode = 'resync')`

// demandForeign fails the batch by a division by zero if one of the transactions was not
// stored.
const demandForeign = `
select 1 / (case when count(*) = cardinality($2::bigint[]) then 1 else 0 end)
  from unnest($2::bigint[], $3::text[]) as r (nonce, hash)
  join foreign_transaction f on f.submitter = $1 and f.nonce = r.nonce and f.tx_hash = r.hash`

// StoreForeignTransactions implements [txmanager.Store].
func (s *Store) StoreForeignTransactions(ctx context.Context, l lease.Lease, all []txmanager.ForeignTransaction, scan *txmanager.ForeignScan) error {
	b := new(pgx.Batch)
	b.Queue(`select require_lease($1, $2, $3)`, l.Submitter, l.Owner, l.Token)
	var nonces []int64
	var hashes []string
	for _, f := range all {
		nonces, hashes = append(nonces, Bigint(f.Nonce)), append(hashes, f.Tx.Hash.String())
		b.Queue(insertForeign, NamedArgs{
			"submitter":    l.Submitter,
			"nonce":        Bigint(f.Nonce),
			"incident":     f.Incident,
			"tx_hash":      f.Tx.Hash.String(),
			"block_number": Bigint(f.Tx.BlockNumber),
			"block_hash":   f.Tx.BlockHash.String(),
			"to_address":   f.Tx.To,
			"value_wei":    f.Tx.ValueWei,
			"data":         f.Tx.Data,
			"call_digest":  f.CallDigest[:],
			"succeeded":    f.Succeeded,
			"receipt":      string(f.Receipt),
			"node":         f.Tx.Node,
		})
	}
	if len(all) > 0 {
		b.Queue(demandForeign, l.Submitter, nonces, hashes)
	}
	if r := scan; r != nil {
		b.Queue(moveForeignReading, l.Submitter, r.Incident, Bigint(r.Start), Bigint(r.Block), Bigint(r.Final), bigintOrNull(r.Again), r.Passes, r.EndedAt)
	}
	err := s.send(ctx, b)
	if results.Refusal(err).Code == noProofCode { // of demandForeign
		return txmanager.ErrForeignChanged
	}
	return err
}

const moveForeignReading = `
insert into foreign_reading (submitter, incident, start_block, block, final_block, again, passes, ended_at)
values ($1, $2, $3, $4, $5, $6, $7, $8)
    on conflict (submitter) do update
   set (incident, start_block, block, final_block, again, passes, ended_at, moved_at)
     = (excluded.incident, excluded.start_block, excluded.block, excluded.final_block, excluded.again, excluded.passes,
        excluded.ended_at, clock_timestamp())`

// foreignReading also finds the block where a reading begins: that of the last nonce below $3
// whose transaction is known.
const foreignReading = `
select r.submitter is not null, coalesce(r.start_block, 0), coalesce(r.block, 0), coalesce(r.final_block, 0), r.again, coalesce(r.passes, 0),
       r.ended_at, coalesce(r.moved_at, s.created_at), s.created_at, greatest(
         (select (m.receipt ->> 'blockNumber')::bigint from managed_tx m
           where m.submitter = s.submitter and m.nonce < $3 and not m.open and m.receipt is not null and m.recorded_nonce is null
           order by m.nonce desc limit 1),
         (select f.block_number from foreign_transaction f
           where f.submitter = s.submitter and f.nonce < $3
           order by f.nonce desc limit 1))
  from submitter s
  left join foreign_reading r on r.submitter = s.submitter and r.incident = $2
 where s.submitter = $1`

// ForeignScan implements [txmanager.Store].
func (s *Store) ForeignScan(ctx context.Context, sub txmanager.Submitter, incident int, from uint64) (txmanager.ForeignScan, error) {
	r := txmanager.ForeignScan{Incident: incident}
	err := s.db.QueryRow(ctx, foreignReading, sub, incident, Bigint(from)).Scan(&r.Begun, &r.Start, &r.Block, &r.Final, &r.Again, &r.Passes,
		&r.EndedAt, &r.MovedAt, &r.Registered, &r.TerminalBlock)
	return r, results.Wrap(err, "read how far blocks of %s were read", sub)
}
