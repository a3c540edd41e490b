-- Payouts: transactions that the transfer coordinator alone makes and cancels, on
-- submitters that nobody else may use; and for each that is CONFIRMED what proves
-- that it paid, for ever. Payloads and receipts are archived; a proof is not.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- "transfer" is the coordinator's name. Whoever may post beside it could take a
-- payout's request for a transaction of his own.
alter table submitter
  add constraint payers_are_the_coordinators check (not 'transfer' = any (callers) or callers = array['transfer']);

create table payout_confirmed (
  number     bigint       not null generated always as identity,
  tx_id      uuid         not null,
  submitter  submitter_id not null,
  request_id text         not null, -- the transfer's req_id
  payload    json,                  -- null: there was none, which proves nothing
  receipt    json,                  -- the final one, as the node gave it
  at         timestamptz  not null default clock_timestamp(),
  tx         xid8         not null default pg_current_xact_id(), -- as in transfer_operations
  constraint one_proof_per_payout primary key (tx_id),
  constraint proof_of_a_transaction foreign key (tx_id) references managed_tx
);
create index payouts_confirmed on payout_confirmed (tx, number);

-- +goose StatementBegin
-- At the commit, since the receipt is stored after the row. It takes the documents as
-- they are, and reads nothing in them: it must never keep a transaction from its end.
create function keep_proof() returns trigger
language plpgsql as $$
begin
  insert into payout_confirmed (tx_id, submitter, request_id, payload, receipt)
  select new.tx_id, new.submitter, new.request_id,
         (select body from tx_document where tx_id = new.tx_id and name = 'payload'),
         (select body from tx_document where tx_id = new.tx_id and name = 'receipt:' || (new.receipt ->> 'blockHash'))
    from submitter s
   where s.submitter = new.submitter and s.callers = array['transfer'];
  return null;
end
$$;
-- +goose StatementEnd

create constraint trigger keep_proof after update on managed_tx
  deferrable initially deferred for each row
  when (new.caller = 'transfer' and new.state = 'CONFIRMED' and old.state <> 'CONFIRMED')
  execute function keep_proof();
create trigger keep_proofs before update or delete on payout_confirmed for each row execute function refuse_change();
create trigger keep_all_proofs before truncate on payout_confirmed for each statement execute function refuse_change();

select copy_grants('managed_tx', 'payout_confirmed', array['SELECT', 'INSERT']);

-- +goose Down
drop trigger keep_proof on managed_tx;
drop function keep_proof;
drop table payout_confirmed;
alter table submitter drop constraint payers_are_the_coordinators;
