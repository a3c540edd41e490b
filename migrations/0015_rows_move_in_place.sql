-- A transaction that moves between states in which it holds its nonce changes no
-- column of an index: the new row stands beside the old one, and no index is
-- written. Postgres counts the columns of a partial index's predicate among those
-- of the index, so the predicates are columns that stay the same meanwhile.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60min';

drop index tx_queue;
drop index tx_aside;
drop index tx_unsettled;
alter table managed_tx
  add column queued boolean not null generated always as (state = 'QUEUED') stored,
  add column unsettled boolean not null generated always as (state in ('IN_FLIGHT', 'SUBMITTED', 'TRACKING', 'STUCK', 'PROTECT')) stored,
  set (fillfactor = 50);
create index tx_queue on managed_tx (submitter, seq) where queued;
create index tx_aside on managed_tx (submitter, set_aside_nonce) where queued and set_aside_nonce is not null;
create index tx_unsettled on managed_tx (submitter, nonce) where unsettled;

-- The key of requests begins with the request: of two keys that begin with the
-- submitter the planner may take either for both, as most submitters have few rows,
-- and would read all of one that has a million.
alter table managed_tx
  drop constraint one_tx_per_request,
  add constraint one_tx_per_request unique (request_id, submitter);

-- The guards are called where they refuse, and only there. What they compare is
-- what they refuse. After the row: before it, each row would be locked for them.
drop trigger guard_tx on managed_tx;
create trigger guard_tx after update on managed_tx for each row
  when (old.state in ('CONFIRMED', 'FAILED')
    or (old.tx_id, old.submitter, old.request_id, old.fingerprint, old.seq, old.caller, old.handler)
       is distinct from (new.tx_id, new.submitter, new.request_id, new.fingerprint, new.seq, new.caller, new.handler)
    or (old.nonce is not null and old.nonce is distinct from new.nonce))
  execute function guard_tx();

drop trigger keep_lease on submitter_lease;
create trigger keep_lease before delete on submitter_lease for each row execute function keep_lease();
create trigger raise_lease after update on submitter_lease for each row
  when (new.fencing_token < old.fencing_token or new.submitter <> old.submitter)
  execute function keep_lease();

drop trigger keep_cursor on submitter_nonce_cursor;
create trigger keep_cursor before delete on submitter_nonce_cursor for each row execute function keep_cursor();
create trigger raise_cursor after update on submitter_nonce_cursor for each row
  when (new.next_nonce < old.next_nonce or new.submitter <> old.submitter)
  execute function keep_cursor();

-- +goose Down
set local statement_timeout = '60min';
drop trigger raise_cursor on submitter_nonce_cursor;
drop trigger keep_cursor on submitter_nonce_cursor;
create trigger keep_cursor before update or delete on submitter_nonce_cursor for each row execute function keep_cursor();
drop trigger raise_lease on submitter_lease;
drop trigger keep_lease on submitter_lease;
create trigger keep_lease before update or delete on submitter_lease for each row execute function keep_lease();
drop trigger guard_tx on managed_tx;
create trigger guard_tx before update on managed_tx for each row execute function guard_tx();
alter table managed_tx
  drop constraint one_tx_per_request,
  add constraint one_tx_per_request unique (submitter, request_id);
drop index tx_unsettled;
drop index tx_aside;
drop index tx_queue;
alter table managed_tx drop column unsettled, drop column queued, set (fillfactor = 80);
create index tx_queue on managed_tx (submitter, seq) where state = 'QUEUED';
create index tx_aside on managed_tx (submitter, set_aside_nonce) where state = 'QUEUED' and set_aside_nonce is not null;
create index tx_unsettled on managed_tx (submitter, nonce)
  where state in ('IN_FLIGHT', 'SUBMITTED', 'TRACKING', 'STUCK', 'PROTECT');
