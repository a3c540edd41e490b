package conservation

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
)

const readings = `
select s.submitter, extract(epoch from case when $1::float8 > 0 then greatest(s.created_at, clock_timestamp() - make_interval(secs => $1)) else s.created_at end)::bigint,
       c.submitter is null, coalesce(c.start_block, 0), coalesce(c.block, 0), coalesce(c.block_hash, ''),
       coalesce(c.sent, 0), coalesce(c.pass, 1),
       array(select distinct token from (select unnest(c.tokens) union select a.token_contract from assets_tb a where a.payout_submitter = s.submitter) as known (token)
              where token is not null)
  from submitter s
  left join conservation_chain c using (submitter)
 where s.callers = array['transfer'] or c.submitter is not null
 order by c.read_at nulls first, s.submitter`

// Readings returns the payers with their positions, the one that was read longest ago first. The
// registration of a payer that was never read counts as at most history ago; 0: as long ago as it was.
func (b *Book) Readings(ctx context.Context, history time.Duration) ([]conservation.ChainReading, error) {
	all, err := results.All(ctx, b.db, pgx.RowToStructByPos[conservation.ChainReading], readings, history.Seconds())
	return all, results.Wrap(err, "list the payers")
}

const (
	beginReading = `
insert into conservation_chain (submitter, start_block, block, block_hash, sent, final_block, tokens)
values ($1, $2, $3, $4, $5, $6, $7)
    on conflict on constraint one_reading_per_payer do nothing`
	advanceReading = `
update conservation_chain
   set block = $3::bigint, block_hash = $4, sent = $5, final_block = $6::bigint, tokens = $7,
       read_at = case when $3::bigint >= $6::bigint then clock_timestamp() else read_at end
 where submitter = $1 and block = $2 and pass = $8`
	// A payment that is in another block since a reorg is evaluated again.
	putPayment = `
insert into conservation_payment (submitter, tx_hash, log_index, pass, block_number, block_hash, token, recipient, amount)
values (@submitter, @tx_hash, @log_index, @pass, @block_number, @block_hash, @token, @recipient, @amount::text::numeric)
    on conflict on constraint one_row_per_payment do update
   set pass = excluded.pass, block_number = excluded.block_number, block_hash = excluded.block_hash`
)

// Unread returns for each chain the time since the payer that is farthest behind was last read up to
// the last final block.
func (b *Book) Unread(ctx context.Context) (map[uint64]time.Duration, error) {
	all, id, seconds := map[uint64]time.Duration{}, uint64(0), 0.0
	keep := func() { all[id] = time.Duration(seconds * float64(time.Second)) }
	err := results.ForEach(ctx, b.db, []any{&id, &seconds}, keep, `
select split_part(s.submitter, ':', 2)::bigint, greatest(0, max(extract(epoch from clock_timestamp() - coalesce(c.read_at, s.created_at))))::float8
  from submitter s
  left join conservation_chain c using (submitter)
 where s.callers = array['transfer'] or c.submitter is not null
 group by 1`)
	return all, results.Wrap(err, "read how far chains were read")
}

// BeginReading stores the block after which a payer's reading begins.
func (b *Book) BeginReading(ctx context.Context, r conservation.ChainReading) error {
	_, err := b.db.Exec(ctx, beginReading, r.Submitter, r.Start, r.Block, r.BlockHash, r.Sent, r.Block, r.Tokens)
	return results.Wrap(err, "begin to read the payments of %s", r.Submitter)
}

// StoreReading stores the payments that were read after from, in one commit. stored is false, and
// nothing is stored, if another run of the check was faster.
func (b *Book) StoreReading(ctx context.Context, from, to conservation.ChainReading, final uint64, found []chain.Payment) (stored bool, err error) {
	err = pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, advanceReading, from.Submitter, from.Block, to.Block, to.BlockHash, to.Sent, final, to.Tokens, from.Pass)
		if stored = tag.RowsAffected() > 0; err != nil || !stored {
			return err
		}
		batch := new(pgx.Batch)
		for _, p := range found {
			batch.Queue(putPayment, store.NamedArgs{
				"submitter": from.Submitter, "pass": from.Pass, "tx_hash": p.TxHash.String(), "log_index": p.LogIndex,
				"block_number": p.BlockNumber, "block_hash": p.BlockHash.String(), "token": p.Token, "recipient": p.To, "amount": p.Amount.String(),
			})
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	return stored && err == nil, results.Wrap(err, "store the payments of %s", from.Submitter)
}

