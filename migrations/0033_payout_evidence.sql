-- What operators say of payouts that are in doubt, and the transactions that prove
-- payouts paid. A payout that was created before the last change of the authority may
-- have been paid by what the database has lost.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- The last transfer that was there when a database was accepted, by its number: a clock
-- that was set back does not make a transfer younger.
-- +goose StatementBegin
create function last_transfer_id() returns bigint
language sql volatile as $$
  select coalesce(max(transfer_id), 0) from transfers_tb
$$;
-- +goose StatementEnd
alter table authority_change add column transfers_upto bigint;
alter table authority_change alter column transfers_upto set default last_transfer_id();

create table payout_statement (
  id              bigint      not null generated always as identity,
  req_id          varchar(26) not null,
  of_confirmed    boolean     not null, -- it is about a transaction that is CONFIRMED, and not about what was lost
  paid            boolean     not null,
  tx_hash         text,                 -- of the transaction that paid
  refund          boolean,              -- of what was not paid: give it back, or pay it again
  nonces_below    bigint,               -- of what was not paid: lost bytes may be of any nonce below
  not_by          text[],               -- of what was not paid: transactions that do the same, and are others' payments
  by              text        not null,
  reason          text        not null,
  at              timestamptz not null default clock_timestamp(),
  acted_at        timestamptz,          -- of what was not paid: it took effect
  withdrawn_at    timestamptz,
  withdrawn_by    text,
  withdraw_reason text,
  constraint one_number_per_statement primary key (id),
  constraint statement_of_a_transfer foreign key (req_id) references transfers_tb (req_id),
  constraint statement_is_a_humans check (by <> '' and reason <> ''),
  constraint statement_is_whole check (paid = (tx_hash is not null) and paid = (refund is null) and paid = (nonces_below is null)
    and paid = (not_by is null)),
  constraint statement_names_a_hash check (octet_length(tx_hash) = 66 and tx_hash ~ '^0x[0-9a-f]+$'),
  constraint withdrawn_by_a_human check ((withdrawn_at is null) = (coalesce(withdrawn_by, '') = '')
    and (withdrawn_at is null) = (coalesce(withdraw_reason, '') = '')),
  constraint acted_or_withdrawn check (acted_at is null or withdrawn_at is null and not paid)
);
create unique index one_standing_statement on payout_statement (req_id, of_confirmed) where withdrawn_at is null;
create index statements_of_transfer on payout_statement (req_id, id);

-- A transaction proves one payout at most. log_index is that of the token's Transfer
-- event, -1 where the chain's own coin moved, and -2 where an operator has decided.
create table payout_proof (
  number       bigint       not null generated always as identity,
  chain_id     bigint       not null,
  tx_hash      text         not null,
  log_index    integer      not null,
  req_id       varchar(26)  not null,
  block_number bigint       not null,
  receipt      json         not null, -- as the node gave it
  statement_id bigint,                -- null: a release had named the request
  at           timestamptz  not null default clock_timestamp(),
  tx           xid8         not null default pg_current_xact_id(), -- as in transfer_operations
  constraint one_payout_per_proof primary key (chain_id, tx_hash, log_index),
  constraint one_proof_per_transfer unique (req_id),
  constraint proof_of_a_transfer foreign key (req_id) references transfers_tb (req_id),
  constraint proof_of_a_statement foreign key (statement_id) references payout_statement (id),
  constraint proof_names_a_hash check (octet_length(tx_hash) = 66 and tx_hash ~ '^0x[0-9a-f]+$'),
  constraint proof_is_in_a_block check (block_number >= 0 and log_index >= -2)
);
create index payout_proofs on payout_proof (tx, number);

-- +goose StatementBegin
-- A statement changes once: it is withdrawn, or takes effect, and never both.
create function keep_statement() returns trigger
language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.acted_at is not null or old.withdrawn_at is not null
     or (new.id, new.req_id, new.of_confirmed, new.paid, new.tx_hash, new.refund, new.nonces_below, new.not_by, new."by", new.reason, new.at)
        is distinct from (old.id, old.req_id, old.of_confirmed, old.paid, old.tx_hash, old.refund, old.nonces_below, old.not_by, old."by", old.reason, old.at) then
    raise exception 'what an operator said of a payout is history: it is never changed' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end
$$;

-- The last word against a second payment: whoever posts a payout that is in doubt is
-- refused by the database, whatever he has read before.
create function refuse_doubtful_payout() returns trigger
language plpgsql as $$
begin
  if exists (select from transfers_tb t, authority_change c
              where t.req_id = new.request_id and (c.at >= t.created_at or c.transfers_upto >= t.transfer_id))
     and not exists (select from payout_statement s where s.req_id = new.request_id and s.acted_at is not null and not s.of_confirmed) then
    raise exception 'payout % is in doubt: it may have been paid by what the database has lost', new.request_id
      using errcode = 'FP012', constraint = 'payout_in_doubt';
  end if;
  return null;
end
$$;
-- +goose StatementEnd

create trigger keep_statement before update or delete on payout_statement for each row execute function keep_statement();
create trigger keep_all_statements before truncate on payout_statement for each statement execute function refuse_change();
create trigger keep_payout_proofs before update or delete on payout_proof for each row execute function refuse_change();
create trigger keep_all_payout_proofs before truncate on payout_proof for each statement execute function refuse_change();
create trigger refuse_doubtful_payout after insert on managed_tx for each row
  when (new.caller = 'transfer' and new.state = 'QUEUED')
  execute function refuse_doubtful_payout();

select copy_grants('transfers_tb', 'payout_statement', array['SELECT', 'INSERT', 'UPDATE']);
select copy_grants('managed_tx', 'payout_proof', array['SELECT', 'INSERT']);

-- +goose Down
drop trigger refuse_doubtful_payout on managed_tx;
drop table payout_proof, payout_statement;
drop function refuse_doubtful_payout, keep_statement;
alter table authority_change drop column transfers_upto;
drop function last_transfer_id;
