-- Transfers between two ledgers that share no transaction: one row each, moved by
-- compare-and-set along one table of transitions, with every move kept. And what
-- they stand on: assets, halts, what operators did.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- Amounts of an asset are whole numbers of 10^-precision in every ledger, so its
-- precision is for ever. The terms of a payout say which account pays on which
-- chain; without them the asset has no payouts.
create table assets_tb (
  asset_id                  integer       primary key check (asset_id > 0),
  asset                     varchar(32)   not null check (asset ~ '^[A-Z0-9][A-Z0-9._-]*$'),
  precision                 smallint      not null check (precision between 0 and 8),
  min_transfer_amount       decimal(30,8) not null,
  max_transfer_amount       decimal(30,8) not null,
  daily_transfer_amount     decimal(30,8), -- of one user, in 24 hours; null: no limit
  status                    text          not null default 'ACTIVE' check (status in ('ACTIVE', 'SUSPENDED')),
  internal_transfer_enabled boolean       not null default true,
  chain_id                  bigint        check (chain_id > 0),
  payout_submitter          submitter_id,
  token_contract            text          check (token_contract ~ '^0x[0-9a-f]{40}$'), -- null: the native coin
  chain_decimals            smallint,
  created_at                timestamptz   not null default clock_timestamp(),
  updated_at                timestamptz   not null default clock_timestamp(),

  constraint one_asset_per_name unique (asset),
  constraint scale_to_refer_to unique (asset_id, precision),
  constraint amounts_are_ordered check (min_transfer_amount > 0 and min_transfer_amount <= max_transfer_amount
    and coalesce(daily_transfer_amount >= min_transfer_amount, true)),
  constraint amounts_fit_precision check (scale(trim_scale(min_transfer_amount)) <= precision
    and scale(trim_scale(max_transfer_amount)) <= precision
    and coalesce(scale(trim_scale(daily_transfer_amount)) <= precision, true)),
  constraint amounts_fit_64_bits check (
    greatest(max_transfer_amount, daily_transfer_amount) * 10::numeric ^ precision <= 18446744073709551615),
  constraint payout_terms_are_one check ((chain_id is null) = (payout_submitter is null)
    and (chain_id is null) = (chain_decimals is null) and (token_contract is null or chain_id is not null)),
  constraint payer_is_on_the_chain check (payout_submitter like 'eip155:' || chain_id || ':%'),
  constraint chain_is_no_coarser check (chain_decimals between precision and 36)
);

-- What may follow what, in one place. The functions have the same table.
create function transfer_may(was smallint, becomes smallint) returns boolean
language sql immutable as $$
  select (was, becomes) in ((0, 10), (0, -10), (10, 20), (10, -10), (20, 30), (30, 40), (30, -20), (-20, -30))
$$;

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
  constraint scale_is_the_assets foreign key (asset_id, precision) references assets_tb (asset_id, precision),
  constraint amount_fits_precision check (scale(trim_scale(amount)) <= precision),
  constraint units_fit_64_bits check (units <= 18446744073709551615),
  constraint source_fits_type check (source_type = case transfer_type when 2 then 2 else 1 end),
  constraint transfer_state_is_known check (state in (0, 10, 20, 30, 40, -10, -20, -30)),
  constraint reason_fits_state check ((error_message is not null) = (state in (-10, -20, -30))),
  constraint failures_are_retries check (failures between 0 and retry_count),
  constraint unknown_fits_state check (failures = 0 or state in (10, 30, -20)),
  constraint due_fits_state check (next_attempt_at is null or state in (10, 30, -20)),
  constraint payout_is_whole check ((transfer_type = 3) = (payout_submitter is not null)
    and (transfer_type = 3) = (payout_chain_id is not null) and (transfer_type = 3) = (payout_address is not null)
    and (transfer_type = 3) = (payout_base_units is not null) and (transfer_type = 3) = (payout_payload is not null)
    and (transfer_type = 3 or payout_token is null)),
  constraint payout_is_on_its_chain check (payout_submitter like 'eip155:' || payout_chain_id || ':%')
) with (fillfactor = 50);

-- A move between states that are open writes no index: see managed_tx.
create index transfers_open on transfers_tb (transfer_id) where open;
-- For the limits of a user, and for who makes unusually many.
create index transfers_of_user on transfers_tb (user_id, created_at);
create index transfers_in_time on transfers_tb using brin (created_at) with (pages_per_range = 32, autosummarize = on);

