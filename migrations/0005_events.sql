-- Events: what became of each transaction, numbered from 1 without a gap by a counter on its row. The
-- statement that changes the row raises the counter, and a trigger of that statement makes the events.
-- Publishing moves them from event_outbox to event, where each gets its position.

-- +goose Up
-- +goose StatementBegin
-- Events of committed transactions that have no position yet.
create table event_outbox (
  id        bigint       generated always as identity primary key,
  tx_id     uuid         not null,
  sequence  integer      not null,
  type      text         not null,
  submitter submitter_id not null,
  caller    text         not null,
  body      json         not null
);

-- Events with their positions. A row gets its position after its commit was seen, from the holder of
-- event_counter. So a reader that has read up to a position has missed no event below it.
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
create trigger guard_events before update on event for each row execute function refuse_change();

create table event_counter (
  singleton boolean primary key default true check (singleton),
  last      bigint  not null default 0, -- the last position that was given
  forgotten bigint  not null default 0, -- positions up to it are no longer kept
  epoch     text    not null            -- of the database: positions of another one are not given again
);
create trigger refuse_while_moving before insert or update on event_counter for each statement execute function refuse_while_moving();
insert into event_counter (epoch) select epoch from database_identity;

-- The delivery queue of one submitter for one webhook endpoint, with the lease of its publisher.
create table event_delivery_queue (
  submitter       submitter_id not null,
  endpoint        text         not null,
  delivered       bigint       not null, -- position of the last event that the endpoint accepted
  last            bigint       not null, -- position of the last event that there is
  pending         boolean      not null generated always as (delivered < last) stored,
  oldest_at       timestamptz,           -- since when the next event waits
  owner_node      text         not null default '',
  fencing_token   bigint       not null default 0,
  expires_at      timestamptz  not null default clock_timestamp(),
  rerun_requested          boolean      not null default false,
  failures        integer      not null default 0, -- in a row
  next_attempt_at timestamptz  not null default clock_timestamp(),
  last_error      text,
  primary key (submitter, endpoint),
  constraint delivered_is_there check (delivered <= last)
) with (fillfactor = 70);
create index pending_delivery_queues on event_delivery_queue (endpoint, oldest_at) where pending;

-- Recent failures of a webhook endpoint, over all submitters.
create table event_endpoint (
  endpoint        text        primary key,
  failures        integer     not null, -- without an answer, in a row
  next_attempt_at timestamptz not null
);

-- The blocks that a list of confirmations gained at its end; null: it is a different list.
create function blocks_added(before jsonb, after jsonb) returns jsonb language sql immutable as $$
  select case when coalesce(jsonb_agg(block order by place) filter (where place <= jsonb_array_length(before)), '[]') = before
              then coalesce(jsonb_agg(block order by place) filter (where place > jsonb_array_length(before)), '[]') end
    from jsonb_array_elements(after) with ordinality as list (block, place)
$$;

-- The JSON document of an event.
create function event_body(kind text, tx_id uuid, submitter text, request_id text, sequence integer, data json) returns json language sql stable as $$
  select json_build_object('type', kind, 'timestamp', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                           'txId', tx_id, 'submitter', submitter, 'requestId', request_id, 'sequence', sequence, 'data', data)
$$;

-- Notifies the session that made events: of each complete event where the session logs events, otherwise of
-- the submitters that have new ones.
create function notify_events(whole json[], of_submitters text[]) returns void language plpgsql as $$
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
end $$;

-- Makes the first event of each transaction that was accepted. Whether events of a transaction are kept is
-- decided here for all of them, by the session that accepts it. A TxFailed shows the part of last_error that
-- a caller may read: the part before "; for operators: ".
create function make_first_events() returns trigger language plpgsql as $$
declare
  whole json[];
  kept  text[];
begin
  with made as (
    select tx_id, event_sequence, kind, submitter, caller, events_kept, event_body(kind, tx_id, submitter, request_id, event_sequence, data) as body
      from new_txs,
           lateral (select 'TxAccepted' as kind, '{}'::json as data where state <> 'FAILED'
                    union all
                    select 'TxFailed', json_build_object('reason', sub_state, 'detail', split_part(last_error, '; for operators: ', 1)) where state = 'FAILED') as first
     order by seq
  ), put as (
    insert into event_outbox (tx_id, sequence, type, submitter, caller, body)
    select tx_id, event_sequence, kind, submitter, caller, body from made where events_kept
  )
  select array_agg(body), array_agg(distinct submitter::text) filter (where events_kept) into whole, kept from made;
  perform notify_events(whole, kept);
  return null;
end $$;
create trigger make_first_events after insert on managed_tx
  referencing new table as new_txs for each statement
  when (current_setting('fencepost.events', true) in ('keep', 'log')) execute function make_first_events();

-- Makes the events of a change. Each kind has its condition here, and the changing statement counts by the
-- same conditions. Where the counts differ the statement is refused, since a gap would never be filled.
create function make_events() returns trigger language plpgsql set enable_nestloop = off as $$
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
             select 4, 'TxFailed', json_build_object('reason', n.sub_state, 'detail', split_part(n.last_error, '; for operators: ', 1))
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
  perform notify_events(whole, kept);
  return null;
end $$;
create trigger make_events after update on managed_tx
  referencing old table as old_txs new table as new_txs for each statement execute function make_events();
-- +goose StatementEnd
