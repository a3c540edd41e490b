-- Which signer has a submitter's key may change: the key moves, the account stays. Who
-- moved it and why is kept.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

create table signer_change (
  id          bigint       generated always as identity primary key,
  submitter   submitter_id not null references submitter,
  from_signer text         not null,
  to_signer   text         not null,
  by          text         not null check (by <> ''),
  reason      text         not null check (reason <> ''),
  at          timestamptz  not null default clock_timestamp(),
  constraint signer_is_another check (to_signer <> from_signer and to_signer <> '')
);
create trigger keep_signer_changes before update or delete on signer_change for each row execute function refuse_change();
create trigger keep_all_signer_changes before truncate on signer_change for each statement execute function refuse_change();

-- +goose Down
drop table signer_change;
