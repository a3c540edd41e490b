-- The foreign transactions by which nonces of our submitters were consumed: read from
-- the chain at finality while an episode of PROTECT is open, one row for each nonce. The
-- release from PROTECT is judged by them.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- call_digest is sha256 over the address called, the value and the data: see CallDigest
-- in shared/nonce. The data are left out where they are long.
create table foreign_transaction (
  submitter    submitter_id  not null references submitter,
  nonce        bigint        not null,
  episode      integer       not null, -- of PROTECT, in which it was read
  tx_hash      text          not null,
  block_number bigint        not null,
  block_hash   text          not null,
  to_address   text,                   -- null: it made a contract
  value_wei    numeric(78,0) not null,
  data         bytea,                  -- null: more than is kept
  call_digest  bytea         not null,
  succeeded    boolean       not null,
  receipt      json          not null, -- as the node gave it
  node         text          not null,
  read_at      timestamptz   not null default clock_timestamp(),
  primary key (submitter, nonce),
  constraint foreign_is_of_the_chain check (nonce >= 0 and episode > 0 and block_number >= 0 and value_wei >= 0
    and tx_hash ~ '^0x[0-9a-f]{64}$' and block_hash ~ '^0x[0-9a-f]{64}$' and octet_length(call_digest) = 32
    and coalesce(to_address ~ '^0x[0-9a-f]{40}$', true))
);
create index foreign_by_hash on foreign_transaction (tx_hash);

-- +goose Down
drop table foreign_transaction;
