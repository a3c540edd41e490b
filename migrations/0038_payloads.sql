-- A transaction that may still be carried out has a payload: the transaction that
-- inserts its row stores the payload too, or does not commit. Rows that are final by that
-- commit are exempt, since nothing is made of them: a nonce that the chain has and this
-- database lost, for example. The check is made once. A payload never changes, and an
-- operator may detach its partition later.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- +goose StatementBegin
create function payload_is_stored() returns trigger
language plpgsql as $$
begin
  if not exists (select from public.tx_document d where d.tx_id = new.tx_id and d.name = 'payload')
     and exists (select from public.managed_tx m where m.tx_id = new.tx_id and m.state not in ('CONFIRMED', 'FAILED')) then
    raise exception 'transaction % has no payload', new.tx_id using errcode = 'FP011', constraint = 'transactions_have_payloads';
  end if;
  return null;
end
$$;
-- +goose StatementEnd

-- At the commit: the payload may be stored by a later statement.
create constraint trigger payload_is_stored after insert on managed_tx
  deferrable initially deferred
  for each row when (new.state not in ('CONFIRMED', 'FAILED'))
  execute function payload_is_stored();

-- +goose Down
set local lock_timeout = '5s';
set local statement_timeout = '60s';
drop trigger payload_is_stored on managed_tx;
drop function payload_is_stored;
