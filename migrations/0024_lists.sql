-- Lists of transactions: those of one caller on one submitter, in the order in which
-- they were accepted. Its columns never change, so a transaction that moves while it
-- holds its nonce still writes no index.

-- +goose NO TRANSACTION
-- +goose Up
set lock_timeout = '5s';
set statement_timeout = '60min';
-- One that was not finished is left behind invalid.
drop index concurrently if exists tx_of_caller;
create index concurrently tx_of_caller on managed_tx (submitter, caller, seq);
reset statement_timeout;
reset lock_timeout;

-- +goose Down
drop index concurrently if exists tx_of_caller;
