-- Events: what became of each transaction, numbered from 1 without a hole by a counter
-- on its row, which the statement that changes the row raises. A trigger makes them in
-- that statement. Where the session that accepted the transaction keeps events, they
-- are rows of event_outbox, of the same commit; a session that logs them is told of
-- them as notices. Publishing moves rows to event, where they get their positions.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- Whether its events are kept is settled once for a transaction, by the session that
-- accepts it: all of them are, or none. Of what is here already none is.
alter table managed_tx
  add column event_sequence integer not null default 0,
  add column events_kept    boolean not null default coalesce(current_setting('fencepost.events', true) = 'keep', false);
alter table managed_tx alter column event_sequence set default 1;

create table event_outbox (
  id        bigint       generated always as identity primary key,
  tx_id     uuid         not null,
  sequence  integer      not null,
  type      text         not null,
  submitter submitter_id not null,
  caller    text         not null,
  body      json         not null
);

-- A row's position is given when it is seen to be committed, so that whoever has read
-- to a position has missed nothing below it. Only who holds the counter gives any.
create table event (
  position  bigint       primary key,
  tx_id     uuid         not null,
  sequence  integer      not null,
  type      text         not null,
  submitter submitter_id not null,
  caller    text         not null,
  body      json         not null,
  at        timestamptz  not null default clock_timestamp(),
  constraint one_event_each unique (tx_id, sequence)
);
create index events_of_submitter on event (submitter, position);
create index events_of_caller on event (caller, position);

create table event_counter (
  singleton boolean primary key default true check (singleton),
  last      bigint  not null default 0, -- position given
  forgotten bigint  not null default 0, -- position that is no longer kept
  epoch     text    not null            -- of the database: positions of another are not given again
);
insert into event_counter (epoch) select epoch from authority;

-- What a receiver has been given of a submitter's events, and who is at it: a lease, as
-- that of a submitter.
create table event_stream (
  submitter       submitter_id not null,
  receiver        text         not null,
  delivered       bigint       not null, -- position of the last that was taken
  last            bigint       not null, -- position of the last that there is
  pending         boolean      not null generated always as (delivered < last) stored,
  oldest_at       timestamptz,           -- since when the next one waits
  owner_node      text         not null default '',
  fencing_token   bigint       not null default 0,
  expires_at      timestamptz  not null default clock_timestamp(),
  wake            boolean      not null default false,
  failures        integer      not null default 0, -- in a row
  next_attempt_at timestamptz  not null default clock_timestamp(),
  last_error      text,
  primary key (submitter, receiver),
  constraint delivered_is_there check (delivered <= last)
) with (fillfactor = 70);
create index pending_streams on event_stream (receiver, oldest_at) where pending;

-- How a receiver has done lately, whoever's events it was given.
create table event_receiver (
  receiver        text        primary key,
  failures        integer     not null, -- without an answer, in a row
  next_attempt_at timestamptz not null
);

-- +goose StatementBegin
create function blocks_added(before jsonb, after jsonb) returns jsonb
language sql immutable as $$
  select case when coalesce(jsonb_agg(block order by place) filter (where place <= jsonb_array_length(before)), '[]') = before
              then coalesce(jsonb_agg(block order by place) filter (where place > jsonb_array_length(before)), '[]') end
    from jsonb_array_elements(after) with ordinality as list (block, place)
$$;
comment on function blocks_added is 'what a list of blocks has gained at its end; null: it is another list';

create function event_body(kind text, tx_id uuid, submitter text, request_id text, sequence integer, data json) returns json
language sql stable as $$
  select json_build_object('type', kind, 'timestamp', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                           'txId', tx_id, 'submitter', submitter, 'requestId', request_id, 'sequence', sequence, 'data', data)
$$;

-- Tells the session that has made events: of each in whole where it logs them, else of
-- whose there are.
create function tell_events(whole json[], of_submitters text[]) returns void
language plpgsql as $$
declare
  one text;
begin
  if current_setting('fencepost.events', true) = 'log' then
    foreach one in array coalesce(whole::text[], '{}') loop
      raise notice using message = one, errcode = 'FPE01';
    end loop;
  end if;
  foreach one in array coalesce(of_submitters, '{}') loop
    raise notice using message = one, errcode = 'FPE02';
  end loop;
end
$$;

create function make_first_events() returns trigger
language plpgsql as $$
declare
  whole json[];
  kept  text[];
begin
  with made as (
    select tx_id, event_sequence, kind, submitter, caller, events_kept, event_body(kind, tx_id, submitter, request_id, event_sequence, data) as body
      from new_txs,
           lateral (select 'TxAccepted' as kind, '{}'::json as data where state <> 'FAILED'
                    union all
                    select 'TxFailed', json_build_object('reason', sub_state, 'detail', last_error) where state = 'FAILED') as first
     order by seq
  ), put as (
    insert into event_outbox (tx_id, sequence, type, submitter, caller, body)
    select tx_id, event_sequence, kind, submitter, caller, body from made where events_kept
  )
  select array_agg(body), array_agg(distinct submitter::text) filter (where events_kept) into whole, kept from made;
  perform tell_events(whole, kept);
  return null;
