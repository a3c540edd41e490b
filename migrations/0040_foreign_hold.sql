-- What a release from PROTECT left open: nonces that foreign transactions consumed, and
-- of which no request is known. A database that was restored may have lost that request.
-- Its caller posts it again, as the contract says; so a new intent with the same call is
-- held, one for each such nonce, until an operator decides.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- call_digest is that of the foreign transaction.
create table foreign_hold (
  submitter   submitter_id not null,
  nonce       bigint       not null,
  call_digest bytea        not null,
  tx_id       uuid         references managed_tx, -- the intent that is held for this nonce
  created_at  timestamptz  not null default clock_timestamp(),
  ended_at    timestamptz,
  outcome     text,
  by          text,
  reason      text,
  primary key (submitter, nonce),
  constraint hold_has_its_transaction foreign key (submitter, nonce) references foreign_transaction,
  constraint one_hold_per_tx unique (tx_id),
  constraint hold_ends_by_somebody check (case
    when ended_at is null then outcome is null and by is null and reason is null
    else coalesce(outcome in ('MATCHED', 'WRITTEN_OFF') and by <> '' and reason <> '', false) and (outcome <> 'MATCHED' or tx_id is not null) end)
);
create index open_holds on foreign_hold (submitter, call_digest) where ended_at is null;
create trigger keep_hold before update on foreign_hold for each row when (old.ended_at is not null) execute function refuse_change();

-- Why an intent is held. Null: the copy had it in its queue when it was accepted. CALL:
-- its call is that of a foreign transaction. HANDLER: its call is not known, so it may be
-- that of any of them. Not valid: no row has a value yet.
alter table managed_tx
  add column held_for text,
  add constraint held_for_is_known check (held_for is null or held and held_for in ('CALL', 'HANDLER')) not valid;

select copy_grants('managed_tx', 'foreign_hold', array['SELECT', 'INSERT', 'UPDATE']);

-- +goose Down
alter table managed_tx drop column held_for;
drop table foreign_hold;
