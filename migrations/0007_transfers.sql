-- Transfers between two ledgers that share no database transaction: assets, transfers and their history,
-- halts, what operators decided, and payouts with their proofs.

-- +goose Up
-- +goose StatementBegin
-- An asset and its limits. Amounts are whole numbers of 10^-precision in every ledger, so the precision never
-- changes. The payout terms name the account that pays on a chain. Without them the asset has no payouts.
create table assets_tb (
  asset_id                  integer       primary key check (asset_id > 0),
  asset                     varchar(32)   not null check (asset ~ '^[A-Z0-9][A-Z0-9._-]*$'),
  precision                 smallint      not null check (precision between 0 and 8),
  min_transfer_amount       decimal(30,8) not null,
  max_transfer_amount       decimal(30,8) not null,
  daily_transfer_amount     decimal(30,8), -- of one user, in 24 hours; null: no limit
  daily_payout_amount       decimal(30,8), -- of one user, in 24 hours, by payouts alone; null: no limit
  status                    text          not null default 'ACTIVE' check (status in ('ACTIVE', 'SUSPENDED')),
  internal_transfer_enabled boolean       not null default true,
  chain_id                  bigint        check (chain_id > 0),
  payout_submitter          submitter_id,
  token_contract            text          check (token_contract ~ '^0x[0-9a-f]{40}$'), -- null: the native coin
  chain_decimals            smallint,
  created_at                timestamptz   not null default clock_timestamp(),
  updated_at                timestamptz   not null default clock_timestamp(),

  constraint one_asset_per_name unique (asset),
  constraint precision_key unique (asset_id, precision),
  constraint amounts_are_ordered check (min_transfer_amount > 0 and min_transfer_amount <= max_transfer_amount
    and coalesce(daily_transfer_amount >= min_transfer_amount, true)),
  constraint amounts_fit_precision check (scale(trim_scale(min_transfer_amount)) <= precision
    and scale(trim_scale(max_transfer_amount)) <= precision
    and coalesce(scale(trim_scale(daily_transfer_amount)) <= precision, true)),
  constraint amounts_fit_64_bits check (
    greatest(max_transfer_amount, daily_transfer_amount) * 10::numeric ^ precision <= 18446744073709551615),
  constraint day_of_payouts_is_an_amount check (daily_payout_amount >= min_transfer_amount
    and scale(trim_scale(daily_payout_amount)) <= precision
    and daily_payout_amount * 10::numeric ^ precision <= 18446744073709551615),
  constraint payout_terms_are_complete check ((chain_id is null) = (payout_submitter is null)
    and (chain_id is null) = (chain_decimals is null) and (token_contract is null or chain_id is not null)),
  constraint payer_is_on_the_chain check (payout_submitter like 'eip155:' || chain_id || ':%'), -- token_contract has the 0x form
  constraint chain_decimals_cover_precision check (chain_decimals between precision and 36)
);

-- An asset keeps its name and its precision.
create function guard_asset() returns trigger language plpgsql as $$
begin
  raise exception 'the name and the precision of asset % cannot change', old.asset_id using errcode = 'FP003', constraint = 'scale_never_changes';
end $$;
create trigger guard_asset after update on assets_tb for each row
  when ((old.asset_id, old.asset, old.precision) is distinct from (new.asset_id, new.asset, new.precision)) execute function guard_asset();
create trigger guard_asset_delete before delete on assets_tb for each row execute function refuse_change();
create trigger guard_assets_truncate before truncate on assets_tb for each statement execute function refuse_change();

-- The transitions of a transfer's state. shared/transfer has the same table.
create function is_transfer_transition(was smallint, becomes smallint) returns boolean language sql immutable as $$
  select (was, becomes) in ((0, 10), (0, -10), (10, 20), (10, -10), (20, 30), (30, 40), (30, -20), (-20, -30))
$$;

