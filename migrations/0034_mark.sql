-- The ids of the mark outside the database: a copy that was written less far than the
-- mark does not hold its id, however its identity looks.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

create table authority_mark (
  id           text        primary key,
  sequence     bigint      generated always as identity,
  written_over bigint      not null check (written_over >= 0), -- a generation; 0: there was no object
  generation   bigint,                                         -- at which it was seen; null: not yet
  reason       text        not null,
  at           timestamptz not null default clock_timestamp()
);

-- +goose Down
drop table authority_mark;
