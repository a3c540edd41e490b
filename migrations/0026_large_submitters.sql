-- Statistics that plans must not follow. Beside 100,000 submitters of one transaction each, the planner expects
-- one row of any submitter. It then reads all rows of one by tx_of_caller, where (submitter, nonce) would find
-- the one that is wanted, also for the foreign keys. Since one submitter can have most of the rows, the planner
-- shall expect a tenth of the table, also while the table is small. An empty table is not analyzed: its plans
-- would expect it to stay empty.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
alter table managed_tx alter column submitter set (n_distinct = 10);
do $$ begin
  if exists (select from managed_tx) then
    analyze managed_tx (submitter);
  end if;
end $$;
-- +goose StatementEnd
