-- What people decide about a transaction: an order on its row, which whoever
-- holds the lease carries out, and a record that stays.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

alter table managed_tx
  add column ordered text,
  add constraint order_is_known check (ordered in ('CANCEL', 'PLACEHOLDER', 'REPLACE', 'REBROADCAST')),
  add constraint order_fits_state check (ordered is null
    or state in ('IN_FLIGHT', 'SUBMITTED', 'TRACKING', 'STUCK', 'PROTECT'));

create table tx_decision (
  id     bigint      generated always as identity primary key,
  tx_id  uuid        not null references managed_tx,
  action text        not null check (action in ('CANCEL', 'WAIT', 'REBROADCAST', 'REPLACE', 'PLACEHOLDER')),
  by     text        not null check (by <> ''),
  reason text        not null check (reason <> ''),
  at     timestamptz not null default clock_timestamp()
);
create index decisions_of_tx on tx_decision (tx_id, id);
create trigger keep_decisions before update or delete on tx_decision for each row execute function refuse_change();

-- +goose Down
drop table tx_decision;
alter table managed_tx drop column ordered;
