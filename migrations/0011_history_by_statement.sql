-- History is written once for each statement instead of once for each row.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- +goose StatementBegin
create function record_txs() returns trigger
language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    insert into tx_history (tx_id, submitter, at, state, sub_state, nonce, tx_hash, attempts, reason, block_hash, fencing_token)
    select tx_id, submitter, clock_timestamp(), state, sub_state, nonce, tx_hash, submit_attempts, last_error,
           receipt ->> 'blockHash', fencing_token
      from new_txs
     order by seq;
    return null;
  end if;
  insert into tx_history (tx_id, submitter, at, from_state, state, sub_state, nonce, tx_hash, attempts, reason, block_hash, fencing_token)
  select n.tx_id, n.submitter, clock_timestamp(), o.state, n.state, n.sub_state, n.nonce, n.tx_hash, n.submit_attempts, n.last_error,
         n.receipt ->> 'blockHash', n.fencing_token
    from new_txs n
    join old_txs o using (tx_id)
   where (n.state, n.sub_state, n.nonce, n.tx_hash, n.submit_attempts, n.last_error, n.receipt ->> 'blockHash')
         is distinct from
         (o.state, o.sub_state, o.nonce, o.tx_hash, o.submit_attempts, o.last_error, o.receipt ->> 'blockHash')
   order by n.nonce, n.seq;
  return null;
end
$$;
-- +goose StatementEnd

drop trigger record_tx on managed_tx;
create trigger record_new_txs after insert on managed_tx
  referencing new table as new_txs for each statement execute function record_txs();
create trigger record_txs after update on managed_tx
  referencing old table as old_txs new table as new_txs for each statement execute function record_txs();
drop function record_tx;

-- +goose Down
drop trigger record_txs on managed_tx;
drop trigger record_new_txs on managed_tx;
drop function record_txs;
-- +goose StatementBegin
create function record_tx() returns trigger
language plpgsql as $$
begin
  if tg_op = 'UPDATE' and
     (new.state, new.sub_state, new.nonce, new.tx_hash, new.submit_attempts, new.last_error, new.receipt ->> 'blockHash')
     is not distinct from
     (old.state, old.sub_state, old.nonce, old.tx_hash, old.submit_attempts, old.last_error, old.receipt ->> 'blockHash') then
    return null;
  end if;
  insert into tx_history (tx_id, submitter, at, from_state, state, sub_state, nonce, tx_hash, attempts, reason, block_hash, fencing_token)
  values (new.tx_id, new.submitter, clock_timestamp(), case when tg_op = 'UPDATE' then old.state end, new.state,
          new.sub_state, new.nonce, new.tx_hash, new.submit_attempts, new.last_error, new.receipt ->> 'blockHash', new.fencing_token);
  return null;
end
$$;
-- +goose StatementEnd
create trigger record_tx after insert or update on managed_tx for each row execute function record_tx();
