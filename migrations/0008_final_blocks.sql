-- The blocks of the last final transactions, by which a reorg deeper than final
-- is noticed: [{"number": …, "hash": …}, …], ascending.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

alter table submitter_nonce_cursor
  add column final_blocks jsonb not null default '[]' check (jsonb_typeof(final_blocks) = 'array');

-- +goose Down
alter table submitter_nonce_cursor drop column final_blocks;
