-- Lists of transactions by state and by cause, over one submitter or all of them.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
-- The states by which lists find transactions: 0 QUEUED, 1 IN_FLIGHT, SUBMITTED and TRACKING, 2 STUCK, 3 PROTECT, 4 CONFIRMED, 5 FAILED.
-- It does not change between the states of 1, so that those transitions write no index. The column rewrites the table.
drop index tx_of_caller;
alter table managed_tx add column state_class smallint not null generated always as (case state
  when 'QUEUED' then 0 when 'STUCK' then 2 when 'PROTECT' then 3 when 'CONFIRMED' then 4 when 'FAILED' then 5 else 1 end) stored;
-- Lists of a caller's transactions by state, in the order in which they were accepted.
create index tx_of_caller on managed_tx (submitter, caller, state_class, seq);
-- Transactions of all submitters that need a person or failed. Others have no entry.
create index tx_of_class on managed_tx (state_class, tx_id) where state_class in (2, 3, 5);
-- Transactions that wait for a stored cause. Others have no entry. Setting or clearing a cause writes every index of the row.
create index tx_of_cause on managed_tx (wait_cause, submitter, tx_id) where wait_cause is not null and state_class < 4;
-- +goose StatementEnd
