-- Which database this is. Postgres is the only authority, and only the database
-- that we wrote last: a restored copy is told by its identity (spec of PROTECT),
-- and names that leave the house carry its epoch, so that a re-created database
-- never meets names its predecessor has used up.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

create table authority (
  singleton         boolean     primary key default true check (singleton),
  epoch             text        not null check (epoch ~ '^[0-9a-f]{8}$'),
  system_identifier bigint      not null,
  timeline_id       integer     not null,
  accepted_at       timestamptz not null default clock_timestamp(),
  accepted_by       text        not null
);

insert into authority (epoch, system_identifier, timeline_id, accepted_by)
select left(md5(gen_random_uuid()::text), 8), s.system_identifier, c.timeline_id, 'migration'
  from pg_control_system() s, pg_control_checkpoint() c;

-- A submitter's one canonical name; every other spelling is refused.
create domain submitter_id as text
  check (value ~ '^eip155:[1-9][0-9]{0,19}:0x[0-9a-f]{40}$');

-- +goose Down
drop domain submitter_id;
drop table authority;