// GoBack records that a block which was read has another hash now, and makes all blocks be read again.
func (b *Book) GoBack(ctx context.Context, r conservation.ChainReading, start string, evidence json.RawMessage) error {
	batch := new(pgx.Batch)
	batch.Queue("begin")
	batch.Queue(`
update conservation_chain
   set reorged_block = coalesce(reorged_block, $4), block = start_block, block_hash = $5, sent = 0, pass = pass + 1
 where submitter = $1 and block = $2 and pass = $3`, r.Submitter, r.Block, r.Pass, evidence, start)
	batch.Queue(`update conservation_payment set outcome = null, req_id = null where submitter = $1 and outcome is not null`, r.Submitter)
	batch.Queue(`
update conservation_owed o
   set paid = false
  from transfers_tb t
 where t.req_id = o.req_id and t.payout_submitter = $1 and o.paid`, r.Submitter)
	batch.Queue("commit")
	err := b.db.SendBatch(ctx, batch).Close()
	return results.Wrap(err, "record that the chain of %s went back", r.Submitter)
}

// Reopen makes all payments be evaluated again.
func (b *Book) Reopen(ctx context.Context) error {
	batch := new(pgx.Batch)
	batch.Queue(`update conservation_chain set reorged_block = null where reorged_block is not null`)
	batch.Queue(`update conservation_payment set outcome = null, req_id = null where outcome is not null`)
	batch.Queue(`update conservation_owed set paid = false where paid`)
	err := b.db.SendBatch(ctx, batch).Close()
	return results.Wrap(err, "evaluate all payments again")
}

// unexplained reads unsettled payments, with the record that claims each: a stored version of a
// request, a proof, a release from PROTECT or an operator.
const unexplained = `
select p.submitter, p.tx_hash, p.log_index, p.block_number, coalesce(p.token, ''), coalesce(p.recipient, ''), p.amount::text,
       coalesce((select a.asset_id from assets_tb a where a.payout_submitter = p.submitter and a.token_contract is not distinct from p.token order by a.asset_id limit 1), 0),
       x.found is not null, coalesce(x.req_id, ''), coalesce(x.ordered, false),
       coalesce(t.user_id, 0), coalesce(t.asset_id, 0), coalesce(t.state, 0), coalesce(t.payout_token, ''), coalesce(t.payout_address, ''), coalesce(t.payout_base_units::text, ''),
       t.req_id is not null,
       exists (select from payout_proof d where d.req_id = t.req_id and d.log_index = -2)
         or exists (select from payout_statement n where n.req_id = t.req_id and n.acted_at is not null and n.of_confirmed),
       x.found is null and exists (
         select from transfers_tb w, identity_change c
          where w.open and w.payout_submitter = p.submitter and w.payout_token is not distinct from p.token and w.payout_address = p.recipient
            and w.payout_base_units = p.amount and (c.at >= w.created_at or c.transfers_upto >= w.transfer_id)),
       exists (select from conservation_payment o join conservation_chain oc using (submitter)
                where o.req_id = t.req_id and o.outcome = 'PAID' and o.pass = oc.pass and (o.submitter, o.tx_hash, o.log_index) <> (p.submitter, p.tx_hash, p.log_index))
  from conservation_payment p
  join conservation_chain c on c.submitter = p.submitter and c.pass = p.pass
  left join lateral (
       select true as found, m.request_id as req_id, m.caller = 'transfer' as ordered, 1 as rank
         from tx_version v join managed_tx m using (tx_id)
        where v.tx_hash = p.tx_hash
       union all
       select true, r.req_id, true, 2 from payout_proof r where r.tx_hash = p.tx_hash and r.log_index in (p.log_index, -2)
       union all
       select true, case when h.outcome = 'MATCHED' then (select m.request_id from managed_tx m where m.tx_id = h.tx_id) end, false, 3
         from foreign_transaction f join foreign_hold h using (submitter, nonce)
        where f.submitter = p.submitter and f.tx_hash = p.tx_hash and h.ended_at is not null
       union all
       select true, e.released -> 'requests' ->> f.nonce::text, false, 4
         from foreign_transaction f join protect_incident e using (submitter, incident)
        where f.submitter = p.submitter and f.tx_hash = p.tx_hash and e.released -> 'requests' ->> f.nonce::text <> 'none'
       order by rank
       limit 1) as x on true
  left join transfers_tb t on t.req_id = x.req_id and t.payout_submitter = p.submitter
 where p.outcome is null
 order by p.block_number, p.tx_hash, p.log_index
 limit $1`

const settlePayment = `
update conservation_payment
   set outcome = nullif($4, ''), req_id = nullif($5, '')
 where submitter = $1 and tx_hash = $2 and log_index = $3`

