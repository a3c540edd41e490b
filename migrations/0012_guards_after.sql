-- Fewer bytes in the write-ahead log for each transaction: no lock of a row before its update.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
-- A trigger before an update makes Postgres lock each row first, and log that lock, also where its condition is
-- false. These only refuse a change, so they do it after the update, in the same statement.
drop trigger guard_fills on managed_tx;
drop trigger guard_valid_until on managed_tx;
drop trigger guard_held on managed_tx;
drop trigger guard_mac on managed_tx;
drop trigger require_mac_at_allocation on managed_tx;
create trigger guard_fills after update on managed_tx for each row when (old.fills is distinct from new.fills) execute function refuse_change();
create trigger guard_valid_until after update on managed_tx for each row
  when (old.valid_until is distinct from new.valid_until) execute function refuse_change();
create trigger guard_held after update on managed_tx for each row
  when (old.held and not new.held and new.state = 'QUEUED') execute function guard_held();
create trigger guard_mac after update on managed_tx for each row
  when ((old.mac, old.mac_key) is distinct from (new.mac, new.mac_key)) execute function refuse_change();
create trigger require_mac_at_allocation after update on managed_tx for each row
  when (new.mac is null and old.nonce is null and new.nonce is not null and new.state in ('IN_FLIGHT', 'SUBMITTED'))
  execute function require_mac();
-- +goose StatementEnd
