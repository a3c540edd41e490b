-- Placeholders that fill the nonces for which a lost database may have signed: a release
-- from PROTECT by resync binds them, and nothing else is bound before they are final.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- Not valid: no row fills a nonce yet.
alter table managed_tx
  add column fills boolean not null default false,
  add constraint fills_a_nonce check (not fills or nonce is not null and handler is null and reservation is null and state <> 'CONFIRMED') not valid;
create trigger keep_fills before update on managed_tx for each row when (old.fills is distinct from new.fills) execute function refuse_change();

-- +goose Down
drop trigger keep_fills on managed_tx;
alter table managed_tx drop column fills;
