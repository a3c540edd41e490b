-- Every change of every transaction, kept; and an end that is an end.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

create table tx_history (
  id            bigint       generated always as identity primary key,
  tx_id         uuid         not null,
  submitter     submitter_id not null,
  at            timestamptz  not null,
  from_state    text,
  state         text         not null,
  sub_state     text,
  nonce         bigint,
  tx_hash       text,
  attempts      integer      not null,
  reason        text,
  block_hash    text,
  fencing_token bigint
);
create index history_of_tx on tx_history (tx_id, id);

-- A final state never changes, nor what binds a transaction.
-- +goose StatementBegin
create function guard_tx() returns trigger
language plpgsql as $$
begin
  if old.state in ('CONFIRMED', 'FAILED') then
    raise exception 'transaction % is final', old.tx_id using errcode = 'FP002', constraint = 'final_never_changes';
  end if;
  if (new.tx_id, new.submitter, new.request_id, new.fingerprint, new.seq, new.caller, new.payload)
     is distinct from (old.tx_id, old.submitter, old.request_id, old.fingerprint, old.seq, old.caller, old.payload)
     or (old.nonce is not null and new.nonce is distinct from old.nonce) then
    raise exception 'transaction % is bound for ever', old.tx_id using errcode = 'FP003', constraint = 'binding_never_changes';
  end if;
  return new;
end
$$;

-- Every change that matters is written down by the statement that makes it, once
-- it is made: an insert that met its like has made none.
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

create function refuse_change() returns trigger
language plpgsql as $$
begin
  raise exception '% is history: it is never changed', tg_table_name using errcode = 'FP004', constraint = 'history_never_changes';
end
$$;
-- +goose StatementEnd

create trigger guard_tx before update on managed_tx for each row execute function guard_tx();
create trigger record_tx after insert or update on managed_tx for each row execute function record_tx();
create trigger keep_tx before delete on managed_tx for each row execute function refuse_change();
create trigger keep_history before update or delete on tx_history for each row execute function refuse_change();
create trigger keep_versions before update or delete on tx_version for each row execute function refuse_change();
create trigger keep_all_txs before truncate on managed_tx for each statement execute function refuse_change();
create trigger keep_all_history before truncate on tx_history for each statement execute function refuse_change();
create trigger keep_all_versions before truncate on tx_version for each statement execute function refuse_change();

-- +goose Down
drop trigger keep_all_versions on tx_version;
drop trigger keep_all_txs on managed_tx;
drop trigger keep_versions on tx_version;
drop trigger keep_tx on managed_tx;
drop trigger record_tx on managed_tx;
drop trigger guard_tx on managed_tx;
drop table tx_history;
drop function record_tx;
drop function guard_tx;
drop function refuse_change;
