-- What a submitter was registered with can change, and a submitter can be retired.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
-- A name for people. Empty: none.
alter table submitter add column name text not null default '' constraint name_is_short check (char_length(name) <= 100);

-- A change of the window or the name. The columns of what did not change are null.
alter table submitter_change
  add column from_max_in_flight integer,
  add column to_max_in_flight   integer,
  add column from_name          text,
  add column to_name            text,
  drop constraint change_is_known,
  add constraint change_is_known check (action in ('SUSPEND', 'RESUME', 'POLICY', 'SIGNER', 'CALLERS', 'APPROVED', 'UPDATE', 'RETIRE')),
  add constraint update_fits_action check (case when action = 'UPDATE'
    then coalesce(to_max_in_flight <> from_max_in_flight, from_max_in_flight is null and to_max_in_flight is null and to_name is not null)
     and coalesce(to_name <> from_name, from_name is null and to_name is null and to_max_in_flight is not null)
    else num_nonnulls(from_max_in_flight, to_max_in_flight, from_name, to_name) = 0 end);

-- A retired submitter takes no intent and signs nothing any more.
alter table submitter
  drop constraint submitter_status_check,
  add constraint submitter_status_check check (status in ('ACTIVE', 'SUSPENDED', 'RETIRED'));
create index retired_submitters on submitter (submitter) where status = 'RETIRED';

-- What a submitter still has to do, in words; empty: nothing.
create function open_work(of_submitter text) returns text language sql stable set search_path = public, pg_temp as $$
  select concat_ws(', ',
    case when exists (select from managed_tx m where m.submitter = of_submitter and m.queued) then 'queued intents' end,
    case when exists (select from managed_tx m where m.submitter = of_submitter and m.open) then 'open transactions' end,
    case when exists (select from protect_incident p where p.submitter = of_submitter and p.closed_at is null) then 'an open PROTECT incident' end,
    case when exists (select from foreign_hold h where h.submitter = of_submitter and h.ended_at is null) then 'foreign transactions without a decision' end,
    case when exists (select from submitter_nonce_cursor c where c.submitter = of_submitter and c.suspected_violation is not null) then 'a suspected violation' end,
    case when not is_accepted_database() then 'a database that is not accepted' end,
    case when exists (select from assets_tb a where a.payout_submitter = of_submitter) then 'an asset that names it as its payer' end,
    case when exists (select from transfers_tb t where t.open and t.payout_submitter = of_submitter) then 'open payouts' end)
$$;

-- Each transaction that adds work of a submitter holds this lock in shared mode. A retirement holds it alone, so
-- that it sees all work that was added before, and work that is added later sees it. Submitters share 64 locks, so
-- that a batch of many needs few.
create function retirement_lock(of_submitter text) returns integer language sql immutable strict as $$
  select hashtext(of_submitter) & 63
$$;

create or replace function guard_submitter() returns trigger language plpgsql set search_path = public, pg_temp as $$
declare
  work text;
begin
  if tg_op = 'DELETE' or (new.submitter, new.start_nonce) is distinct from (old.submitter, old.start_nonce) then
    raise exception 'submitter % cannot be deleted, and its start nonce cannot change', old.submitter
      using errcode = 'FP003', constraint = 'start_never_changes';
  end if;
  if old.status = 'RETIRED' and (new.status, new.signer, new.max_in_flight) is distinct from (old.status, old.signer, old.max_in_flight) then
    raise exception 'submitter % is retired for ever', old.submitter using errcode = 'FP003', constraint = 'retired_for_ever';
  end if;
  if new.status = 'RETIRED' and old.status <> 'RETIRED' then
    perform pg_advisory_xact_lock(hashtext('retirement'), retirement_lock(new.submitter));
    work := open_work(new.submitter);
    if work <> '' then
      raise exception 'submitter % has open work', new.submitter using errcode = 'FP016', constraint = 'retired_without_work', detail = work;
    end if;
  end if;
  return new;
end $$;

-- Refuses new work of a retired submitter. The class of the error makes a shared batch repeat each intent alone.
create function refuse_retired() returns trigger language plpgsql set search_path = public, pg_temp as $$
begin
  perform pg_advisory_xact_lock_shared(hashtext('retirement'), b.lock)
     from (select distinct retirement_lock(n.submitter) as lock from new_txs n order by 1) as b;
  if exists (select from submitter s where s.status = 'RETIRED' and s.submitter in (select n.submitter from new_txs n where n.open or n.queued)) then
    raise exception 'the submitter of a new transaction is retired' using errcode = '23514', constraint = 'retired_takes_no_work';
  end if;
  return null;
end $$;
create trigger refuse_retired after insert on managed_tx referencing new table as new_txs for each statement execute function refuse_retired();

-- The same for the payer of a new payout.
create function refuse_retired_payer() returns trigger language plpgsql set search_path = public, pg_temp as $$
begin
  perform pg_advisory_xact_lock_shared(hashtext('retirement'), retirement_lock(new.payout_submitter));
  if exists (select from submitter s where s.status = 'RETIRED' and s.submitter = new.payout_submitter) then
    raise exception 'the payer % is retired', new.payout_submitter using errcode = '23514', constraint = 'retired_pays_nothing';
  end if;
  return null;
end $$;
create trigger refuse_retired_payer after insert on transfers_tb for each row when (new.payout_submitter is not null) execute function refuse_retired_payer();

-- As before, with these columns.
create or replace function audit_text(of_submitter submitter_id, of_number bigint, of_change bigint, of_decision bigint, of_role text, of_time timestamptz)
returns text language sql stable set search_path = public, pg_temp as $$
  select jsonb_strip_nulls(jsonb_build_object('submitter', of_submitter, 'number', of_number, 'role', of_role,
    'linked', extract(epoch from of_time)::text,
    'change', (select jsonb_build_object('id', c.id, 'submitter', c.submitter, 'action', c.action, 'by', c.by, 'reason', c.reason,
                 'policy', c.policy, 'fromSigner', c.from_signer, 'toSigner', c.to_signer, 'fromCallers', c.from_callers,
                 'toCallers', c.to_callers, 'succeeds', c.succeeds, 'fromMaxInFlight', c.from_max_in_flight, 'toMaxInFlight', c.to_max_in_flight,
                 'fromName', c.from_name, 'toName', c.to_name, 'at', extract(epoch from c.at)::text,
                 'proposal', c.proposal, 'approvedBy', c.approved_by)
                 from submitter_change c where c.id = of_change),
    'decision', (select jsonb_build_object('id', d.id, 'tx', d.tx_id, 'action', d.action, 'by', d.by, 'reason', d.reason,
                   'at', extract(epoch from d.at)::text, 'proposal', d.proposal, 'approvedBy', d.approved_by)
                   from tx_decision d where d.id = of_decision)))::text
$$;

-- As before, with the acts update and retire.
create or replace function proposal_state(of_act text, subject jsonb) returns jsonb language plpgsql stable security definer set search_path = public, pg_temp as $$
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
