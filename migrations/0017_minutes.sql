-- Counts by minute, for rates.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
-- The history grows at its end alone, so a summary of each megabyte finds the rows of a time. A new row writes
-- nothing to this index: autovacuum summarises a range once it is full. Building it reads the whole history.
create index history_in_time on tx_history using brin (at) with (autosummarize = on);

-- What was accepted and what ended in a minute. The sweep counts each minute once, after it is over, and
-- deletes old rows. Element n of seconds, from 1 on, counts transactions that the chain ended less than
-- 2 ^ ((n - 21) / 4) seconds after they were accepted, and that element n - 1 does not count.
create table tx_minute (
  minute    timestamptz not null,
  accepted  integer     not null,
  confirmed integer     not null,
  failed    integer     not null,
  seconds   integer[]   not null,
  constraint one_row_a_minute primary key (minute),
  constraint minute_is_whole check (minute = date_bin('1 minute', minute, 'epoch')),
  constraint counts_are_counts check (accepted >= 0 and confirmed >= 0 and failed >= 0 and 0 <= all (seconds))
);
-- +goose StatementEnd
