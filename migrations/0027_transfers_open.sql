-- The index that transfers_open_by_age replaces. It is dropped in a transaction of its own: beside the making of an index
-- it waited for writers that waited for it.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
drop index transfers_open;
-- +goose StatementEnd
