-- Operators set up assets, book money from and to the outside, and set the status of accounts. Funding is in this
-- database, the trading core is not: each act is stored before a ledger is called, and repeated until it has answered.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';

-- Serializes acts on one thing until the commit.
create function lock_for_act(thing text) returns void language sql as $$
  select pg_advisory_xact_lock(hashtextextended('act on ' || thing, 0))
$$;
create function account_name(of_user bigint, of_asset integer) returns text language sql immutable as $$
  select 'account ' || of_user || ' ' || of_asset
$$;

-- What the deposit service can book of the asset in a day (UTC); null: nothing.
alter table assets_tb add column daily_service_deposits decimal(30,8),
  add constraint service_deposits_are_an_amount check (daily_service_deposits > 0 and scale(trim_scale(daily_service_deposits)) <= precision
    and daily_service_deposits * 10::numeric ^ precision <= 18446744073709551615);

-- A change of an asset by an operator.
create table asset_change (
  id          bigint      generated always as identity primary key,
  asset_id    integer     not null references assets_tb,
  by          text        not null check (by <> ''),
  reason      text        not null check (reason <> ''),
  at          timestamptz not null default clock_timestamp(),
  before      jsonb, -- null: the asset was new
  after       jsonb       not null,
  proposal    uuid,
  approved_by text
);
create index changes_of_asset on asset_change (asset_id, id);
create index acts_of_assets on asset_change (at, id); -- for the list of operators' acts
create trigger guard_asset_changes before update or delete on asset_change for each row execute function refuse_change();
create trigger guard_asset_changes_truncate before truncate on asset_change for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on asset_change for each statement execute function refuse_while_moving();
create trigger name_approval before insert on asset_change for each row execute function name_approval();

-- An act on a user's account. A deposit or withdrawal is made in one ledger, a status is set in both. The answer of a
-- ledger is APPLIED, a code that says why not, or null while it is not known. An act without a pending answer is
-- closed. next_at is when the sweep repeats it.
create table account_act (
  act_id      bigint      generated always as identity primary key,
  kind        text        not null check (kind in ('DEPOSIT', 'WITHDRAWAL', 'STATUS')),
  request_id  text        check (request_id ~ '^[!-~]{1,128}$'), -- the outside system's id, and the key in the ledger
  ledger      text        check (ledger in ('FUNDING', 'SPOT')),
  user_id     bigint      not null check (user_id > 0),
  asset_id    integer     not null references assets_tb,
  units       numeric(20, 0) check (units between 1 and 18446744073709551615),
  status      text        check (status in ('ACTIVE', 'FROZEN', 'DISABLED')),
  by          text        not null check (by <> ''),
  reason      text        not null check (reason <> ''),
  of_service  boolean     not null default false, -- made by the deposit service
  at          timestamptz not null default date_trunc('milliseconds', clock_timestamp()), -- the ledgers get it
  funding     text        check (funding ~ '^[A-Z_]+$'),
  trading     text        check (trading ~ '^[A-Z_]+$'),
  unknown     text,       -- the last unknown answer
  next_at     timestamptz not null default clock_timestamp() + interval '30 s',
  proposal    uuid,
  approved_by text,
  open        boolean     not null generated always as (case ledger when 'FUNDING' then funding is null when 'SPOT' then trading is null
                            else funding is null or trading is null end) stored,
  constraint one_act_per_request unique (request_id, kind),
  constraint act_is_complete check (case kind when 'STATUS' then num_nonnulls(request_id, ledger, units) = 0 and status is not null
    else num_nonnulls(request_id, ledger, units) = 3 and status is null end),
  constraint service_deposits_only check (not of_service or kind = 'DEPOSIT'),
  constraint one_ledger_answers check (case ledger when 'FUNDING' then trading is null when 'SPOT' then funding is null else true end)
);
create index open_acts on account_act (next_at, act_id) where open;
create index acts_of_account on account_act (user_id, asset_id, act_id);
create index acts_of_account_operators on account_act (at, act_id) where not of_service; -- for the list of operators' acts

