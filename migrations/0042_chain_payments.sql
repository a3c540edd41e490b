-- What conservation reads of the chain itself: how far the transactions and token events
-- of each payer were read, the payments that were found, and the payouts of which a
-- payment must be found.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- All final blocks after start_block, up to block, were read. A block that was read and
-- has another hash now begins another pass: everything is read again.
create table conservation_chain (
  submitter   submitter_id not null,
  start_block bigint       not null,
  block       bigint       not null,
  block_hash  text         not null,
  sent        bigint       not null, -- so many transactions up to block, or more
  final_block bigint       not null, -- the last final block, when it was last asked for
  tokens      text[]       not null default '{}',
  pass        integer      not null default 1,
  went_back   jsonb,                 -- which block changed; a full check clears it
  read_at     timestamptz  not null default clock_timestamp(), -- when all final blocks had been read
  constraint one_reading_per_payer primary key (submitter),
  constraint reading_of_a_submitter foreign key (submitter) references submitter,
  constraint reading_is_in_order check (start_block >= 0 and block >= start_block and sent >= 0 and pass > 0)
);

-- log_index is that of the token's Transfer event, -1 where the chain's own coin moved.
create table conservation_payment (
  submitter    submitter_id  not null,
  tx_hash      text          not null,
  log_index    integer       not null,
  pass         integer       not null, -- in which it was read last
  block_number bigint        not null,
  block_hash   text          not null,
  token        text,                   -- null: the chain's own coin
  receiver     text,                   -- null: a contract was deployed
  amount       numeric(78,0) not null,
  found_at     timestamptz   not null default clock_timestamp(),
  outcome      text,                   -- null: no record explains it yet
  req_id       text,                   -- of the transfer that it paid
  constraint one_row_per_payment primary key (submitter, tx_hash, log_index),
  constraint payment_of_a_reading foreign key (submitter) references conservation_chain,
  constraint payment_is_some_money check (amount > 0 and log_index >= -1 and block_number >= 0),
  constraint payment_outcome_is_known check (outcome is null or outcome = 'PAID' and req_id is not null or outcome = 'OTHER')
);
create index payments_unexplained on conservation_payment (submitter, block_number) where outcome is null;
create index payments_of_request on conservation_payment (req_id) where req_id is not null;

-- Payouts that are COMMITTED. due is the block by which the payment must have been read.
create table conservation_owed (
  req_id varchar(26) not null,
  due    bigint,
  paid   boolean     not null default false,
  constraint one_row_per_owed primary key (req_id)
);
create index owed_and_not_found on conservation_owed (req_id) where not paid;

select copy_grants('managed_tx', of_table, array['SELECT', 'INSERT', 'UPDATE'])
  from unnest(array['conservation_chain', 'conservation_payment', 'conservation_owed']) as of_table;

-- +goose Down
drop table conservation_owed;
drop table conservation_payment;
drop table conservation_chain;
