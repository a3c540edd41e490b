-- Fewer bytes in the write-ahead log for each transaction: history without what other rows say, and one key
-- less on managed_tx.

-- +goose Up
-- +goose StatementBegin
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

-- A version is bound to the transaction that has its nonce. The key (tx_id, submitter, nonce) was written at
-- every change of a transaction. Instead the foreign key names (submitter, nonce), which managed_tx has as a key
-- anyway, and a trigger compares the tx_id. Stored versions were held to the stricter key, and are not read again.
alter table tx_version drop constraint bound_for_ever;
alter table managed_tx drop constraint one_nonce_per_tx;
alter table tx_version add constraint bound_for_ever foreign key (submitter, nonce) references managed_tx (submitter, nonce) not valid;

create function check_binding() returns trigger language plpgsql as $$
begin
  if not exists (select from public.managed_tx m where m.tx_id = new.tx_id and m.submitter = new.submitter and m.nonce = new.nonce) then
    raise exception 'transaction % does not hold nonce % of %', new.tx_id, new.nonce, new.submitter
      using errcode = 'foreign_key_violation', constraint = 'bound_for_ever';
  end if;
  return null;
end $$;
create trigger check_binding after insert on tx_version for each row execute function check_binding();

-- A nonce that a version was signed for stays with its transaction, even if the same statement gives it to another.
create function guard_signed_nonce() returns trigger language plpgsql as $$
begin
  if exists (select from public.tx_version v where v.tx_id = old.tx_id) then
    raise exception 'a version is signed for nonce % of transaction %', old.nonce, old.tx_id
      using errcode = 'foreign_key_violation', constraint = 'bound_for_ever';
  end if;
  return null;
end $$;
create trigger guard_signed_nonce after update on managed_tx for each row
  when (old.nonce is not null and (old.tx_id, old.submitter, old.nonce) is distinct from (new.tx_id, new.submitter, new.nonce))
  execute function guard_signed_nonce();
-- +goose StatementEnd
