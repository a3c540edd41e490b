-- Which database this is: the server that was written last, the mark outside the database, and planned
-- moves to another server. Also the guards that tables of every file use.
--
-- Postgres decides. A restored copy, or a replica that was promoted by mistake, lacks rows that were
-- committed elsewhere. Nothing in such a copy is used before an operator has accepted it.
--
-- How to read these files: each table is followed by its indexes, the functions of its guards, and its
-- triggers. A guard raises an error of class FP, which shared/store maps to a Go error.

-- +goose Up
-- +goose StatementBegin
-- Functions of this file read tables of later files.
set local check_function_bodies = off;

-- The canonical name of a submitter: a CAIP-10 account id in lower case. Every other spelling is refused.
-- The lengths are compared separately, since a pattern with a count in it costs ten times as much.
create domain submitter_id as text
  check (octet_length(split_part(value, ':', 3)) = 42 and octet_length(value) <= 70
         and value ~ '^eip155:[1-9][0-9]*:0x[0-9a-f]+$');

-- Refuses each statement on a table or a column that is history. Triggers named keep_… call it.
create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% is history: it is never changed', tg_table_name using errcode = 'FP004', constraint = 'history_never_changes';
end $$;

-- Refuses writes from the moment that a planned move is expected until it is confirmed or cancelled.
-- fencepost.move is on in the transactions that write the move itself.
create function refuse_while_moving() returns trigger language plpgsql as $$
begin
  if exists (select from database_move where ended_at is null) and current_setting('fencepost.move', true) is distinct from 'on' then
    raise exception 'the database is about to be moved: nothing is written to % until migrate confirm-move or migrate cancel-move', tg_table_name
      using errcode = 'FP013', constraint = 'move_expected';
  end if;
  return null;
end $$;

-- The identity of the database, one row. Names that leave the database, such as those of Cloud Tasks,
-- carry the epoch, so that a re-created database never reuses a name of its predecessor.
create table database_identity (
  singleton         boolean     primary key default true check (singleton),
  epoch             text        not null check (epoch ~ '^[0-9a-f]{8}$'),
  system_identifier bigint      not null,
  timeline_id       integer     not null,
  accepted_at       timestamptz not null default clock_timestamp(),
  accepted_by       text        not null
);
create trigger guard_identity before delete on database_identity for each row execute function refuse_change();

-- The timeline that is written now: the first eight digits of a WAL file's name.
create function current_timeline() returns integer language sql as $$
  select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer
$$;

-- Reports whether this server is the one that was accepted last. The system identifier does not change
-- within a session, so it is read from the control file once.
create function is_accepted_database() returns boolean language plpgsql as $$
declare
  server text := current_setting('fencepost.system', true);
begin
  if coalesce(server, '') = '' then
    select system_identifier::text into server from pg_control_system();
    perform set_config('fencepost.system', server, false);
  end if;
  return (select a.system_identifier::text = server and a.timeline_id = current_timeline() from database_identity a);
end $$;

-- The identity of a new database is that of its server.
insert into database_identity (epoch, system_identifier, timeline_id, accepted_by)
select left(md5(gen_random_uuid()::text), 8), s.system_identifier, current_timeline(), 'migration'
  from pg_control_system() s;

-- The number of the last transfer. A number is compared, since a clock that was set back would make a
-- transfer look younger.
create function last_transfer_id() returns bigint language sql volatile as $$
  select coalesce(max(transfer_id), 0) from transfers_tb
$$;

-- The number of the last intent, from its sequence, since no index begins with seq. It is null where the
-- role may not read the sequence: Postgres 17 would report an unused one.
create function last_intent_seq() returns bigint language sql volatile as $$
  select case when has_sequence_privilege(q.seq, 'usage, select') then coalesce(pg_sequence_last_value(q.seq), 0) end
    from (select pg_get_serial_sequence('managed_tx', 'seq')::regclass as seq) as q
$$;

