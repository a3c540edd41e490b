-- Managed transactions and every signed version of them.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

create table managed_tx (
  tx_id                 uuid         primary key,
  submitter             submitter_id not null references submitter,
  request_id            text         not null check (octet_length(request_id) between 1 and 128),
  seq                   bigint       generated always as identity,
  caller                text         not null,
  payload               jsonb        not null,
  fingerprint           bytea        not null check (octet_length(fingerprint) = 32),
  nonce                 bigint       check (nonce >= 0),
  prev_nonce            bigint,
  first_nonce           bigint       generated always as (case when prev_nonce is null then nonce end) stored,
  set_aside_nonce       bigint,
  raw_tx_hex            text         check (raw_tx_hex ~ '^0x([0-9a-f]{2})+$'),
  tx_hash               text         check (tx_hash ~ '^0x[0-9a-f]{64}$'),
  replaced_by_hash      text         check (replaced_by_hash ~ '^0x[0-9a-f]{64}$'),
  state                 text         not null default 'QUEUED',
  sub_state             text,
  first_submit_at       timestamptz,
  last_submit_at        timestamptz,
  next_resubmit_at      timestamptz,
  submit_attempts       integer      not null default 0 check (submit_attempts >= 0),
  last_receipt_check_at timestamptz,
  next_check_at         timestamptz,
  last_error            text,
  last_gas_params       jsonb,
  last_mempool_diag     jsonb,
  receipt               jsonb,
  confirmations         jsonb,
  confirmed_at          timestamptz,
  fencing_token         bigint,
  created_at            timestamptz  not null default clock_timestamp(),
  updated_at            timestamptz  not null default clock_timestamp(),

  constraint one_tx_per_request unique (submitter, request_id),
  constraint one_tx_per_nonce unique (submitter, nonce),
  constraint versions_bind_here unique (tx_id, submitter, nonce),

  -- No gap: a nonce is bound only where its predecessor is bound. Only the
  -- submitter's very first has none, and that is its start_nonce.
  constraint follows_the_last_nonce foreign key (submitter, prev_nonce) references managed_tx (submitter, nonce),
  constraint begins_at_start_nonce foreign key (submitter, first_nonce) references submitter (submitter, start_nonce),
  constraint prev_nonce_is_one_less check (prev_nonce = nonce - 1),
  constraint prev_nonce_of_a_nonce check (prev_nonce is null or nonce is not null),

  constraint state_is_known check (state in
    ('QUEUED', 'IN_FLIGHT', 'SUBMITTED', 'TRACKING', 'STUCK', 'PROTECT', 'CONFIRMED', 'FAILED')),
  constraint sub_state_fits check (case state
    when 'TRACKING' then sub_state is not null and sub_state in ('PENDING', 'INCLUDED')
    when 'FAILED' then sub_state is not null
      and sub_state in ('REJECTED', 'CANCELLED', 'REVERTED', 'PLACEHOLDER', 'DISPLACED')
    else sub_state is null end),
  constraint nonce_fits_state check (case
    when state = 'QUEUED' then nonce is null
    when state = 'FAILED' and sub_state in ('REJECTED', 'CANCELLED') then nonce is null
    when state = 'FAILED' and sub_state = 'DISPLACED' then true
    else nonce is not null end),
  constraint signed_as_one check ((raw_tx_hex is null) = (tx_hash is null)),
  constraint bytes_fit_state check (case
    when state in ('QUEUED', 'IN_FLIGHT') then tx_hash is null
    when state in ('SUBMITTED', 'TRACKING', 'CONFIRMED') then tx_hash is not null
    else true end),
  constraint sent_fits_state check (case
    when state in ('SUBMITTED', 'TRACKING') then last_submit_at is not null and first_submit_at is not null
    else true end),
  constraint receipt_fits_state check (case
    when state = 'TRACKING' and sub_state = 'INCLUDED' then receipt is not null
    when state = 'TRACKING' then receipt is null
    when state = 'CONFIRMED' then receipt is not null and confirmations is not null
    when state = 'FAILED' and sub_state in ('REVERTED', 'PLACEHOLDER') then receipt is not null
    else true end),
  constraint confirmed_at_fits_state check ((confirmed_at is not null) =
    (state = 'CONFIRMED' or (state = 'FAILED' and sub_state in ('REVERTED', 'PLACEHOLDER'))))
) with (fillfactor = 80);

create unique index first_nonce on managed_tx (submitter) where nonce is not null and prev_nonce is null;

-- The queue, and what holds a nonce: both only over unfinished rows.
create index tx_queue on managed_tx (submitter, seq) where state = 'QUEUED';
create index tx_aside on managed_tx (submitter, set_aside_nonce) where state = 'QUEUED' and set_aside_nonce is not null;
create index tx_unsettled on managed_tx (submitter, nonce)
  where state in ('IN_FLIGHT', 'SUBMITTED', 'TRACKING', 'STUCK', 'PROTECT');

-- Any of them may be the one that is mined. The key binds each for ever to one
-- nonce of one transaction.
create table tx_version (
  tx_hash       text         primary key check (tx_hash ~ '^0x[0-9a-f]{64}$'),
  tx_id         uuid         not null,
  submitter     submitter_id not null,
  nonce         bigint       not null,
  version       integer      not null check (version > 0),
  kind          text         not null check (kind in ('ORIGINAL', 'BUMP', 'PLACEHOLDER')),
  raw_tx_hex    text         not null check (raw_tx_hex ~ '^0x([0-9a-f]{2})+$'),
  gas_params    jsonb        not null,
  fencing_token bigint       not null,
  created_at    timestamptz  not null default clock_timestamp(),
  constraint one_of_each_version unique (tx_id, version),
  constraint bound_for_ever foreign key (tx_id, submitter, nonce) references managed_tx (tx_id, submitter, nonce)
);

-- +goose Down
drop table tx_version;
drop table managed_tx;