create table transfer_history (
  id          bigint      generated always as identity primary key,
  transfer_id bigint      not null,
  at          timestamptz not null default clock_timestamp(),
  from_state  smallint,
  state       smallint    not null,
  reason      text,
  retry_count integer     not null
);
create index history_of_transfer on transfer_history (transfer_id, id);

-- What an operator did: cancelled it, or made a ledger say what it has stored. A
-- row is written before the ledger is asked, and changes once: when it answered.
create table transfer_resolution (
  id             bigint      generated always as identity primary key,
  transfer_id    bigint      not null references transfers_tb,
  op             text        not null check (op in ('cancel', 'withdraw', 'deposit', 'refund')),
  by             text        not null check (by <> ''),
  reason         text        not null check (reason <> ''),
  at             timestamptz not null default clock_timestamp(),
  verdict        text        check (verdict in ('SUCCESS', 'REFUSED', 'UNKNOWN')),
  verdict_reason text,
  answered_at    timestamptz,
  constraint answered_as_one check ((verdict is null) = (answered_at is null)),
  constraint cancel_asks_nobody check (op <> 'cancel' or verdict is null)
);
create index resolutions_of_transfer on transfer_resolution (transfer_id, id);

-- No new transfers, until a person resumes.
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
  constraint resumed_by_a_human check ((resumed_at is null) = (coalesce(resumed_by, '') = '')
    and (resumed_at is null) = (coalesce(resume_reason, '') = ''))
);
create unique index one_open_halt on transfer_halt (scope, coalesce(user_id, 0), coalesce(asset_id, 0)) where resumed_at is null;

-- +goose StatementBegin
-- Called where it refuses, and only there: see the triggers.
create function guard_transfer() returns trigger
language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    raise exception 'transfer % begins in INIT', new.req_id using errcode = 'FP007', constraint = 'transfers_begin_in_init';
  end if;
  if not old.open then
    raise exception 'transfer % is final', old.req_id using errcode = 'FP002', constraint = 'final_never_changes';
  end if;
  if old.state <> new.state then
    raise exception 'transfer % never goes from % to % for %', old.req_id, old.state, new.state, new.error_message
      using errcode = 'FP007', constraint = 'transitions_only';
  end if;
  raise exception 'transfer % is bound for ever', old.req_id using errcode = 'FP003', constraint = 'binding_never_changes';
end
$$;

create function record_transfer() returns trigger
language plpgsql as $$
begin
  insert into transfer_history (transfer_id, from_state, state, reason, retry_count)
  values (new.transfer_id, case when tg_op = 'UPDATE' then old.state end, new.state, new.error_message, new.retry_count);
  return null;
end
$$;

-- The compare-and-set: goes along the path if the transfer is at its first state,
-- and says whether it did. The states between are in the history like the others.
-- In a restored copy nothing moves.
create function move_transfer(of_req text, path smallint[], why text) returns boolean
language plpgsql as $$
begin
  for i in 2 .. cardinality(path) loop
    update transfers_tb
       set state = path[i], error_message = coalesce(why, error_message),
           failures = 0, last_unknown = null, next_attempt_at = null,
           state_at = clock_timestamp(), updated_at = clock_timestamp()
     where req_id = of_req and state = path[i - 1] and (i > 2 or (select is_authority()));
    if not found then
      return false;
    end if;
  end loop;
  return true;
end
$$;

create function guard_asset() returns trigger
language plpgsql as $$
begin
  raise exception 'asset % keeps its name and its scale', old.asset_id using errcode = 'FP003', constraint = 'scale_never_changes';
end
$$;

create function keep_resolution() returns trigger
language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.answered_at is not null
     or (new.id, new.transfer_id, new.op, new."by", new.reason, new.at)
        is distinct from (old.id, old.transfer_id, old.op, old."by", old.reason, old.at) then
    raise exception 'what an operator did is history: it is never changed' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end
$$;

create function keep_halt() returns trigger
language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.resumed_at is not null
     or (new.halt_id, new.scope, new.user_id, new.asset_id, new.since, new.evidence)
        is distinct from (old.halt_id, old.scope, old.user_id, old.asset_id, old.since, old.evidence) then
    raise exception 'a halt is history: it is never changed' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end