// owedPayouts reads payouts whose payment was not found. The block of a payment is in its proof;
// without a proof it is at most the last final block. Another run of the check may read further
// meanwhile, or reopen settled payments. A payout whose transaction was read and is just not evaluated
// is not missing its payment.
const owedPayouts = `
select o.req_id, t.user_id, t.asset_id, coalesce(r.block_number, (m.receipt ->> 'blockNumber')::numeric::bigint, o.due),
       c.start_block, c.block, c.final_block,
       coalesce(r.log_index = -2, false) or coalesce(pay.paid, false), coalesce(pay.evaluated, false)
  from conservation_owed o
  join transfers_tb t on t.req_id = o.req_id
  join conservation_chain c on c.submitter = t.payout_submitter
  left join payout_proof r on r.req_id = o.req_id
  left join managed_tx m on m.submitter = t.payout_submitter and m.request_id = o.req_id and m.state = 'CONFIRMED'
  left join lateral (
       select bool_or(p.outcome = 'PAID') as paid, bool_or(p.outcome is null) as evaluated
         from (select outcome, submitter, pass from conservation_payment where req_id = o.req_id
               union all
               select outcome, submitter, pass from conservation_payment
                where submitter = c.submitter and tx_hash in (r.tx_hash, m.receipt ->> 'txHash') and outcome is null) as p
        where p.submitter = c.submitter and p.pass = c.pass) as pay on true
 where not o.paid
 order by o.req_id
 limit $1`

// maxEvaluated bounds the rows that one check evaluates.
const maxEvaluated = 5000

// EvaluateChain evaluates the unsettled payments, and the payouts whose payment was not found. It
// stores which are settled.
func (b *Book) EvaluateChain(ctx context.Context) (found []conservation.Finding, err error) {
	for _, evaluate := range []func(context.Context) ([]conservation.Finding, error){b.evaluatePayments, b.evaluateOwed, b.wentBack} {
		some, err := evaluate(ctx)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

func (b *Book) evaluatePayments(ctx context.Context) (found []conservation.Finding, err error) {
	all, err := results.All(ctx, b.db, scanPayment, unexplained, maxEvaluated)
	if err != nil {
		return nil, fmt.Errorf("read payments that no record explains: %w", err)
	}
	batch, paid := new(pgx.Batch), map[string]bool{}
	for _, p := range all {
		p.Before = p.Before || paid[p.ReqID]
		outcome, wrong := p.Evaluate()
		paid[p.ReqID] = paid[p.ReqID] || outcome == conservation.Paid
		if wrong != nil {
			found = append(found, *wrong)
		}
		req := p.ReqID
		if p.Payout == nil || outcome == conservation.Unsettled && wrong == nil {
			req = "" // nothing is known about a transfer yet
		}
		if outcome != conservation.Unsettled || req != "" {
			batch.Queue(settlePayment, p.Submitter, p.TxHash, p.LogIndex, outcome, req)
		}
	}
	err = b.db.SendBatch(ctx, batch).Close()
	return found, results.Wrap(err, "store the payments' outcomes")
}

func scanPayment(row pgx.CollectableRow) (p conservation.Payment, err error) {
	var t conservation.ClaimedPayout
	var known bool
	err = row.Scan(&p.Submitter, &p.TxHash, &p.LogIndex, &p.BlockNumber, &p.Token, &p.Recipient, &p.Amount, &p.AssetID,
		&p.Claimed, &p.ReqID, &p.Ordered, &t.UserID, &t.AssetID, &t.State, &t.Token, &t.Recipient, &t.Amount, &known, &p.Decided, &p.InDoubt, &p.Before)
	if known {
		p.Payout = &t
	}
	return p, err
}

func (b *Book) evaluateOwed(ctx context.Context) (found []conservation.Finding, err error) {
	batch := new(pgx.Batch)
	var o conservation.Owed
	var final uint64
	into := []any{&o.ReqID, &o.Account.UserID, &o.Account.AssetID, &o.Due, &o.Start, &o.Read, &final, &o.Found, &o.Evaluated}
	err = results.ForEach(ctx, b.db, into, func() {
		settled, wrong := o.Evaluate()
		switch {
		case settled:
			batch.Queue(`update conservation_owed set paid = true where req_id = $1`, o.ReqID)
		case o.Due == nil:
			batch.Queue(`update conservation_owed set due = $2 where req_id = $1 and due is null`, o.ReqID, final)
		case wrong != nil:
			found = append(found, *wrong)
		}
		o.Due = nil
	}, owedPayouts, maxEvaluated)
	if err != nil {
		return nil, fmt.Errorf("read payouts whose payment was not found: %w", err)
	}
	err = b.db.SendBatch(ctx, batch).Close()
	return found, results.Wrap(err, "store which payouts were paid")
}

func (b *Book) wentBack(ctx context.Context) (found []conservation.Finding, err error) {
	var submitter string
	var evidence json.RawMessage
	err = results.ForEach(ctx, b.db, []any{&submitter, &evidence}, func() {
		found = append(found, conservation.WentBack(submitter, append(json.RawMessage{}, evidence...)))
	}, `select submitter, reorged_block from conservation_chain where reorged_block is not null order by submitter`)
	return found, results.Wrap(err, "read chains that went back")
}
