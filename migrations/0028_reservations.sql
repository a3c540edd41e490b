-- Nonces that are reserved for whoever asked: by the low-level hooks, which are off
-- unless hooks.enabled says otherwise. A reservation is a row of managed_tx that holds
-- its nonce in IN_FLIGHT like any other, so that no key of nonces has an exception;
-- its lock says whose bytes the row may get, and until when. Whatever breaks off here
-- may be run again.

-- +goose NO TRANSACTION
-- +goose Up
set lock_timeout = '5s';
set statement_timeout = '60s';

-- Not valid: no row has a reservation yet, and none need be read to know that.
alter table managed_tx
  add column if not exists reservation text,
  add column if not exists lock_owner  text,
  add column if not exists lock_until  timestamptz,
  drop constraint if exists reservation_is_known,
  drop constraint if exists reservation_has_a_lock,
  drop constraint if exists reservation_fits_state,
  add constraint reservation_is_known check (reservation in ('RESERVED', 'USED', 'RECYCLABLE')) not valid,
  add constraint reservation_has_a_lock check (case when reservation is null
    then lock_owner is null and lock_until is null
    else lock_until is not null and coalesce(octet_length(lock_owner), 0) between 1 and 128 end) not valid,
  add constraint reservation_fits_state check (case
    when reservation is null then true
    when handler is not null or state = 'QUEUED' or sub_state = 'REJECTED' then false
    when sub_state = 'CANCELLED' then reservation = 'RECYCLABLE'
    when reservation = 'USED' then tx_hash is not null
    else true end) not valid;

-- +goose StatementBegin
-- A reservation is made with its row, and changes once, while nothing is signed for
-- it and nobody has ordered anything.
create or replace function guard_reservation() returns trigger
language plpgsql as $$
begin
  if old.reservation is distinct from 'RESERVED' or old.state <> 'IN_FLIGHT' or old.ordered is not null
     or coalesce(new.reservation, 'RESERVED') = 'RESERVED'
     or (new.lock_owner, new.lock_until) is distinct from (old.lock_owner, old.lock_until) then
    raise exception 'reservation % was made for %, and changes once', old.tx_id, old.lock_owner
      using errcode = 'FP003', constraint = 'reservation_changes_once';
  end if;
  return new;
end
$$;

-- The one nonce that leaves its row is one that was given back by its owner: it was
-- bound to nobody. A version of it, if there is one, keeps it by the key bound_for_ever;
-- and the nonce above it, by follows_the_last_nonce, until another row has it.
create or replace function guard_tx() returns trigger
language plpgsql as $$
begin
  if old.state in ('CONFIRMED', 'FAILED') then
    raise exception 'transaction % is final', old.tx_id using errcode = 'FP002', constraint = 'final_never_changes';
  end if;
  if (new.tx_id, new.submitter, new.request_id, new.fingerprint, new.seq, new.caller, new.handler)
     is distinct from (old.tx_id, old.submitter, old.request_id, old.fingerprint, old.seq, old.caller, old.handler)
     or (old.nonce is not null and new.nonce is distinct from old.nonce
         and not (new.nonce is null and coalesce(new.sub_state = 'CANCELLED' and old.reservation = 'RECYCLABLE', false)
                  and old.state = 'IN_FLIGHT' and old.ordered is null)) then
    raise exception 'transaction % is bound for ever', old.tx_id using errcode = 'FP003', constraint = 'binding_never_changes';
  end if;
  return new;
end
$$;
-- +goose StatementEnd

drop trigger if exists guard_reservation on managed_tx;
create trigger guard_reservation after update on managed_tx for each row
  when ((old.reservation, old.lock_owner, old.lock_until) is distinct from (new.reservation, new.lock_owner, new.lock_until))
  execute function guard_reservation();

-- What may be given out again. Its predicate changes once in a row's life.
set statement_timeout = '60min';
drop index concurrently if exists tx_recyclable;
create index concurrently tx_recyclable on managed_tx (submitter, nonce) where unsettled and reservation = 'RECYCLABLE';
reset statement_timeout;
reset lock_timeout;

-- +goose Down
drop index concurrently if exists tx_recyclable;
drop trigger if exists guard_reservation on managed_tx;
drop function if exists guard_reservation;
-- +goose StatementBegin
create or replace function guard_tx() returns trigger
language plpgsql as $$
begin
  if old.state in ('CONFIRMED', 'FAILED') then
    raise exception 'transaction % is final', old.tx_id using errcode = 'FP002', constraint = 'final_never_changes';
  end if;
  if (new.tx_id, new.submitter, new.request_id, new.fingerprint, new.seq, new.caller, new.handler)
     is distinct from (old.tx_id, old.submitter, old.request_id, old.fingerprint, old.seq, old.caller, old.handler)
     or (old.nonce is not null and new.nonce is distinct from old.nonce) then
    raise exception 'transaction % is bound for ever', old.tx_id using errcode = 'FP003', constraint = 'binding_never_changes';
  end if;
  return new;
end
$$;
-- +goose StatementEnd
alter table managed_tx drop column if exists reservation, drop column if exists lock_owner, drop column if exists lock_until;
