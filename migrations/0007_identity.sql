-- The database is the one we wrote last. A restored copy runs on another
-- timeline, a re-created one in another system: before any row of it is
-- believed, a person has to accept it.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- The timeline that is written now: the first eight digits of a WAL file's name.
create function current_timeline() returns integer
language sql as $$
  select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer
$$;

create function is_authority() returns boolean
language sql as $$
  select a.system_identifier = s.system_identifier and a.timeline_id = current_timeline()
    from authority a, pg_control_system() s
$$;

update authority set timeline_id = current_timeline();

create table authority_change (
  id                bigint      generated always as identity primary key,
  system_identifier bigint      not null,
  timeline_id       integer     not null,
  by                text        not null check (by <> ''),
  reason            text        not null check (reason <> ''),
  at                timestamptz not null default clock_timestamp()
);
create trigger keep_authority_changes before update or delete on authority_change for each row execute function refuse_change();

-- +goose Down
drop table authority_change;
drop function is_authority;
drop function current_timeline;
