-- Gas bump: when a transaction may next be replaced by itself at a higher fee, and what
-- each replacement added at most to what its submitter pays, which a day's budget bounds.
-- Null all of it while gasbump.enabled is false. Whatever breaks off here may be run again.

-- +goose NO TRANSACTION
-- +goose Up
set lock_timeout = '5s';
set statement_timeout = '60s';
alter table managed_tx add column if not exists next_bump_at timestamptz;
alter table tx_version
  add column if not exists extra_wei numeric(78, 0),
  drop constraint if exists extra_is_an_amount,
  add constraint extra_is_an_amount check (extra_wei >= 0) not valid; -- no row has one yet

set statement_timeout = '60min';
-- One that was not finished is left behind invalid.
drop index concurrently if exists version_of_budget;
create index concurrently version_of_budget on tx_version (submitter, created_at) where extra_wei is not null;
reset statement_timeout;
reset lock_timeout;

-- +goose Down
drop index concurrently if exists version_of_budget;
alter table tx_version drop column extra_wei;
alter table managed_tx drop column next_bump_at;