-- A ledger's answer is stored once; beside it only the plan of the next attempt changes.
create function guard_account_act() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE'
     or (to_jsonb(new) - '{funding,trading,open,unknown,next_at}'::text[]) <> (to_jsonb(old) - '{funding,trading,open,unknown,next_at}'::text[])
     or old.funding is distinct from new.funding and old.funding is not null
     or old.trading is distinct from new.trading and old.trading is not null then
    raise exception 'of an act on an account only the answers are added' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end $$;
create trigger guard_account_act before update or delete on account_act for each row execute function guard_account_act();
create trigger guard_account_acts_truncate before truncate on account_act for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on account_act for each statement execute function refuse_while_moving();
create trigger name_approval before insert on account_act for each row execute function name_approval();

-- What the deposit service has ordered of an asset on a day (UTC).
create table service_deposits (
  asset_id integer        not null references assets_tb,
  day      date           not null,
  units    numeric(30, 0) not null check (units > 0),
  primary key (asset_id, day)
);
create trigger refuse_while_moving before insert or update on service_deposits for each statement execute function refuse_while_moving();

-- Whether an account of the asset has existed. Without such an index each change of an asset would read all accounts.
create index accounts_of_asset on balances_tb (asset_id);
create function asset_has_entries(of_asset integer) returns boolean language sql stable as $$
  select exists (select from balances_tb where asset_id = of_asset) or exists (select from account_act a where a.asset_id = of_asset and a.kind <> 'STATUS')
      or exists (select from conservation_sum s where s.asset_id = of_asset)
$$;

-- The terms on the chain are set once the asset has an entry: the money in the accounts is backed there. The payer
-- stays while it pays. The lock is that of each new payout: see refuse_stale_payer.
create function guard_asset_terms() returns trigger language plpgsql set search_path = public, pg_temp as $$
begin
  if old.payout_submitter is distinct from new.payout_submitter then
    perform lock_for_act('payer of ' || old.asset_id);
    if exists (select from transfers_tb t where t.open and t.transfer_type = 3 and t.asset_id = old.asset_id) then
      raise exception 'asset % has open payouts: its payer cannot change before they have ended', old.asset using errcode = 'FP021', constraint = 'payer_of_open_payouts';
    end if;
  end if;
  if old.chain_id is not null and (old.chain_id, old.token_contract, old.chain_decimals) is distinct from (new.chain_id, new.token_contract, new.chain_decimals)
     and asset_has_entries(old.asset_id) then
    raise exception 'asset % has entries: its chain, token and decimals cannot change', old.asset using errcode = 'FP021', constraint = 'terms_of_entries';
  end if;
  return new;
end $$;
create trigger guard_asset_terms before update on assets_tb for each row
  when ((old.payout_submitter, old.chain_id, old.token_contract, old.chain_decimals) is distinct from
        (new.payout_submitter, new.chain_id, new.token_contract, new.chain_decimals)) execute function guard_asset_terms();

-- Refuses a payout whose payer was replaced since its asset was read. The class of the error makes a shared batch
-- repeat each payout alone.
create function refuse_stale_payer() returns trigger language plpgsql set search_path = public, pg_temp as $$
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('act on payer of ' || new.asset_id, 0));
  if not exists (select from assets_tb a where a.asset_id = new.asset_id and a.payout_submitter = new.payout_submitter) then
    raise exception 'the payer of asset % has changed', new.asset_id using errcode = '23514', constraint = 'payout_of_the_payer';
  end if;
  return null;
end $$;
create trigger refuse_stale_payer after insert on transfers_tb for each row when (new.payout_submitter is not null) execute function refuse_stale_payer();

-- What is wanted of an account, and what Funding has.
create function account_statuses(of_user bigint, of_asset integer) returns jsonb language sql stable as $$
  select jsonb_build_object(
    'act', (select max(a.act_id) from account_act a where a.user_id = of_user and a.asset_id = of_asset and a.kind = 'STATUS'),
    'funding', (select b.status from balances_tb b where b.user_id = of_user and b.asset_id = of_asset and b.account_type = 'FUNDING'))
