-- Requests whose transaction a handler makes once their nonce is bound.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

alter table managed_tx
  add column handler text constraint handler_is_a_name check (handler ~ '^[a-z][a-z0-9_.-]{0,63}$');

-- The handler is bound like the payload.
-- +goose StatementBegin
create or replace function guard_tx() returns trigger
language plpgsql as $$
begin
  if old.state in ('CONFIRMED', 'FAILED') then
    raise exception 'transaction % is final', old.tx_id using errcode = 'FP002', constraint = 'final_never_changes';
  end if;
  if (new.tx_id, new.submitter, new.request_id, new.fingerprint, new.seq, new.caller, new.payload, new.handler)
     is distinct from (old.tx_id, old.submitter, old.request_id, old.fingerprint, old.seq, old.caller, old.payload, old.handler)
     or (old.nonce is not null and new.nonce is distinct from old.nonce) then
    raise exception 'transaction % is bound for ever', old.tx_id using errcode = 'FP003', constraint = 'binding_never_changes';
  end if;
  return new;
end
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
create or replace function guard_tx() returns trigger
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
-- +goose StatementEnd
alter table managed_tx drop column handler;