-- Each acceptance of a restored or re-created database by an operator, with the last transfer and the
-- last intent that the copy had.
create table identity_change (
  id                bigint      generated always as identity primary key,
  system_identifier bigint      not null,
  timeline_id       integer     not null,
  by                text        not null check (by <> ''),
  reason            text        not null check (reason <> ''),
  at                timestamptz not null default clock_timestamp(),
  transfers_upto    bigint      default last_transfer_id(),
  intents_upto      bigint      default last_intent_seq()
);
create trigger guard_identity_changes before update or delete on identity_change for each row execute function refuse_change();
create trigger guard_identity_changes_truncate before truncate on identity_change for each statement execute function refuse_change();

-- The ids of the mark, an object outside the database. A copy that misses the last commits does not hold
-- the mark's id, even if its identity looks right.
create table database_mark (
  id           text        primary key,
  sequence     bigint      generated always as identity,
  written_over bigint      not null check (written_over >= 0), -- a generation; 0: there was no object
  generation   bigint,                                         -- at which it was seen; null: not yet
  reason       text        not null,
  at           timestamptz not null default clock_timestamp()
);
create trigger refuse_while_moving before insert on database_mark for each statement execute function refuse_while_moving();

-- Distrusts a database that does not hold the mark that was read outside it. Its effect is that of
-- migrate distrust, with the mark as the reason.
create function distrust_by_mark(of_id text, of_generation bigint, evidence text) returns void
language sql security definer set search_path = public, pg_temp as $$
  update database_identity
     set timeline_id = -1, accepted_at = clock_timestamp(),
         accepted_by = 'distrusted: the mark outside the database is not of this database: ' || evidence
   where timeline_id <> -1 and not exists (select from database_mark where id = of_id or generation >= of_generation);
  select protect_all();
$$;

-- Records the mark that was read. Marks prepared over an older generation can no longer be written, so
-- they are removed, as are marks that the object held before.
create function record_mark(of_id text, of_generation bigint) returns void language sql security definer set search_path = public, pg_temp as $$
  update database_mark set generation = of_generation where id = of_id;
  delete from database_mark
   where id <> of_id and written_over < of_generation
     and exists (select from database_mark where id = of_id and generation = of_generation);
$$;
revoke execute on function distrust_by_mark(text, bigint, text), record_mark(text, bigint) from public;

-- A planned move to another server: an upgrade, or a switch to a replica. While one is open, no write
-- that a copy would need is allowed: see refuse_while_moving.
create table database_move (
  id            bigint      generated always as identity primary key,
  mark          text        not null, -- the last one of the server that is left
  from_system   bigint      not null,
  from_timeline integer     not null,
  by            text        not null check (by <> ''),
  reason        text        not null check (reason <> ''),
  at            timestamptz not null default clock_timestamp(),
  outcome       text        check (outcome in ('CONFIRMED', 'CANCELLED')),
  ended_at      timestamptz,
  ended_by      text        check (ended_by <> ''),
  ended_reason  text        check (ended_reason <> ''),
  to_system     bigint,
  to_timeline   integer,
  after_change  bigint,     -- the last row of identity_change when it was confirmed; 0: there was none
  constraint move_is_ended_by_an_operator check ((ended_at is null) = (outcome is null) and (ended_at is null) = (ended_by is null)
    and (ended_at is null) = (ended_reason is null)),
  constraint confirmed_on_a_server check (coalesce(outcome = 'CONFIRMED', false) = (to_system is not null)
    and (to_system is null) = (to_timeline is null) and (to_system is null) = (after_change is null))
);
create unique index one_open_move on database_move ((ended_at is null)) where ended_at is null;
create trigger guard_move before update on database_move for each row when (old.ended_at is not null) execute function refuse_change();
create trigger guard_move_row before delete on database_move for each row execute function refuse_change();
create trigger guard_moves_truncate before truncate on database_move for each statement execute function refuse_change();
-- +goose StatementEnd