end
$$;

-- Each event has one condition, here and, as a number, in the statement that raises the
-- counter. Where the two differ the statement is refused: a hole would never be filled.
create function make_events() returns trigger
language plpgsql set enable_nestloop = off as $$
declare
  whole json[];
  kept  text[];
  wrong uuid;
begin
  if current_setting('fencepost.events', true) is distinct from 'log' and not exists (select from new_txs where events_kept) then
    return null;
  end if;
  select n.tx_id into wrong
    from new_txs n
    join old_txs o using (tx_id)
   where n.event_sequence - o.event_sequence is distinct from
         (n.state = 'SUBMITTED' and n.tx_hash is distinct from o.tx_hash)::int
         + (n.receipt ->> 'blockHash' is distinct from o.receipt ->> 'blockHash')::int
         + (coalesce(n.confirmations, '[]') <> coalesce(o.confirmations, '[]') or n.state = 'CONFIRMED' and o.state <> 'CONFIRMED')::int
         + (n.state = 'FAILED' and o.state <> 'FAILED')::int
   limit 1;
  if wrong is not null then
    raise exception 'the events of transaction % are not counted', wrong using errcode = 'FP010', constraint = 'events_are_counted';
  end if;
  with made as (
    select n.tx_id, n.submitter, n.request_id, n.caller, n.events_kept, n.nonce, n.seq, e.kind, e.data,
           o.event_sequence + (row_number() over (partition by n.tx_id order by e.place))::int as sequence
      from new_txs n
      join old_txs o using (tx_id),
           lateral (
             select 1 as place, 'TxSubmitted' as kind, json_build_object('txHash', n.tx_hash) as data
              where n.state = 'SUBMITTED' and n.tx_hash is distinct from o.tx_hash
             union all
             select 2, 'TxReceiptUpdated', json_build_object(
                      'txHash', n.receipt -> 'txHash', 'blockNumber', n.receipt -> 'blockNumber', 'blockHash', n.receipt -> 'blockHash',
                      'status', case when n.receipt is null then 'removed' when (n.receipt ->> 'succeeded')::boolean then 'succeeded' else 'reverted' end)
              where n.receipt ->> 'blockHash' is distinct from o.receipt ->> 'blockHash'
             union all
             select 3, 'TxConfirmed', json_build_object(
                      'confirmations', coalesce(added, coalesce(n.confirmations, '[]')), 'newFork', added is null, 'final', n.state = 'CONFIRMED')
               from blocks_added(coalesce(o.confirmations, '[]'), coalesce(n.confirmations, '[]')) as added
              where coalesce(n.confirmations, '[]') <> coalesce(o.confirmations, '[]') or n.state = 'CONFIRMED' and o.state <> 'CONFIRMED'
             union all
             select 4, 'TxFailed', json_build_object('reason', n.sub_state, 'detail', n.last_error)
              where n.state = 'FAILED' and o.state <> 'FAILED') as e
  ), bodies as (
    select *, event_body(kind, tx_id, submitter, request_id, sequence, data) as body from made order by nonce, seq, sequence
  ), put as (
    insert into event_outbox (tx_id, sequence, type, submitter, caller, body)
    select tx_id, sequence, kind, submitter, caller, body from bodies where events_kept order by nonce, seq, sequence
  )
  select array_agg(body order by nonce, seq, sequence), array_agg(distinct submitter::text) filter (where events_kept)
    into whole, kept
    from bodies;
  perform tell_events(whole, kept);
  return null;
end
$$;
-- +goose StatementEnd

create trigger make_first_events after insert on managed_tx
  referencing new table as new_txs for each statement
  when (current_setting('fencepost.events', true) in ('keep', 'log'))
  execute function make_first_events();
create trigger make_events after update on managed_tx
  referencing old table as old_txs new table as new_txs for each statement execute function make_events();

create trigger keep_events before update on event for each row execute function refuse_change();

select copy_grants('managed_tx', of_table, array['SELECT', 'INSERT', 'UPDATE'])
  from unnest(array['event_outbox', 'event', 'event_counter', 'event_stream', 'event_receiver']) as t (of_table);
-- What has its position leaves the outbox; events go when they are old.
-- +goose StatementBegin
do $$
declare
  held record;
begin
  for held in
    select case when a.grantee = 0 then 'public' else quote_ident(a.grantee::regrole::text) end as grantee
      from pg_class c, aclexplode(c.relacl) as a
     where c.oid = 'managed_tx'::regclass and a.grantee <> c.relowner and a.privilege_type = 'INSERT'
  loop
    execute format('grant delete on event_outbox, event to %s', held.grantee);
  end loop;
end
$$;
-- +goose StatementEnd

-- +goose Down
drop trigger make_events on managed_tx;
drop trigger make_first_events on managed_tx;
drop function make_events;
drop function make_first_events;
drop function tell_events;
drop function event_body;
drop function blocks_added;
drop table event_receiver;
drop table event_stream;
drop table event_counter;
drop table event;
drop table event_outbox;
alter table managed_tx drop column events_kept, drop column event_sequence;
