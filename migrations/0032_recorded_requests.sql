-- A request that a release from PROTECT named as what a foreign transaction was. It ends
-- as that transaction ended, whatever nonce it holds itself: CONFIRMED/RECORDED, or
-- FAILED/REVERTED. And a name epoch for each submitter, drawn by a release by resync, so
-- that names of tasks which are used up are not met again.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- In the order in which the functions take their locks.
lock table submitter_lease, managed_tx in access exclusive mode;
alter table submitter_lease add column name_epoch text; -- null: that of the database is enough

-- Not valid: each allows what it allowed before and more, so that no row need be read.
alter table managed_tx
  add column recorded_nonce bigint, -- the nonce that the named foreign transaction consumed
  drop constraint sub_state_fits,
  drop constraint nonce_fits_state,
  drop constraint bytes_fit_state,
  drop constraint receipt_fits_state,
  drop constraint confirmed_at_fits_state,
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
  add constraint bytes_fit_state check (case
    when state in ('QUEUED', 'IN_FLIGHT') then tx_hash is null
    when sub_state = 'RECORDED' then true
    when state in ('SUBMITTED', 'TRACKING', 'CONFIRMED') then tx_hash is not null
    else true end) not valid,
  add constraint receipt_fits_state check (case
    when state = 'TRACKING' and sub_state = 'INCLUDED' then receipt is not null
    when state = 'TRACKING' then receipt is null
    when sub_state = 'RECORDED' then true
    when state = 'CONFIRMED' then receipt is not null and confirmations is not null
    when state = 'FAILED' and sub_state in ('REVERTED', 'PLACEHOLDER') then receipt is not null
    else true end) not valid,
  add constraint confirmed_at_fits_state check (case
    when sub_state = 'RECORDED' then (confirmed_at is not null) = (receipt is not null)
    else (confirmed_at is not null) = (state = 'CONFIRMED' or (state = 'FAILED' and sub_state in ('REVERTED', 'PLACEHOLDER'))) end) not valid;

-- What a release recorded proves no payment: the receipt is of a foreign transaction.
drop trigger keep_proof on managed_tx;
create constraint trigger keep_proof after update on managed_tx
  deferrable initially deferred for each row
  when (new.caller = 'transfer' and new.state = 'CONFIRMED' and old.state <> 'CONFIRMED' and new.sub_state is null)
  execute function keep_proof();

-- +goose Down
set local lock_timeout = '5s';
set local statement_timeout = '60s';
lock table submitter_lease, managed_tx in access exclusive mode;
drop trigger keep_proof on managed_tx;
create constraint trigger keep_proof after update on managed_tx
  deferrable initially deferred for each row
  when (new.caller = 'transfer' and new.state = 'CONFIRMED' and old.state <> 'CONFIRMED')
  execute function keep_proof();
alter table managed_tx
  drop constraint sub_state_fits,
  drop constraint nonce_fits_state,
  drop constraint bytes_fit_state,
  drop constraint receipt_fits_state,
  drop constraint confirmed_at_fits_state,
  add constraint sub_state_fits check (case state
    when 'TRACKING' then sub_state is not null and sub_state in ('PENDING', 'INCLUDED')
    when 'FAILED' then sub_state is not null
      and sub_state in ('REJECTED', 'CANCELLED', 'REVERTED', 'PLACEHOLDER', 'DISPLACED')
    else sub_state is null end) not valid,
  add constraint nonce_fits_state check (case
    when state = 'QUEUED' then nonce is null
    when state = 'FAILED' and sub_state in ('REJECTED', 'CANCELLED') then nonce is null
    when state = 'FAILED' and sub_state = 'DISPLACED' then true
    else nonce is not null end) not valid,
  add constraint bytes_fit_state check (case
    when state in ('QUEUED', 'IN_FLIGHT') then tx_hash is null
    when state in ('SUBMITTED', 'TRACKING', 'CONFIRMED') then tx_hash is not null
    else true end) not valid,
  add constraint receipt_fits_state check (case
    when state = 'TRACKING' and sub_state = 'INCLUDED' then receipt is not null
    when state = 'TRACKING' then receipt is null
    when state = 'CONFIRMED' then receipt is not null and confirmations is not null
    when state = 'FAILED' and sub_state in ('REVERTED', 'PLACEHOLDER') then receipt is not null
    else true end) not valid,
  add constraint confirmed_at_fits_state check ((confirmed_at is not null) =
    (state = 'CONFIRMED' or (state = 'FAILED' and sub_state in ('REVERTED', 'PLACEHOLDER')))) not valid,
  drop column recorded_nonce;
alter table submitter_lease drop column name_epoch;
