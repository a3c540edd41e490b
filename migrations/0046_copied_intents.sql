-- The last intent that was there when a database was accepted, by its number. What was held
-- beside a foreign transaction by then may have run, or been cancelled, after the backup.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- The sequence is asked, and not the table, which is read by no index on seq alone. A
-- clock that was set back does not make an intent younger. Null where the role may not
-- ask: Postgres 17 would tell it what it tells of a sequence that was never used.
-- +goose StatementBegin
create function last_intent_seq() returns bigint
language sql volatile as $$
  select case when has_sequence_privilege(q.seq, 'usage, select') then coalesce(pg_sequence_last_value(q.seq), 0) end
    from (select pg_get_serial_sequence('managed_tx', 'seq')::regclass as seq) as q
$$;
-- +goose StatementEnd
alter table authority_change add column intents_upto bigint;
alter table authority_change alter column intents_upto set default last_intent_seq();

-- +goose Down
alter table authority_change drop column intents_upto;
drop function last_intent_seq;
