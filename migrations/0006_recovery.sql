-- Recovery: the foreign transactions that consumed nonces of our submitters. They are read from the chain
-- during a PROTECT incident, and the release from PROTECT decides by them.

-- +goose Up
-- +goose StatementBegin
-- A foreign transaction at its nonce, read at finality. call_digest is SHA-256 over address, value and data:
-- see CallDigest in shared/txmanager.
create table foreign_transaction (
  submitter    submitter_id  not null references submitter,
  nonce        bigint        not null,
  incident      integer       not null, -- the PROTECT incident in which it was read
  tx_hash      text          not null,
  block_number bigint        not null,
  block_hash   text          not null,
  to_address   text,                   -- null: it deployed a contract
  value_wei    numeric(78,0) not null,
  data         bytea,                  -- null: it is longer than what is kept
  call_digest  bytea         not null,
  succeeded    boolean       not null,
  receipt      json          not null, -- as the node gave it
  node         text          not null,
  read_at      timestamptz   not null default clock_timestamp(),
  primary key (submitter, nonce),
  constraint foreign_is_of_the_chain check (nonce >= 0 and incident > 0 and block_number >= 0 and value_wei >= 0
    and tx_hash ~ '^0x[0-9a-f]{64}$' and block_hash ~ '^0x[0-9a-f]{64}$' and octet_length(call_digest) = 32
    and coalesce(to_address ~ '^0x[0-9a-f]{40}$', true))
);
create index foreign_by_hash on foreign_transaction (tx_hash);

-- A foreign transaction of which no request was known at the release. A restored database may have lost that
-- request, and its caller posts it again. So a new intent with the same call is held, one for each such
-- nonce, until an operator decides.
create table foreign_hold (
  submitter   submitter_id not null,
  nonce       bigint       not null,
  call_digest bytea        not null,   -- that of the foreign transaction
  tx_id       uuid         references managed_tx, -- the intent that is held for this nonce
  created_at  timestamptz  not null default clock_timestamp(),
  ended_at    timestamptz,
  outcome     text,
  by          text,
  reason      text,
  primary key (submitter, nonce),
  constraint hold_has_its_transaction foreign key (submitter, nonce) references foreign_transaction,
  constraint hold_is_ended_by_an_operator check (case
    when ended_at is null then outcome is null and by is null and reason is null
    else coalesce(outcome in ('MATCHED', 'WRITTEN_OFF') and by <> '' and reason <> '', false) and (outcome <> 'MATCHED' or tx_id is not null) end)
);
create index open_holds on foreign_hold (submitter, call_digest) where ended_at is null;
create unique index one_hold_per_tx on foreign_hold (tx_id) where ended_at is null and tx_id is not null;
create trigger guard_hold before update on foreign_hold for each row when (old.ended_at is not null) execute function refuse_change();
create trigger refuse_while_moving before insert or update on foreign_hold for each statement execute function refuse_while_moving();

-- How far the blocks of a chain were read for foreign transactions of a submitter. It is used where the
-- chain's nodes keep no nonce counts of old blocks.
create table foreign_reading (
  submitter   submitter_id not null,
  incident     integer      not null, -- the PROTECT incident in which they are read
  start_block bigint       not null,
  block       bigint       not null, -- all blocks after start_block, up to this one, were read
  final_block bigint       not null, -- the last final block, when it was last asked for
  again       bigint,                -- how far they were read once more; null: they are not read again now
  passes      integer      not null default 0, -- how often all of them were read
  ended_at    timestamptz,           -- when all final blocks had been read, the last time; null: not yet
  moved_at    timestamptz  not null default clock_timestamp(),
  constraint one_foreign_reading_per_submitter primary key (submitter),
  constraint foreign_reading_of_a_submitter foreign key (submitter) references submitter,
  constraint foreign_reading_is_in_order check (incident > 0 and start_block >= 0 and block >= start_block and final_block >= 0
    and passes >= 0 and coalesce(again between 0 and block, true))
);
-- +goose StatementEnd
