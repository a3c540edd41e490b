-- A session keeps the plan of its first call, and in it how many rows changed
-- then: after a change of one row it would compare each old row with each new one
-- for ever, which takes minutes where thousands move at once.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

alter function record_txs() set enable_nestloop = off;

-- +goose Down
alter function record_txs() reset enable_nestloop;
