-- Submitters, their leases and their nonce cursors.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

create table submitter (
  submitter     submitter_id primary key,
  signer        text         not null check (signer <> ''),
  start_nonce   bigint       not null check (start_nonce >= 0),
  start_reason  text,
  max_in_flight integer      not null check (max_in_flight between 1 and 10000),
  status        text         not null default 'ACTIVE' check (status in ('ACTIVE', 'SUSPENDED')),
  callers       text[]       not null,
  created_at    timestamptz  not null default clock_timestamp(),
  created_by    text         not null check (created_by <> ''),
  swept_at      timestamptz  not null default '-infinity',
  constraint start_nonce_to_refer_to unique (submitter, start_nonce),
  constraint start_is_explained check (start_nonce = 0 or coalesce(start_reason, '') <> '')
);

-- Released means owner_node = ''. Rows are never deleted: a token is never given twice.
create table submitter_lease (
  submitter     submitter_id primary key,
  owner_node    text         not null,
  fencing_token bigint       not null check (fencing_token > 0),
  expires_at    timestamptz  not null,
  updated_at    timestamptz  not null,
  wake          boolean      not null default false
) with (fillfactor = 50);

create table submitter_nonce_cursor (
  submitter          submitter_id primary key references submitter,
  next_nonce         bigint       not null check (next_nonce >= 0),
  in_flight_tx_id    uuid,
  in_flight_nonce    bigint,
  in_flight_state    text         not null default 'IDLE' check (in_flight_state in ('IDLE', 'IN_FLIGHT', 'PROTECT')),
  final_block_number bigint,
  suspicion          jsonb,
  fencing_token      bigint       not null default 0,
  updated_at         timestamptz  not null default clock_timestamp(),
  constraint in_flight_is_one_fact check ((in_flight_tx_id is null) = (in_flight_nonce is null)),
  constraint in_flight_holds_something check (in_flight_state <> 'IN_FLIGHT' or in_flight_nonce is not null),
  constraint idle_holds_nothing check (in_flight_state <> 'IDLE' or in_flight_nonce is null),
  constraint in_flight_is_below_next check (in_flight_nonce < next_nonce)
) with (fillfactor = 50);

-- PROTECT is a fact of its own; the cursor's in_flight_state only shows it.
create table protect_episode (
  submitter submitter_id not null references submitter,
  episode   integer      not null check (episode > 0),
  opened_at timestamptz  not null default clock_timestamp(),
  evidence  jsonb        not null,
  closed_at timestamptz,
  closed_by text,
  mode      text check (mode in ('resume', 'resync')),
  reason    text,
  primary key (submitter, episode),
  constraint closed_by_a_human check ((closed_at is null) = (closed_by is null)
    and (closed_at is null) = (reason is null) and (closed_at is null) = (mode is null))
);
create unique index one_open_episode on protect_episode (submitter) where closed_at is null;

-- The fence of a batch: raises FP001 unless the lease is held now, and keeps
-- its row locked until the batch commits, so that a takeover waits for it.
-- +goose StatementBegin
create function hold_lease(held text, owner text, token bigint) returns void
language plpgsql as $$
declare
  until timestamptz;
begin
  select expires_at into until
    from submitter_lease
   where submitter = held and owner_node = owner and fencing_token = token
     for share;
  if until is null or until <= clock_timestamp() then
    raise exception 'fenced: % is not held by % under token %', held, owner, token
      using errcode = 'FP001';
  end if;
end
$$;
-- +goose StatementEnd

-- +goose Down
drop function hold_lease;
drop table protect_episode;
drop table submitter_nonce_cursor;
drop table submitter_lease;
drop table submitter;
