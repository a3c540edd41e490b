-- Counts by minute, for rates.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
-- The history grows at its end alone, so a summary of each megabyte finds the rows of a time. A new row writes
-- nothing to this index: autovacuum summarises a range once it is full. Building it reads the whole history.
create index history_in_time on tx_history using brin (at) with (autosummarize = on);

-- Removes the summary of the last range of a part of the history. The build makes one, which each new row would
-- change.
create function keep_last_range_unsummarized(part regclass) returns void language sql as $$
  select brin_desummarize_range(i.indexrelid, greatest(pg_relation_size(part) / current_setting('block_size')::bigint - 1, 0))
    from pg_index i
    join pg_class c on c.oid = i.indexrelid
    join pg_am a on a.oid = c.relam and a.amname = 'brin'
   where i.indrelid = part
$$;
revoke all on function keep_last_range_unsummarized from public;
select keep_last_range_unsummarized(inhrelid) from pg_inherits where inhparent = 'tx_history'::regclass;

-- As before, with the line about ranges.
create or replace function make_quarter(parent text, begins date) returns boolean language plpgsql as $$
declare
  part    text := parent || to_char(begins, '_YYYY"q"Q');
  lowest  uuid := tx_id_at(begins::timestamp at time zone 'UTC');
  beyond  uuid := tx_id_at((begins + interval '3 months')::timestamp at time zone 'UTC');
  settled boolean;
begin
  if to_regclass(part) is not null then return false; end if;
  execute format('select exists (select from %I where tx_id >= $1 and tx_id < $2)', parent || '_default') into settled using lowest, beyond;
  if settled then return false; end if;
  execute format('create table %I (like %I including defaults including constraints including storage)', part, parent);
  execute format('create trigger guard_truncate before truncate on %I for each statement execute function refuse_change()', part);
  execute format('alter table %I attach partition %I for values from (%L) to (%L)', parent, part, lowest, beyond);
  perform keep_last_range_unsummarized(part::regclass);
  return true;
end $$;

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