-- A transfer of one user. Its state changes by compare-and-set, along is_transfer_transition. A transition
-- between open states writes no index, as in managed_tx.
create table transfers_tb (
  transfer_id       bigserial     primary key,
  req_id            varchar(26)   not null check (req_id ~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$'),
  cid               varchar(64)   check (cid <> ''),
  user_id           bigint        not null check (user_id > 0),
  asset_id          integer       not null,
  amount            decimal(30,8) not null check (amount > 0),
  precision         smallint      not null,
  units             numeric(20)   not null generated always as (amount * 10::numeric ^ precision) stored,
  transfer_type     smallint      not null check (transfer_type in (1, 2, 3)),
  source_type       smallint      not null,
  state             smallint      not null default 0,
  error_message     text          check (error_message ~ '^[A-Z][A-Z0-9_]{0,63}$'), -- why it failed: a code
  retry_count       integer       not null default 0,
  failures          integer       not null default 0, -- unknown answers in a row, in this state
  last_unknown      text,                             -- the last of them
  next_attempt_at   timestamptz,
  state_at          timestamptz   not null default clock_timestamp(), -- in this state since
  swept_at          timestamptz   not null default '-infinity',
  created_at        timestamptz   not null default clock_timestamp(),
  updated_at        timestamptz   not null default clock_timestamp(),
  payout_submitter  submitter_id,
  payout_chain_id   bigint,
  payout_token      text          check (payout_token ~ '^0x[0-9a-f]{40}$'),
  payout_address    text          check (payout_address ~ '^0x[0-9a-f]{40}$'),
  payout_base_units numeric(78,0) check (payout_base_units > 0),
  payout_payload    jsonb,
  open              boolean       not null generated always as (state not in (40, -10, -30)) stored,

  constraint one_transfer_per_req unique (req_id),
  constraint one_transfer_per_cid unique (user_id, cid),
  constraint precision_is_the_assets foreign key (asset_id, precision) references assets_tb (asset_id, precision),
  constraint amount_fits_precision check (scale(trim_scale(amount)) <= precision),
  constraint units_fit_64_bits check (units <= 18446744073709551615),
  constraint source_fits_type check (source_type = case transfer_type when 2 then 2 else 1 end),
  constraint transfer_state_is_known check (state in (0, 10, 20, 30, 40, -10, -20, -30)),
  constraint reason_fits_state check ((error_message is not null) = (state in (-10, -20, -30))),
  constraint failures_are_retries check (failures between 0 and retry_count),
  constraint unknown_fits_state check (failures = 0 or state in (10, 30, -20)),
  constraint due_fits_state check (next_attempt_at is null or state in (10, 30, -20)),
  constraint payout_is_complete check ((transfer_type = 3) = (payout_submitter is not null)
    and (transfer_type = 3) = (payout_chain_id is not null) and (transfer_type = 3) = (payout_address is not null)
    and (transfer_type = 3) = (payout_base_units is not null) and (transfer_type = 3) = (payout_payload is not null)
    and (transfer_type = 3 or payout_token is null)),
  constraint payout_is_on_its_chain check (payout_submitter like 'eip155:' || payout_chain_id || ':%') -- the payout's addresses have the 0x form
) with (fillfactor = 50);
create index transfers_open on transfers_tb (transfer_id) where open;
create index transfers_of_user on transfers_tb (user_id, created_at);
create index transfers_in_time on transfers_tb using brin (created_at) with (pages_per_range = 32, autosummarize = on);

-- Refuses a transfer that does not begin in INIT, a change of a terminal one, a transition that
-- is_transfer_transition does not have, and a change of the columns that bind the transfer. The triggers call
-- it only for changes that it refuses.
create function guard_transfer() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    raise exception 'transfer % must begin in INIT', new.req_id using errcode = 'FP007', constraint = 'transfers_begin_in_init';
  end if;
  if not old.open then
    raise exception 'transfer % is terminal, and cannot change', old.req_id using errcode = 'FP002', constraint = 'final_never_changes';
  end if;
  if old.state <> new.state then
    raise exception 'transfer % cannot go from state % to % with reason %', old.req_id, old.state, new.state, new.error_message
      using errcode = 'FP007', constraint = 'transitions_only';
  end if;
  raise exception 'the request, amount and payout terms of transfer % cannot change', old.req_id using errcode = 'FP003', constraint = 'binding_never_changes';
end $$;
create trigger begin_transfer after insert on transfers_tb for each row when (new.state <> 0 or new.retry_count <> 0) execute function guard_transfer();
create trigger guard_transfer after update on transfers_tb for each row when (not old.open
    or (old.state <> new.state and not (is_transfer_transition(old.state, new.state)
      and (new.state <> -10 or (old.state = 0) = (new.error_message in ('EXPIRED', 'CANCELLED')))
      and (new.state <> -30 or new.error_message = old.error_message)))
    or (old.state = new.state and old.error_message is distinct from new.error_message)
    or new.retry_count < old.retry_count
    or (old.transfer_id, old.req_id, old.cid, old.user_id, old.asset_id, old.amount, old.precision, old.transfer_type, old.created_at)
       is distinct from (new.transfer_id, new.req_id, new.cid, new.user_id, new.asset_id, new.amount, new.precision, new.transfer_type, new.created_at)
    or (old.payout_submitter, old.payout_chain_id, old.payout_token, old.payout_address, old.payout_base_units, old.payout_payload)
       is distinct from (new.payout_submitter, new.payout_chain_id, new.payout_token, new.payout_address, new.payout_base_units, new.payout_payload))
  execute function guard_transfer();
create trigger guard_transfer_delete before delete on transfers_tb for each row execute function refuse_change();
create trigger guard_transfers_truncate before truncate on transfers_tb for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on transfers_tb for each statement execute function refuse_while_moving();

-- The compare-and-set: moves the transfer along the path if it is in the path's first state, and reports
-- whether it did. Each state of the path gets its row of history. In a restored copy nothing moves.
create function move_transfer(of_req text, path smallint[], why text) returns boolean language plpgsql as $$
begin
  for i in 2 .. cardinality(path) loop
    update transfers_tb
       set state = path[i], error_message = coalesce(why, error_message),
           failures = 0, last_unknown = null, next_attempt_at = null,
           state_at = clock_timestamp(), updated_at = clock_timestamp()
     where req_id = of_req and state = path[i - 1] and (i > 2 or (select is_accepted_database()));
    if not found then return false; end if;
  end loop;
  return true;
end $$;

-- Every state of every transfer. A reader of what became final continues from the database snapshot that it
-- read, by tx, since ids do not commit in their order.
create table transfer_history (
  id          bigint      generated always as identity primary key,
  transfer_id bigint      not null,
  at          timestamptz not null default clock_timestamp(),
  from_state  smallint,
  state       smallint    not null,
  reason      text,
  retry_count integer     not null,
  tx          xid8        not null default pg_current_xact_id()
);
create index history_of_transfer on transfer_history (transfer_id, id);
create index transfers_final on transfer_history (tx, id) where state in (40, -10, -30);
create trigger guard_transfer_history before update or delete on transfer_history for each row execute function refuse_change();
create trigger guard_transfer_history_truncate before truncate on transfer_history for each statement execute function refuse_change();

-- Writes the history.
create function record_transfer() returns trigger language plpgsql as $$
begin
  insert into transfer_history (transfer_id, from_state, state, reason, retry_count)
  values (new.transfer_id, case when tg_op = 'UPDATE' then old.state end, new.state, new.error_message, new.retry_count);
  return null;
end $$;
create trigger record_new_transfer after insert on transfers_tb for each row execute function record_transfer();
create trigger record_transfer after update on transfers_tb for each row when (old.state <> new.state) execute function record_transfer();

-- An operator's action on a transfer: a cancel, or an operation that a ledger had to settle. The row is
-- written before the ledger is asked. It changes once, when the ledger has answered. outcome is the
-- operator's statement about a call that the trading core has forgotten. line is the line of the core's journal
-- that proves it. It is null if the conservation check proves it.
create table transfer_resolution (
  id             bigint         generated always as identity primary key,
  transfer_id    bigint         not null references transfers_tb,
  op             text           not null check (op in ('cancel', 'withdraw', 'deposit', 'refund')),
  by             text           not null check (by <> ''),
  reason         text           not null check (reason <> ''),
  at             timestamptz    not null default clock_timestamp(),
  outcome        text,
  line           numeric(20, 0),
  verdict        text           check (verdict in ('SUCCESS', 'REFUSED', 'UNKNOWN')),
  verdict_reason text,
  answered_at    timestamptz,
  constraint answered_as_one check ((verdict is null) = (answered_at is null)),
  constraint cancel_has_no_verdict check (op <> 'cancel' or verdict is null),
  constraint outcome_is_known check (outcome in ('applied', 'not_applied')),
  constraint outcome_of_a_call check (outcome is null or op <> 'cancel'),
  constraint line_proves_an_outcome check (line is null or outcome is not null and line > 0)
);
create index resolutions_of_transfer on transfer_resolution (transfer_id, id);

-- A resolution changes once: when it is answered.
create function guard_resolution() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.answered_at is not null
     or (new.id, new.transfer_id, new.op, new."by", new.reason, new.at, new.outcome, new.line)
        is distinct from (old.id, old.transfer_id, old.op, old."by", old.reason, old.at, old.outcome, old.line) then
    raise exception 'an operator''s resolution changes once, when it is answered' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end $$;
create trigger guard_resolution before update or delete on transfer_resolution for each row execute function guard_resolution();
create trigger guard_resolutions_truncate before truncate on transfer_resolution for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on transfer_resolution for each statement execute function refuse_while_moving();

-- An operator's acknowledgement: MON-001 and MON-002 are silent for the transfer until the time, while it
-- stays in the state. The newest row counts.
create table transfer_acknowledgement (
  id          bigint      generated always as identity,
  transfer_id bigint      not null,
  state       smallint    not null,
  by          text        not null,
  reason      text        not null,
  at          timestamptz not null default clock_timestamp(),
  until       timestamptz not null,
  constraint one_number_per_acknowledgement primary key (id),
  constraint acknowledged_transfer_exists foreign key (transfer_id) references transfers_tb,
  constraint acknowledged_in_flight check (state in (30, -20)),
  constraint acknowledged_by_a_person check (by <> '' and reason <> ''),
  constraint acknowledged_for_a_time check (until > at and until <= at + interval '31 days')
);
create index acknowledgements_of_transfer on transfer_acknowledgement (transfer_id, id);
create trigger guard_acknowledgement before update or delete on transfer_acknowledgement for each row execute function refuse_change();
create trigger guard_acknowledgements_truncate before truncate on transfer_acknowledgement for each statement execute function refuse_change();

-- A halt: no new transfers of its scope until an operator resumes. Each violation has its own halt, so that
-- resuming one lets no other pass.
create table transfer_halt (
  halt_id       bigint      generated always as identity primary key,
  scope         text        not null check (scope in ('user_asset', 'asset', 'all')),
  user_id       bigint,
  asset_id      integer     references assets_tb,
  since         timestamptz not null default clock_timestamp(),
  evidence      jsonb       not null,
  resumed_at    timestamptz,
  resumed_by    text,
  resume_reason text,
  constraint halt_fits_scope check ((scope = 'user_asset') = (user_id is not null)
    and (scope = 'all') = (asset_id is null)),
  constraint resumed_by_an_operator check ((resumed_at is null) = (coalesce(resumed_by, '') = '')
    and (resumed_at is null) = (coalesce(resume_reason, '') = ''))
);
create index open_halts on transfer_halt (halt_id) where resumed_at is null;

-- A halt changes once: when it is resumed.
create function guard_halt() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.resumed_at is not null
     or (new.halt_id, new.scope, new.user_id, new.asset_id, new.since, new.evidence)
        is distinct from (old.halt_id, old.scope, old.user_id, old.asset_id, old.since, old.evidence) then
    raise exception 'a halt changes once, when it is resumed' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end $$;
create trigger guard_halt before update or delete on transfer_halt for each row execute function guard_halt();
create trigger guard_halts_truncate before truncate on transfer_halt for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on transfer_halt for each statement execute function refuse_while_moving();

-- Halts all transfers when a restored database is accepted: it lacks the transfers after its backup.
create function halt_restored_database() returns trigger language plpgsql as $$
begin
  insert into transfer_halt (scope, evidence)
  values ('all', jsonb_build_object('what', 'a restored or re-created database was accepted', 'by', new."by", 'reason', new.reason));
  return null;
end $$;
create trigger halt_restored_database after insert on identity_change for each row execute function halt_restored_database();

-- The addresses of a user that payouts go to. A row changes once: when the address is removed. An address
-- that is added again is a new row. When it can be paid follows from added_at, from the last acceptance of a
-- restored database, and from a setting.
create table payout_address (
  address_id    bigint      generated always as identity,
  user_id       bigint      not null,
  chain_id      bigint      not null,
  address       text        not null,
  added_at      timestamptz not null default clock_timestamp(),
  removed_at    timestamptz,
  removed_by    text,        -- user, or the operator's name
  remove_reason text,        -- of an operator
  constraint one_number_per_address primary key (address_id),
  constraint address_of_a_user check (user_id > 0),
  constraint address_on_a_chain check (chain_id > 0),
  constraint address_is_canonical check (octet_length(address) = 42 and address ~ '^0x[0-9a-f]+$'),
  constraint removal_is_complete check ((removed_at is null) = (coalesce(removed_by, '') = '')
    and (coalesce(removed_by, 'user') = 'user') = (coalesce(remove_reason, '') = ''))
);
create unique index one_listed_address on payout_address (user_id, chain_id, address) where removed_at is null;
create index addresses_of_user on payout_address (user_id, address_id);

-- An address changes once: when it is removed.
create function guard_payout_address() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.removed_at is not null
     or (new.address_id, new.user_id, new.chain_id, new.address, new.added_at)
        is distinct from (old.address_id, old.user_id, old.chain_id, old.address, old.added_at) then
    raise exception 'an address changes once, when it is removed' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end $$;
create trigger guard_payout_address before update or delete on payout_address for each row execute function guard_payout_address();
create trigger guard_payout_addresses_truncate before truncate on payout_address for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on payout_address for each statement execute function refuse_while_moving();

-- While a block of a user is open, the user can add no address. It changes once: when it is lifted.
create table payout_address_block (
  block_id    bigint      generated always as identity,
  user_id     bigint      not null,
  at          timestamptz not null default clock_timestamp(),
  by          text        not null,
  reason      text        not null,
  lifted_at   timestamptz,
  lifted_by   text,
  lift_reason text,
  constraint one_number_per_block primary key (block_id),
  constraint block_of_a_user check (user_id > 0),
  constraint blocked_by_a_person check (by <> '' and reason <> ''),
  constraint lifted_by_a_person check ((lifted_at is null) = (coalesce(lifted_by, '') = '')
    and (lifted_at is null) = (coalesce(lift_reason, '') = ''))
);
create unique index one_open_block on payout_address_block (user_id) where lifted_at is null;

-- A block changes once: when it is lifted.
create function guard_payout_address_block() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.lifted_at is not null
     or (new.block_id, new.user_id, new.at, new."by", new.reason) is distinct from (old.block_id, old.user_id, old.at, old."by", old.reason) then
    raise exception 'a block of a user''s addresses changes once, when it is lifted' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end $$;
create trigger guard_payout_address_block before update or delete on payout_address_block for each row execute function guard_payout_address_block();
create trigger guard_payout_address_blocks_truncate before truncate on payout_address_block for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on payout_address_block for each statement execute function refuse_while_moving();

-- The proof of each payout that is CONFIRMED: its payload and its final receipt. A proof is never archived,
-- as documents are.
create table payout_confirmed (
  number     bigint       not null generated always as identity,
  tx_id      uuid         not null,
  submitter  submitter_id not null,
  request_id text         not null, -- the transfer's req_id
  payload    json,                  -- null: there was none, so the row proves nothing
  receipt    json,                  -- the final one, as the node gave it
  at         timestamptz  not null default clock_timestamp(),
  tx         xid8         not null default pg_current_xact_id(), -- as in transfer_history
  constraint one_proof_per_payout primary key (tx_id),
  constraint proof_of_a_transaction foreign key (tx_id) references managed_tx
);
create index payouts_confirmed on payout_confirmed (tx, number);
create trigger guard_proofs before update or delete on payout_confirmed for each row execute function refuse_change();
create trigger guard_proofs_truncate before truncate on payout_confirmed for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on payout_confirmed for each statement execute function refuse_while_moving();

-- Stores the proof of a payout at the commit, since the receipt is stored after the row. It copies the
-- documents unread, so that it can never keep a transaction from its end. A RECORDED transaction proves
-- nothing, since its receipt is that of a foreign transaction.
create function store_payout_proof() returns trigger language plpgsql as $$
begin
  insert into payout_confirmed (tx_id, submitter, request_id, payload, receipt)
  select new.tx_id, new.submitter, new.request_id,
         (select body from tx_document where tx_id = new.tx_id and name = 'payload'),
         (select body from tx_document where tx_id = new.tx_id and name = 'receipt:' || (new.receipt ->> 'blockHash'))
    from submitter s
   where s.submitter = new.submitter and s.callers = array['transfer'];
  return null;
end $$;
create constraint trigger store_payout_proof after update on managed_tx deferrable initially deferred for each row
  when (new.caller = 'transfer' and new.state = 'CONFIRMED' and old.state <> 'CONFIRMED' and new.sub_state is null) execute function store_payout_proof();

-- An operator's statement about a payout that is in doubt. A payout that was created before the last
-- acceptance of a restored database may have been paid by a transaction that the database lost. After a later restore
-- the statement no longer applies: see change.
create table payout_statement (
  id              bigint      not null generated always as identity,
  req_id          varchar(26) not null,
  of_confirmed    boolean     not null, -- it is about a CONFIRMED transaction, and not about a lost one
  change          bigint      not null default 0, -- the last row of identity_change; 0 if of_confirmed
  paid            boolean     not null,
  tx_hash         text,                 -- of the transaction that paid
  refund          boolean,              -- if not paid: refund it, or pay it again
  nonces_below    bigint,               -- if not paid: lost bytes may be of any nonce below
  other_payments          text[],               -- if not paid: transactions with the same call that pay something else
  by              text        not null,
  reason          text        not null,
  at              timestamptz not null default clock_timestamp(),
  acted_at        timestamptz,          -- if not paid: when it took effect
  withdrawn_at    timestamptz,
  withdrawn_by    text,
  withdraw_reason text,
  constraint one_number_per_statement primary key (id),
  constraint statement_of_a_transfer foreign key (req_id) references transfers_tb (req_id),
  constraint stated_by_an_operator check (by <> '' and reason <> ''),
  constraint statement_is_complete check (paid = (tx_hash is not null) and paid = (refund is null) and paid = (nonces_below is null)
    and paid = (other_payments is null)),
  constraint statement_names_a_hash check (octet_length(tx_hash) = 66 and tx_hash ~ '^0x[0-9a-f]+$'),
  constraint withdrawn_by_an_operator check ((withdrawn_at is null) = (coalesce(withdrawn_by, '') = '')
    and (withdrawn_at is null) = (coalesce(withdraw_reason, '') = '')),
  constraint acted_or_withdrawn check (acted_at is null or withdrawn_at is null and not paid)
);
create unique index one_valid_statement on payout_statement (req_id, of_confirmed, change) where withdrawn_at is null;
create index statements_of_transfer on payout_statement (req_id, id);

-- A statement changes once: it is withdrawn, or it takes effect.
create function guard_statement() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.acted_at is not null or old.withdrawn_at is not null
     or (new.id, new.req_id, new.of_confirmed, new.paid, new.tx_hash, new.refund, new.nonces_below, new.other_payments, new."by", new.reason, new.at)
        is distinct from (old.id, old.req_id, old.of_confirmed, old.paid, old.tx_hash, old.refund, old.nonces_below, old.other_payments, old."by", old.reason, old.at) then
    raise exception 'a statement about a payout changes once: it takes effect, or is withdrawn' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end $$;
create trigger guard_statement before update or delete on payout_statement for each row execute function guard_statement();
create trigger guard_statements_truncate before truncate on payout_statement for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on payout_statement for each statement execute function refuse_while_moving();
create trigger guard_statement_change before update on payout_statement for each row when (old.change <> new.change) execute function refuse_change();

-- Refuses a payout that is in doubt, even if its sender has read another state before. It is the last
-- protection against a second payment.
create function refuse_payout_in_doubt() returns trigger language plpgsql as $$
begin
  if exists (select from transfers_tb t, identity_change c
              where t.req_id = new.request_id and (c.at >= t.created_at or c.transfers_upto >= t.transfer_id))
     and not exists (select from payout_statement s
                      where s.req_id = new.request_id and s.acted_at is not null and not s.of_confirmed
                        and s.change = (select coalesce(max(c.id), 0) from identity_change c)) then
    raise exception 'payout % is in doubt: a transaction that the database lost may have paid it', new.request_id
      using errcode = 'FP012', constraint = 'payout_in_doubt';
  end if;
  return null;
end $$;
create trigger refuse_payout_in_doubt after insert on managed_tx for each row
  when (new.caller = 'transfer' and new.state = 'QUEUED') execute function refuse_payout_in_doubt();

-- The transactions that prove payouts paid. A transaction proves at most one. log_index is that of the
-- token's Transfer event, -1 where the native coin moved, and -2 where an operator has decided.
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
create trigger guard_payout_proofs before update or delete on payout_proof for each row execute function refuse_change();
create trigger guard_payout_proofs_truncate before truncate on payout_proof for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on payout_proof for each statement execute function refuse_while_moving();
-- +goose StatementEnd