$$;

-- The place of a status among those that allow less and less.
create function status_rank(status text) returns integer language sql immutable as $$
  select coalesce(array_position(array['ACTIVE', 'FROZEN', 'DISABLED'], status), 0)
$$;

-- Stores a deposit or withdrawal, or returns the one with this id. same is false if its other fields differ. A deposit
-- of the service counts against the day's limit of its asset, whatever the ledger answers. One statement compares
-- and adds, so that concurrent deposits cannot pass the limit together. act is null in a database that is not accepted.
create function order_money(of_kind text, of_request text, of_ledger text, of_user bigint, of_asset integer, of_units numeric, of_by text, of_reason text,
  by_service boolean, out act account_act, out same boolean)
language plpgsql set search_path = public, pg_temp as $$
declare
  most numeric;
  used numeric;
  today date := (clock_timestamp() at time zone 'UTC')::date;
begin
  if not is_accepted_database() then return; end if;
  insert into account_act (kind, request_id, ledger, user_id, asset_id, units, by, reason, of_service)
  values (of_kind, of_request, of_ledger, of_user, of_asset, of_units, of_by, of_reason, by_service)
      on conflict on constraint one_act_per_request do nothing
  returning * into act;
  same := true;
  if act.act_id is null then
    select * into act from account_act a where a.kind = of_kind and a.request_id = of_request;
    same := (act.ledger, act.user_id, act.asset_id, act.units) = (of_ledger, of_user, of_asset, of_units);
    return;
  end if;
  if not by_service then return; end if;
  select a.daily_service_deposits * 10::numeric ^ a.precision into most from assets_tb a where a.asset_id = of_asset;
  insert into service_deposits as d (asset_id, day, units)
  select of_asset, today, of_units where of_units <= most
      on conflict (asset_id, day) do update set units = d.units + excluded.units where d.units + excluded.units <= most
  returning d.units into used;
  if used is null then
    raise exception 'the limit of the deposit service is reached' using errcode = 'FP022',
      detail = (select trim_scale(greatest(0, coalesce(most, 0) - coalesce((select d.units from service_deposits d where d.asset_id = of_asset and d.day = today), 0)) / 10::numeric ^ a.precision)
                  from assets_tb a where a.asset_id = of_asset)::text;
  end if;
end $$;

-- Sets the status in Funding, as the newest act wants it, if the account exists. Older acts are superseded there.
create function set_funding_status(of_act bigint) returns void language plpgsql set search_path = public, pg_temp as $$
declare
  wanted account_act;
begin
  select * into wanted from account_act where act_id = of_act;
  perform lock_for_act(account_name(wanted.user_id, wanted.asset_id));
  update account_act a set funding = 'SUPERSEDED'
   where a.user_id = wanted.user_id and a.asset_id = wanted.asset_id and a.kind = 'STATUS' and a.open and a.funding is null
     and exists (select from account_act later where later.user_id = a.user_id and later.asset_id = a.asset_id and later.kind = 'STATUS' and later.act_id > a.act_id);
  if not exists (select from account_act where act_id = of_act and funding is null) then return; end if;
  update balances_tb set status = wanted.status, updated_at = clock_timestamp()
   where user_id = wanted.user_id and asset_id = wanted.asset_id and account_type = 'FUNDING';
  if found then
    update account_act set funding = 'APPLIED' where act_id = of_act;
  elsif wanted.status = 'ACTIVE' then
    update account_act set funding = 'NO_ACCOUNT' where act_id = of_act;
  end if;
end $$;

-- Stores a status that is wanted of an account, and sets it in Funding. wider is true, and nothing is done, if it
-- allows more than the one before and only_narrower. act is null in a database that is not accepted.
create function order_status(of_user bigint, of_asset integer, of_status text, of_by text, of_reason text, only_narrower boolean,
  out act account_act, out wider boolean)
