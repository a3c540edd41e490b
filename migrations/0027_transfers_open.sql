-- Drops the index that transfers_open_by_age replaces, in a separate transaction. In the transaction that makes an index,
-- the drop waited for writers that waited for that transaction.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
drop index transfers_open;
-- +goose StatementEnd
