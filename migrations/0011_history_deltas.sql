-- Fewer bytes in the write-ahead log for each transaction: history without what other rows say.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
-- A row of the history has neither its transaction's submitter, which managed_tx has, nor a hash that did not
-- change. An empty hash is one that was removed. Rows of earlier releases have a submitter, and their own hash.
alter table tx_history alter column submitter drop not null;
create or replace function record_txs() returns trigger language plpgsql set enable_nestloop = off as $$
begin
  if tg_op = 'INSERT' then
    insert into tx_history (tx_id, at, state, sub_state, nonce, tx_hash, attempts, reason, block_hash, fencing_token)
    select tx_id, clock_timestamp(), state, sub_state, nonce, tx_hash, submit_attempts, last_error,
           receipt ->> 'blockHash', fencing_token
      from new_txs
     order by seq;
    return null;
  end if;
  insert into tx_history (tx_id, at, from_state, state, sub_state, nonce, tx_hash, attempts, reason, block_hash, fencing_token)
  select n.tx_id, clock_timestamp(), o.state, n.state, n.sub_state, n.nonce,
         case when n.tx_hash is distinct from o.tx_hash then coalesce(n.tx_hash, '') end,
         n.submit_attempts, n.last_error, n.receipt ->> 'blockHash', n.fencing_token
    from new_txs n
    join old_txs o using (tx_id)
   where (n.state, n.sub_state, n.nonce, n.tx_hash, n.submit_attempts, n.last_error, n.receipt ->> 'blockHash')
         is distinct from
         (o.state, o.sub_state, o.nonce, o.tx_hash, o.submit_attempts, o.last_error, o.receipt ->> 'blockHash')
   order by n.nonce, n.seq;
  return null;
end $$;

-- The history with the submitter and the hash in each row.
create view tx_history_full as
select h.id, h.tx_id, coalesce(h.submitter, m.submitter) as submitter, h.at, h.from_state, h.state, h.sub_state, h.nonce,
       case when h.submitter is not null then h.tx_hash
            else (select nullif(p.tx_hash, '')
                    from tx_history p
                   where p.tx_id = h.tx_id and p.id <= h.id and (p.tx_hash is not null or p.submitter is not null)
                   order by p.id desc
                   limit 1) end as tx_hash,
       h.attempts, h.reason, h.block_hash, h.fencing_token
  from tx_history h
  left join managed_tx m on m.tx_id = h.tx_id;
-- +goose StatementEnd