$$;

-- A restored copy does not know what was transferred after its backup was made:
-- once it is accepted nothing new begins before a person resumes.
create function halt_restored() returns trigger
language plpgsql as $$
begin
  insert into transfer_halt (scope, evidence)
  values ('all', jsonb_build_object('what', 'a restored or re-created database was accepted', 'by', new."by", 'reason', new.reason))
      on conflict do nothing;
  return null;
end
$$;
-- +goose StatementEnd

create trigger begin_transfer after insert on transfers_tb for each row
  when (new.state <> 0 or new.retry_count <> 0)
  execute function guard_transfer();
create trigger guard_transfer after update on transfers_tb for each row
  when (not old.open
    or (old.state <> new.state and not (transfer_may(old.state, new.state)
      and (new.state <> -10 or (old.state = 0) = (new.error_message in ('EXPIRED', 'CANCELLED')))
      and (new.state <> -30 or new.error_message = old.error_message)))
    or (old.state = new.state and old.error_message is distinct from new.error_message)
    or new.retry_count < old.retry_count
    or (old.transfer_id, old.req_id, old.cid, old.user_id, old.asset_id, old.amount, old.precision, old.transfer_type, old.created_at)
       is distinct from (new.transfer_id, new.req_id, new.cid, new.user_id, new.asset_id, new.amount, new.precision, new.transfer_type, new.created_at)
    or (old.payout_submitter, old.payout_chain_id, old.payout_token, old.payout_address, old.payout_base_units, old.payout_payload)
       is distinct from (new.payout_submitter, new.payout_chain_id, new.payout_token, new.payout_address, new.payout_base_units, new.payout_payload))
  execute function guard_transfer();
create trigger record_new_transfer after insert on transfers_tb for each row execute function record_transfer();
create trigger record_transfer after update on transfers_tb for each row
  when (old.state <> new.state) execute function record_transfer();
create trigger guard_asset after update on assets_tb for each row
  when ((old.asset_id, old.asset, old.precision) is distinct from (new.asset_id, new.asset, new.precision))
  execute function guard_asset();
create trigger keep_transfer before delete on transfers_tb for each row execute function refuse_change();
create trigger keep_asset before delete on assets_tb for each row execute function refuse_change();
create trigger keep_transfer_history before update or delete on transfer_history for each row execute function refuse_change();
create trigger keep_resolution before update or delete on transfer_resolution for each row execute function keep_resolution();
create trigger keep_halt before update or delete on transfer_halt for each row execute function keep_halt();
create trigger keep_all_transfers before truncate on transfers_tb for each statement execute function refuse_change();
create trigger keep_all_assets before truncate on assets_tb for each statement execute function refuse_change();
create trigger keep_all_transfer_history before truncate on transfer_history for each statement execute function refuse_change();
create trigger keep_all_resolutions before truncate on transfer_resolution for each statement execute function refuse_change();
create trigger keep_all_halts before truncate on transfer_halt for each statement execute function refuse_change();
create trigger halt_restored after insert on authority_change for each row execute function halt_restored();

-- Whoever may write transactions may write transfers.
select copy_grants('managed_tx', to_table, privileges)
  from (values ('assets_tb', array['SELECT', 'INSERT', 'UPDATE']), ('transfers_tb', array['SELECT', 'INSERT', 'UPDATE']),
               ('transfer_history', array['SELECT', 'INSERT']), ('transfer_resolution', array['SELECT', 'INSERT', 'UPDATE']),
               ('transfer_halt', array['SELECT', 'INSERT', 'UPDATE'])) as t (to_table, privileges);
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
    execute format('grant usage on sequence transfers_tb_transfer_id_seq to %s', held.grantee);
  end loop;
end
$$;
-- +goose StatementEnd

-- +goose Down
drop trigger halt_restored on authority_change;
drop table transfer_halt;
drop table transfer_resolution;
drop table transfer_history;
drop table transfers_tb;
drop table assets_tb;
drop function halt_restored;
drop function keep_halt;
drop function keep_resolution;
drop function guard_asset;
drop function move_transfer;
drop function record_transfer;
drop function guard_transfer;
drop function transfer_may;
