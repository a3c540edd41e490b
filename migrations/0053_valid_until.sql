-- Until when an intent may get a nonce, and since when its own bounds hold it back. One that
-- they hold back for long is deferred: intents of other callers go ahead of it.
-- Whatever breaks off here may be run again.

-- +goose NO TRANSACTION
-- +goose Up
set lock_timeout = '5s';
set statement_timeout = '60s';

-- Not valid: no row has a value yet, and each check allows what it allowed before and more.
alter table managed_tx
  add column if not exists valid_until     timestamptz,
  add column if not exists held_back_since timestamptz,
  add column if not exists deferred_at     timestamptz,
  drop constraint if exists deferred_is_held_back,
  drop constraint if exists expired_had_an_end,
  drop constraint sub_state_fits,
  drop constraint nonce_fits_state,
  drop constraint reservation_fits_state,
  add constraint deferred_is_held_back check (deferred_at is null or held_back_since is not null) not valid,
  add constraint expired_had_an_end check (sub_state is distinct from 'EXPIRED' or valid_until is not null) not valid,
  add constraint sub_state_fits check (case state
    when 'TRACKING' then sub_state is not null and sub_state in ('PENDING', 'INCLUDED')
    when 'FAILED' then sub_state is not null
      and sub_state in ('REJECTED', 'CANCELLED', 'EXPIRED', 'REVERTED', 'PLACEHOLDER', 'DISPLACED')
    when 'CONFIRMED' then sub_state is null or sub_state = 'RECORDED' and recorded_nonce is not null
    else sub_state is null end) not valid,
  add constraint nonce_fits_state check (case
    when state = 'QUEUED' then nonce is null
    when state = 'FAILED' and sub_state in ('REJECTED', 'CANCELLED', 'EXPIRED') then nonce is null
    when state = 'FAILED' and sub_state = 'DISPLACED' then true
    when state in ('CONFIRMED', 'FAILED') and recorded_nonce is not null then true
    else nonce is not null end) not valid,
  add constraint reservation_fits_state check (case
    when reservation is null then true
    when handler is not null or state = 'QUEUED' or sub_state in ('REJECTED', 'EXPIRED') then false
    when sub_state = 'CANCELLED' then reservation = 'RECYCLABLE'
    when reservation = 'USED' then tx_hash is not null
    else true end) not valid;

-- The fingerprint, and with it the MAC, is of this time too.
drop trigger if exists keep_valid_until on managed_tx;
create trigger keep_valid_until before update of valid_until on managed_tx for each row
  when (old.valid_until is distinct from new.valid_until) execute function refuse_change();

-- By caller: since when its own bounds hold back the intents that it has at the head of the
-- queue. The time outlives each of these intents, until one of the caller gets a nonce: else a
-- caller would stop all others by many intents that end one after the other.
alter table submitter_nonce_cursor add column if not exists held_back jsonb not null default '{}';

-- What expires, and what is deferred, is found by few entries; past a deferred intent the
-- queue is read caller by caller.
set statement_timeout = '60min';
drop index concurrently if exists tx_valid_until;
create index concurrently tx_valid_until on managed_tx (submitter, valid_until) where queued and not held and valid_until is not null;
drop index concurrently if exists tx_deferred;
create index concurrently tx_deferred on managed_tx (submitter, deferred_at) where queued and not held and deferred_at is not null;
drop index concurrently if exists tx_queue_of_caller;
create index concurrently tx_queue_of_caller on managed_tx (submitter, caller, seq) where queued and not held;
reset statement_timeout;
reset lock_timeout;

-- +goose Down
set statement_timeout = '60min';
drop index concurrently if exists tx_queue_of_caller;
drop index concurrently if exists tx_deferred;
drop index concurrently if exists tx_valid_until;
reset statement_timeout;
drop trigger keep_valid_until on managed_tx;
alter table submitter_nonce_cursor drop column held_back;
alter table managed_tx
  drop constraint deferred_is_held_back,
  drop constraint expired_had_an_end,
  drop constraint sub_state_fits,
  drop constraint nonce_fits_state,
  drop constraint reservation_fits_state,
  add constraint sub_state_fits check (case state
    when 'TRACKING' then sub_state is not null and sub_state in ('PENDING', 'INCLUDED')
    when 'FAILED' then sub_state is not null
      and sub_state in ('REJECTED', 'CANCELLED', 'REVERTED', 'PLACEHOLDER', 'DISPLACED')
    when 'CONFIRMED' then sub_state is null or sub_state = 'RECORDED' and recorded_nonce is not null
    else sub_state is null end) not valid,
  add constraint nonce_fits_state check (case
    when state = 'QUEUED' then nonce is null
    when state = 'FAILED' and sub_state in ('REJECTED', 'CANCELLED') then nonce is null
    when state = 'FAILED' and sub_state = 'DISPLACED' then true
    when state in ('CONFIRMED', 'FAILED') and recorded_nonce is not null then true
    else nonce is not null end) not valid,
  add constraint reservation_fits_state check (case
    when reservation is null then true
    when handler is not null or state = 'QUEUED' or sub_state = 'REJECTED' then false
    when sub_state = 'CANCELLED' then reservation = 'RECYCLABLE'
    when reservation = 'USED' then tx_hash is not null
    else true end) not valid,
  drop column valid_until,
  drop column held_back_since,
  drop column deferred_at;
