-- Indexes for lists of open transfers by age and by user, of submitters by state and by name, and of the statuses that
-- the sweep repeats.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
-- Open transfers by age, in place of transfers_open. No transition between open states writes these indexes. Each reads
-- the whole table when it is made; writers wait until the commit, readers do not.
create index transfers_open_by_age on transfers_tb (created_at, transfer_id) where open;
-- A user's list by an open state reads the user's rows alone. An open transfer has not ended. In these words no query of a
-- user fits the index by age, which has the rows of all users.
create index transfers_open_of_user on transfers_tb (user_id, created_at, transfer_id) where ended is null;

-- The other branch of dueActs: see open_money.
create index open_statuses on account_act (next_at, act_id) where open and kind = 'STATUS';

-- Lists of submitters. Those without a name come last. ACTIVE ones have no index by status: the planner would take it for
-- the payer of a transfer, and read them all.
create index submitters_not_active on submitter (status, submitter) where status <> 'ACTIVE';
create index submitters_by_name on submitter ((name = ''), name, submitter);
-- +goose StatementEnd