language plpgsql set search_path = public, pg_temp as $$
begin
  wider := false;
  if not is_accepted_database() then return; end if;
  perform lock_for_act(account_name(of_user, of_asset));
  if only_narrower and status_rank(of_status) < greatest(1,
       status_rank((select a.status from account_act a where a.user_id = of_user and a.asset_id = of_asset and a.kind = 'STATUS' order by a.act_id desc limit 1)),
       status_rank((select b.status from balances_tb b where b.user_id = of_user and b.asset_id = of_asset and b.account_type = 'FUNDING')))
     or only_narrower and of_status = 'ACTIVE' then
    wider := true;
    return;
  end if;
  insert into account_act (kind, user_id, asset_id, status, by, reason)
  values ('STATUS', of_user, of_asset, of_status, of_by, of_reason)
  returning * into act;
  perform set_funding_status(act.act_id);
  select * into act from account_act a where a.act_id = act.act_id;
end $$;

-- proposal_state of all acts but those on webhook endpoints: as before, with the acts asset, money and account-status.
create or replace function proposal_state_of_others(of_act text, subject jsonb) returns jsonb language plpgsql stable security definer set search_path = public, pg_temp as $$
declare
  sub text := subject ->> 'submitter';
begin
  return case of_act
    -- The number of the last change tells a state that came back from one that stayed.
    when 'policy' then jsonb_build_object('change', last_change(sub), 'policy', (select to_jsonb(p) - 'submitter' - 'updated_at' from submitter_policy p where p.submitter = sub and p.limited))
    when 'callers' then (select jsonb_build_object('change', last_change(sub), 'callers', s.callers, 'succeeded', s.succeeded) from submitter s where s.submitter = sub)
    when 'signer' then (select jsonb_build_object('change', last_change(sub), 'signer', s.signer) from submitter s where s.submitter = sub)
    when 'update' then (select jsonb_build_object('change', last_change(sub), 'maxInFlight', s.max_in_flight, 'name', s.name) from submitter s where s.submitter = sub)
    when 'retire' then (select jsonb_build_object('change', last_change(sub), 'status', s.status, 'openWork', open_work(sub)) from submitter s where s.submitter = sub)
    when 'register' then jsonb_build_object('registered', exists (select from submitter s where s.submitter = sub))
    when 'resume' then (select jsonb_build_object('change', last_change(sub), 'status', s.status) from submitter s where s.submitter = sub)
    when 'release' then (select jsonb_build_object('incident', p.incident, 'openedAt', p.opened_at, 'evidence', p.evidence, 'nextNonce', c.next_nonce)
                           from submitter_nonce_cursor c
                           left join protect_incident p on p.submitter = c.submitter and p.closed_at is null
                          where c.submitter = sub)
    when 'accept' then (select jsonb_build_object('epoch', a.epoch, 'acceptedAt', a.accepted_at, 'isAcceptedDatabase', is_accepted_database(),
                                 'systemIdentifier', s.system_identifier::text, 'timeline', current_timeline())
                          from database_identity a, pg_control_system() s)
    when 'release-untouched' then (select jsonb_build_object('epoch', a.epoch, 'acceptedAt', a.accepted_at, 'isAcceptedDatabase', is_accepted_database()) from database_identity a)
    when 'foreign' then jsonb_build_object('foreign', (select coalesce(jsonb_agg(jsonb_build_object('nonce', h.nonce, 'txId', h.tx_id) order by h.nonce), '[]')
                          from foreign_hold h
                         where h.submitter = sub and h.ended_at is null
                           and h.nonce between coalesce((subject ->> 'nonce')::bigint, 0) and coalesce(subject ->> 'nonce', subject ->> 'through')::bigint))
    when 'proceed' then (select jsonb_build_object('state', m.state, 'held', m.held, 'heldFor', m.held_for) from managed_tx m where m.tx_id = (subject ->> 'txId')::uuid)
    when 'proceed-all' then (select jsonb_build_object('held', count(*), 'txIds', encode(sha256(convert_to(coalesce(string_agg(m.tx_id::text, ' ' order by m.seq), ''), 'UTF8')), 'hex')) from managed_tx m
                              where m.submitter = sub and m.queued and m.held
                                and m.seq <= (select t.seq from managed_tx t where t.tx_id = (subject ->> 'through')::uuid and t.submitter = sub))
    when 'adjust' then (select jsonb_build_object('expected', coalesce(s.expected, f.expected), 'got', coalesce(s.got, f.got), 'standing', s.finding_id is not null,
                                 'adjusted', exists (select from conservation_adjustment a where a.finding_id = f.finding_id and a.applied_at is not null))
                          from conservation_finding f
                          left join conservation_standing s using (finding_id)
                         where f.finding_id = (subject ->> 'finding')::bigint)
    when 'halt-resume' then (select jsonb_build_object('scope', h.scope, 'userId', h.user_id, 'assetId', h.asset_id, 'since', h.since, 'resumedAt', h.resumed_at)
                               from transfer_halt h where h.halt_id = (subject ->> 'halt')::bigint)
    when 'unblock-addresses' then jsonb_build_object('block', (select jsonb_build_object('at', b.at, 'by', b.by, 'reason', b.reason)
                                    from payout_address_block b where b.user_id = (subject ->> 'userId')::bigint and b.lifted_at is null))
    when 'transfer' then (select jsonb_build_object('state', t.state, 'statement', (select max(n.id) from payout_statement n where n.req_id = t.req_id and n.withdrawn_at is null))
                            from transfers_tb t where t.req_id = subject ->> 'reqId')
    when 'asset' then jsonb_build_object('asset', (select to_jsonb(a) - 'updated_at' from assets_tb a where a.asset = subject ->> 'asset'),
                        'change', (select max(c.id) from asset_change c join assets_tb a using (asset_id) where a.asset = subject ->> 'asset'))
    when 'money' then jsonb_build_object('ordered', exists (select from account_act a where a.kind = subject ->> 'kind' and a.request_id = subject ->> 'id'))
    when 'account-status' then jsonb_build_object('statuses', account_statuses((subject ->> 'userId')::bigint, (subject ->> 'assetId')::integer))
  end;
end $$;
create or replace function carry_out_proposal(of_proposal uuid) returns void language plpgsql security definer set search_path = public, pg_temp as $$
declare
  p proposal;
begin
  select * into p from proposal where proposal_id = of_proposal for update;
  if p.act = 'unblock-addresses' then -- the act has no lock of its own before this
    perform from payout_address_block b where b.user_id = (p.subject ->> 'userId')::bigint and b.lifted_at is null for update;
  elsif p.act = 'transfer' then
    perform from transfers_tb t where t.req_id = p.subject ->> 'reqId' for update;
  elsif p.act = 'asset' then
    perform lock_for_act('asset ' || (p.subject ->> 'asset'));
  elsif p.act = 'account-status' then
    perform lock_for_act(account_name((p.subject ->> 'userId')::bigint, (p.subject ->> 'assetId')::integer));
  end if;
  if p.status is distinct from 'APPROVED' or p.expires_at <= clock_timestamp() or coalesce(proposal_state(p.act, p.subject), 'null') <> p.observed_state
     or p.act <> 'accept' and (not is_accepted_database() or p.epoch is distinct from (select a.epoch from database_identity a)) then
    raise exception 'proposal % cannot be carried out: it is not approved, it has expired, or its state has changed', of_proposal using errcode = 'FP014';
  end if;
  update proposal set status = 'CARRIED_OUT', closed_at = clock_timestamp(), carried_out_xid = pg_current_xact_id() where proposal_id = of_proposal;
  perform set_config('fencepost.proposal', of_proposal::text, true);
  if p.act not in ('policy', 'callers', 'signer', 'resume', 'update', 'retire') then
    insert into submitter_change (submitter, action, by, reason)
    select s.submitter, 'APPROVED', p.proposed_by, p.effect
      from submitter s
     where s.submitter = coalesce(p.subject ->> 'submitter', (select m.submitter from managed_tx m where m.tx_id = (p.subject ->> 'txId')::uuid),
                                (select t.payout_submitter from transfers_tb t where t.req_id = p.subject ->> 'reqId'));
  end if;
end $$;
-- +goose StatementEnd
