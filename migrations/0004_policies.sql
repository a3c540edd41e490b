-- Policies and decisions: the limits of each submitter, what counts against them, what operators decided,
-- the audit chain over their decisions, and proposals that a second operator approves.

-- +goose Up
-- +goose StatementBegin
-- The limits of a submitter. Amounts are in wei, and null is no limit. A day is the last 24 hours. A target is
-- an address, or 'deploy' for a transaction without one. per_caller and tokens have limits by the full name
-- of a caller and by the address of a token. Intents that count against a limit over time wait for each
-- other by a lock on this row.
create table submitter_policy (
  submitter        submitter_id primary key references submitter,
  max_value_wei    numeric(78) constraint value_is_an_amount check (max_value_wei >= 0),
  max_day_wei      numeric(78) constraint day_is_an_amount check (max_day_wei >= 0),
  max_per_minute   integer     constraint rate_is_a_number check (max_per_minute between 1 and 1000000),
  targets          text[]      constraint targets_are_not_empty check (cardinality(targets) between 1 and 1000),
  max_fee_wei      numeric(78) constraint fee_is_an_amount check (max_fee_wei >= 0),
  max_tip_wei      numeric(78) constraint tip_is_an_amount check (max_tip_wei >= 1), -- a tip of 0 passes no transaction
  max_gas          bigint      constraint gas_is_an_amount check (max_gas >= 21000),
  max_day_fees_wei numeric(78) constraint day_of_fees_is_an_amount check (max_day_fees_wei >= 0),
  per_caller       jsonb       constraint per_caller_is_not_empty check (jsonb_typeof(per_caller) = 'object' and per_caller <> '{}'),
  tokens           jsonb       constraint tokens_are_not_empty check (jsonb_typeof(tokens) = 'object' and tokens <> '{}'),
  updated_at       timestamptz not null default clock_timestamp(),
  limited          boolean     not null generated always as
    (max_value_wei is not null or max_day_wei is not null or max_per_minute is not null or targets is not null
     or max_fee_wei is not null or max_tip_wei is not null or max_gas is not null or max_day_fees_wei is not null
     or per_caller is not null or tokens is not null) stored,
  over_time        boolean     not null generated always as
    (max_day_wei is not null or max_per_minute is not null
     or coalesce(jsonb_path_exists(per_caller, '$.*.maxValuePerDay'), false) or coalesce(jsonb_path_exists(per_caller, '$.*.maxPerMinute'), false)
     or coalesce(jsonb_path_exists(per_caller, '$.*.maxQueued'), false) or coalesce(jsonb_path_exists(tokens, '$.*.maxAmountPerDay'), false)) stored
);
create trigger guard_policy before delete on submitter_policy for each row execute function refuse_change();
create trigger refuse_while_moving before insert or update on submitter_policy for each statement execute function refuse_while_moving();

-- Refuses what is written in the same transaction, by a limit of the policy.
create function refuse_by_policy(rule text, most text) returns void language plpgsql as $$
begin
  raise exception '%', rule using errcode = 'FP010', detail = most;
end $$;

-- What counts against a limit over time, with the sums so far: the use of a window is one subtraction. A
-- row is an intent, a transaction of a handler or of a reservation's owner, or reservations made together.
create table submitter_use (
  submitter submitter_id not null,
  number    bigint       not null check (number > 0),
  at        timestamptz  not null,
  tx_id     uuid         not null,
  added_wei numeric(78)  not null check (added_wei >= 0),
  intents   bigint       not null,
  value_wei numeric      not null,
  constraint one_use_each primary key (submitter, number)
);
create index uses_in_time on submitter_use (submitter, at, number);
create index uses_of_tx on submitter_use (tx_id);
create trigger guard_uses before update or delete on submitter_use for each row execute function refuse_change();
create trigger guard_uses_truncate before truncate on submitter_use for each statement execute function refuse_change();

-- The same for the limits of a caller or a token. The scope is a caller's full name, or a token's address,
-- which begins with 0x.
create table policy_use (
  submitter submitter_id not null,
  scope     text         not null check (scope <> ''),
  number    bigint       not null check (number > 0),
  at        timestamptz  not null,
  tx_id     uuid         not null,
  added     numeric(78)  not null check (added >= 0),
  intents   bigint       not null,
  total     numeric      not null,
  constraint one_scoped_use_each primary key (submitter, scope, number)
);
create index policy_uses_in_time on policy_use (submitter, scope, at, number);
create index policy_uses_of_tx on policy_use (tx_id);
create trigger guard_scoped_uses before update or delete on policy_use for each row execute function refuse_change();
create trigger guard_scoped_uses_truncate before truncate on policy_use for each statement execute function refuse_change();

-- The amounts of intents that ended without a nonce. They are summed by the minute in which they were
-- counted, and subtracted as long as that whole minute counts. The scope '' is the submitter's value.
create table policy_released_use (
  submitter submitter_id not null,
  scope     text         not null,
  minute    timestamptz  not null,
  amount    numeric      not null check (amount > 0),
  constraint one_sum_a_minute primary key (submitter, scope, minute)
);
create trigger guard_released_use before delete on policy_released_use for each row execute function refuse_change();
create trigger guard_released_use_truncate before truncate on policy_released_use for each statement execute function refuse_change();

-- Gives back the amounts of an intent that was cancelled or expired without a nonce. Nothing is given back
-- if the intent is older than the acceptance of a restored database, or than the end of a PROTECT incident:
-- it may have run. It runs at the commit, and first locks what the audit chain locks there, against
-- deadlocks.
create function release_policy_use() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
  if not exists (select from submitter_use u where u.tx_id = new.tx_id and u.added_wei > 0)
     and not exists (select from policy_use u where u.tx_id = new.tx_id and u.added > 0)
     or not is_accepted_database()
     or exists (select from identity_change c where coalesce(c.intents_upto >= new.seq, c.at >= new.created_at))
     or exists (select from protect_incident e where e.submitter = new.submitter and coalesce(e.closed_at, 'infinity') >= new.created_at) then
    return null;
  end if;
  insert into audit_head (submitter, number, hash) values (new.submitter, 0, '') on conflict do nothing;
  perform from audit_head where submitter = new.submitter for no key update;
  insert into policy_released_use as g (submitter, scope, minute, amount)
  select new.submitter, u.scope, date_bin('1 minute', u.at, 'epoch'), sum(u.added)
    from (select '' as scope, v.at, v.added_wei as added from submitter_use v where v.tx_id = new.tx_id
           union all
          select w.scope, w.at, w.added from policy_use w where w.tx_id = new.tx_id) as u
   where u.added > 0
   group by 2, 3
      on conflict (submitter, scope, minute) do update set amount = g.amount + excluded.amount;
  return null;
end $$;
revoke execute on function release_policy_use() from public;
create constraint trigger release_policy_use after update on managed_tx deferrable initially deferred for each row
  when (old.state = 'QUEUED' and new.state = 'FAILED' and new.sub_state in ('CANCELLED', 'EXPIRED') and new.nonce is null and new.recorded_nonce is null)
  execute function release_policy_use();

-- The fees that were signed for, at their worst, with the sum so far: a row for each nonce that is bound,
-- and for each version that may cost more. The holder of the lease writes it, while a policy limits the
-- fees of a day.
create table submitter_fee (
  submitter submitter_id not null,
  number    bigint       not null check (number > 0),
  at        timestamptz  not null,
  tx_id     uuid         not null,
  added_wei numeric(90)  not null check (added_wei >= 0),
  total_wei numeric      not null,
  constraint one_fee_each primary key (submitter, number)
);
create index fees_in_time on submitter_fee (submitter, at, number);
create trigger guard_fees before update or delete on submitter_fee for each row execute function refuse_change();
create trigger guard_fees_truncate before truncate on submitter_fee for each statement execute function refuse_change();

-- What operators changed about a submitter. proposal and approved_by name the approval of a second operator.
create table submitter_change (
  id           bigint       generated always as identity primary key,
  submitter    submitter_id not null references submitter,
  action       text         not null constraint change_is_known
                            check (action in ('SUSPEND', 'RESUME', 'POLICY', 'SIGNER', 'CALLERS', 'APPROVED')),
  by           text         not null check (by <> ''),
  reason       text         not null check (reason <> ''),
  policy       jsonb,
  from_signer  text,
  to_signer    text,
  from_callers text[],
  to_callers   text[],
  succeeds     jsonb,
  proposal     uuid,
  approved_by  text,
  at           timestamptz  not null default clock_timestamp(),
  constraint policy_fits_action check ((policy is not null) = (action = 'POLICY')),
  constraint signers_fit_action check (case when action = 'SIGNER'
    then from_signer is not null and coalesce(to_signer, '') not in ('', from_signer)
    else from_signer is null and to_signer is null end),
  constraint callers_fit_action check ((action = 'CALLERS') = (from_callers is not null)
    and (action = 'CALLERS') = (to_callers is not null) and (action = 'CALLERS') = (succeeds is not null))
);
create index changes_of_submitter on submitter_change (submitter, id);
create trigger guard_changes before update or delete on submitter_change for each row execute function refuse_change();
create trigger guard_changes_truncate before truncate on submitter_change for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on submitter_change for each statement execute function refuse_while_moving();

-- The number of the last recorded change of a submitter; 0: there was none.
create function last_change(sub text) returns bigint
language sql stable set search_path = public, pg_temp as $$ select coalesce(max(c.id), 0) from submitter_change c where c.submitter = sub $$;

-- What operators and callers decided about a transaction. The requested action itself is on its row, and
-- the holder of the lease carries it out.
create table tx_decision (
  id          bigint      generated always as identity primary key,
  tx_id       uuid        not null references managed_tx,
  action      text        not null check (action in ('CANCEL', 'WAIT', 'REBROADCAST', 'REPLACE', 'PLACEHOLDER', 'PROCEED')),
  by          text        not null check (by <> ''),
  reason      text        not null check (reason <> ''),
  proposal    uuid,
  approved_by text,
  at          timestamptz not null default clock_timestamp()
);
create index decisions_of_tx on tx_decision (tx_id, id);
create trigger guard_decisions before update or delete on tx_decision for each row execute function refuse_change();
create trigger guard_decisions_truncate before truncate on tx_decision for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on tx_decision for each statement execute function refuse_while_moving();

-- The end of each submitter's audit chain, and the last link that is under a seal. The chain goes over the
-- rows of submitter_change and tx_decision. A row that is changed, removed or inserted later no longer fits.
create table audit_head (
  submitter submitter_id primary key references submitter,
  number    bigint       not null,
  hash      bytea        not null,
  sealed    bigint       not null default 0
);

-- One link for each of those rows. The hash covers the hash of the link before, and the link's text.
create table audit_link (
  submitter   submitter_id not null references submitter,
  number      bigint       not null,
  change_id   bigint,
  decision_id bigint,
  by_role     text,        -- the login of the database that wrote the row; null: the row is older than the chain
  at          timestamptz  not null,
  hash        bytea        not null,
  primary key (submitter, number),
  constraint link_has_one_row check (num_nonnulls(change_id, decision_id) = 1)
);
create unique index one_link_per_change on audit_link (change_id);
create unique index one_link_per_decision on audit_link (decision_id);
create trigger guard_links before update or delete on audit_link for each row execute function refuse_change();
create trigger guard_links_truncate before truncate on audit_link for each statement execute function refuse_change();

-- The ends of the chains that grew since the seal before, by submitter: [number, hash]. The mark outside
-- the database holds the last seal's hash.
create table audit_seal (
  number bigint      primary key,
  heads  jsonb       not null,
  hash   bytea       not null,
  at     timestamptz not null default clock_timestamp()
);
create trigger guard_seals before update or delete on audit_seal for each row execute function refuse_change();
create trigger guard_seals_truncate before truncate on audit_seal for each statement execute function refuse_change();

-- The text that a link's hash covers. It depends on no setting of the session. A column that a later
-- migration adds changes no text while it is null.
create function audit_text(of_submitter submitter_id, of_number bigint, of_change bigint, of_decision bigint, of_role text, of_time timestamptz)
returns text language sql stable set search_path = public, pg_temp as $$
  select jsonb_strip_nulls(jsonb_build_object('submitter', of_submitter, 'number', of_number, 'role', of_role,
    'linked', extract(epoch from of_time)::text,
    'change', (select jsonb_build_object('id', c.id, 'submitter', c.submitter, 'action', c.action, 'by', c.by, 'reason', c.reason,
                 'policy', c.policy, 'fromSigner', c.from_signer, 'toSigner', c.to_signer, 'fromCallers', c.from_callers,
                 'toCallers', c.to_callers, 'succeeds', c.succeeds, 'at', extract(epoch from c.at)::text,
                 'proposal', c.proposal, 'approvedBy', c.approved_by)
                 from submitter_change c where c.id = of_change),
    'decision', (select jsonb_build_object('id', d.id, 'tx', d.tx_id, 'action', d.action, 'by', d.by, 'reason', d.reason,
                   'at', extract(epoch from d.at)::text, 'proposal', d.proposal, 'approvedBy', d.approved_by)
                   from tx_decision d where d.id = of_decision)))::text
$$;

-- Adds a link to the end of a submitter's chain.
create function link_audit(of_submitter submitter_id, of_change bigint, of_decision bigint, of_role text) returns void
language plpgsql security definer set search_path = public, pg_temp as $$
declare
  last  audit_head;
  time  timestamptz := clock_timestamp();
  after bytea;
begin
  insert into audit_head (submitter, number, hash) values (of_submitter, 0, '') on conflict do nothing;
  select * into last from audit_head where submitter = of_submitter for no key update;
  after := sha256(last.hash || convert_to(audit_text(of_submitter, last.number + 1, of_change, of_decision, of_role, time), 'UTF8'));
  insert into audit_link (submitter, number, change_id, decision_id, by_role, at, hash)
  values (of_submitter, last.number + 1, of_change, of_decision, of_role, time, after);
  update audit_head set number = last.number + 1, hash = after where submitter = of_submitter;
end $$;

-- Links each row that was written, with the login that wrote it. It runs at the commit, when its transaction
-- takes no further lock.
create function link_written() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
  if tg_table_name = 'submitter_change' then
    perform link_audit(new.submitter, new.id, null, session_user);
  else
    perform link_audit((select m.submitter from managed_tx m where m.tx_id = new.tx_id), null, new.id, session_user);
  end if;
  return null;
end $$;
create constraint trigger link_change after insert on submitter_change deferrable initially deferred for each row execute function link_written();
create constraint trigger link_decision after insert on tx_decision deferrable initially deferred for each row execute function link_written();

-- Puts the ends of all chains under a seal, and returns the last seal; number 0: there is none. A chain that
-- another transaction is extending comes under the next seal.
create function seal_audit(for_mark text) returns table (seal_number bigint, seal_hash text)
language plpgsql security definer set search_path = public, pg_temp as $$
begin
  if for_mark is not null and exists (select from audit_head h where h.number > h.sealed) then
    lock table audit_seal in exclusive mode;
    with moved as (
      select h.submitter, h.number, h.hash
        from audit_head h
       where h.number > h.sealed
         for no key update skip locked
    ), marked as (
      update audit_head h set sealed = m.number from moved m where h.submitter = m.submitter
    ), content as (
      select jsonb_object_agg(m.submitter, jsonb_build_array(m.number, encode(m.hash, 'hex'))) as heads from moved m
    )
    insert into audit_seal (number, heads, hash)
    select coalesce(s.number, 0) + 1, c.heads, sha256(coalesce(s.hash, '') || convert_to((coalesce(s.number, 0) + 1) || ' ' || c.heads, 'UTF8'))
      from content c
      left join (select number, hash from audit_seal order by number desc limit 1) s on true
     where c.heads is not null;
  end if;
  return query
    select coalesce(s.number, 0), coalesce(encode(s.hash, 'hex'), '')
      from (values (1)) as one
      left join (select number, hash from audit_seal order by number desc limit 1) s on true;
end $$;
revoke execute on function link_audit(submitter_id, bigint, bigint, text), link_written(), seal_audit(text) from public;

-- The two-person rule: an act that one operator proposes, and another approves before it is carried out.
create table proposal (
  proposal_id    uuid        not null default gen_random_uuid(),
  seq            bigint      not null generated always as identity,
  kind           text        not null, -- of the setting approvals.required
  act            text        not null, -- see proposal_state
  subject        jsonb       not null, -- what the act is about
  method         text        not null,
  path           text        not null,
  body           text        not null, -- of the call, as it was made
  effect         text        not null, -- what will happen
  observed_state            jsonb       not null, -- the state that the proposal was made in
  observed_state_hash       bytea       not null,
  epoch          text        not null, -- of the database
  digest         bytea       not null, -- of proposer, act and state: the same again is the same proposal
  proposed_by    text        not null,
  proposer_names text[]      not null, -- every name that the proposer's token had
  reason         text        not null,
  created_at     timestamptz not null default clock_timestamp(),
  expires_at     timestamptz not null,
  status         text        not null default 'PROPOSED',
  approved_by    text,
  approver_names text[],
  approve_reason text,
  approved_at    timestamptz,
  closed_by      text,        -- who rejected it
  close_reason   text,        -- of a rejection, or what has changed
  closed_at      timestamptz,
  carried_out_xid    xid8,        -- the transaction that carried it out
  outcome_status integer,     -- what the act answered, once that is stored
  outcome        text,
  constraint one_id_per_proposal primary key (proposal_id),
  constraint one_number_per_proposal unique (seq),
  constraint status_of_proposal_is_known check (status in ('PROPOSED', 'APPROVED', 'CARRIED_OUT', 'REJECTED', 'EXPIRED', 'STALE')),
  constraint proposed_by_a_person check (proposed_by <> '' and proposed_by = any(proposer_names)),
  constraint two_people_agree check (case when approved_at is null
    then approved_by is null and approver_names is null and approve_reason is null and status not in ('APPROVED', 'CARRIED_OUT')
    else coalesce(approved_by = any(approver_names) and approve_reason <> '' and not approver_names && proposer_names, false) end),
  constraint end_of_proposal_is_complete check ((closed_at is null) = (status in ('PROPOSED', 'APPROVED'))
    and (status = 'REJECTED') = (closed_by is not null) and (outcome_status is null or status = 'CARRIED_OUT'))
);
create unique index one_open_proposal on proposal (digest) where status = 'PROPOSED';
create index open_proposals on proposal (seq) where status in ('PROPOSED', 'APPROVED');

-- Only the state of a proposal changes, and only forward.
create function guard_proposal() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE'
     or (new.proposal_id, new.seq, new.kind, new.act, new.subject, new.method, new.path, new.body, new.effect, new.observed_state, new.observed_state_hash, new.epoch, new.digest,
         new.proposed_by, new.proposer_names, new.reason, new.created_at, new.expires_at)
        is distinct from (old.proposal_id, old.seq, old.kind, old.act, old.subject, old.method, old.path, old.body, old.effect, old.observed_state, old.observed_state_hash, old.epoch, old.digest,
         old.proposed_by, old.proposer_names, old.reason, old.created_at, old.expires_at)
     or old.approved_at is not null and (new.approved_by, new.approver_names, new.approve_reason, new.approved_at)
        is distinct from (old.approved_by, old.approver_names, old.approve_reason, old.approved_at)
     or old.outcome_status is not null
     or (case old.status when 'PROPOSED' then new.status in ('PROPOSED', 'CARRIED_OUT')
                         when 'APPROVED' then new.status = 'PROPOSED'
                         when 'CARRIED_OUT' then new.status <> 'CARRIED_OUT' or new.carried_out_xid is distinct from old.carried_out_xid
                         else true end) then
    raise exception 'a proposal is history: it goes forward once, and never changes' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end $$;
create trigger guard_proposal before update or delete on proposal for each row execute function guard_proposal();
create trigger guard_proposals_truncate before truncate on proposal for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on proposal for each statement execute function refuse_while_moving();

-- What an act depends on, as it is now. The act is carried out only while this equals what the proposal saw.
create function proposal_state(of_act text, subject jsonb) returns jsonb language plpgsql stable security definer set search_path = public, pg_temp as $$
declare
  sub text := subject ->> 'submitter';
begin
  return case of_act
    -- The number of the last change tells a state that came back from one that stayed.
    when 'policy' then jsonb_build_object('change', last_change(sub), 'policy', (select to_jsonb(p) - 'submitter' - 'updated_at' from submitter_policy p where p.submitter = sub and p.limited))
    when 'callers' then (select jsonb_build_object('change', last_change(sub), 'callers', s.callers, 'succeeded', s.succeeded) from submitter s where s.submitter = sub)
    when 'signer' then (select jsonb_build_object('change', last_change(sub), 'signer', s.signer) from submitter s where s.submitter = sub)
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

-- Stores a proposal with the present state. The same proposal, made again, is the one that is stored.
create function propose_act(of_kind text, of_act text, of_subject jsonb, of_method text, of_path text, of_body text, of_call text, of_effect text,
  of_name text, of_names text[], of_reason text, valid_for interval) returns proposal
language plpgsql security definer set search_path = public, pg_temp as $$
declare
  state jsonb := proposal_state(of_act, of_subject);
  print bytea;
  made  proposal;
begin
  print := sha256(convert_to(jsonb_build_array(of_name, of_method, of_path, of_call, state, (select a.epoch from database_identity a))::text, 'UTF8'));
  if (select count(*) from proposal p where p.proposed_by = of_name and p.status in ('PROPOSED', 'APPROVED') and p.expires_at > clock_timestamp() and p.digest <> print) >= 100 then
    raise exception 'the operator has 100 open proposals' using errcode = 'FP015';
  end if;
  update proposal set status = 'EXPIRED', closed_at = clock_timestamp() where digest = print and status = 'PROPOSED' and expires_at <= clock_timestamp();
  insert into proposal (kind, act, subject, method, path, body, effect, observed_state, observed_state_hash, epoch, digest, proposed_by, proposer_names, reason, expires_at)
  select of_kind, of_act, of_subject, of_method, of_path, of_body, of_effect, coalesce(state, 'null'), sha256(convert_to(coalesce(state, 'null')::text, 'UTF8')), a.epoch, print,
         of_name, of_names, of_reason, clock_timestamp() + valid_for
    from database_identity a
      on conflict (digest) where status = 'PROPOSED' do nothing
  returning * into made;
  if made.proposal_id is null then
    select * into made from proposal where digest = print and status = 'PROPOSED';
  end if;
  return made;
end $$;

-- Evaluates whether a proposal that an operator approves may be carried out. It locks the proposal, and
-- closes one that is too old or whose state has changed.
create function evaluate_proposal(of_proposal uuid, of_names text[], out verdict text, out state jsonb)
language plpgsql security definer set search_path = public, pg_temp as $$
declare
  p proposal;
begin
  select * into p from proposal where proposal_id = of_proposal for update;
  state := coalesce(proposal_state(p.act, p.subject), 'null');
  if p.proposal_id is null then
    verdict := 'UNKNOWN';
  elsif p.proposer_names && of_names then
    verdict := 'SAME_OPERATOR';
  elsif p.status not in ('PROPOSED', 'APPROVED') then
    verdict := p.status;
  elsif p.expires_at <= clock_timestamp() then
    verdict := 'EXPIRED';
    update proposal set status = verdict, closed_at = clock_timestamp() where proposal_id = of_proposal;
  elsif p.act <> 'accept' and not is_accepted_database() then
    verdict := 'FOREIGN';
  elsif state <> p.observed_state or p.epoch is distinct from (select a.epoch from database_identity a) then
    verdict := 'STALE';
    update proposal set status = verdict, closed_at = clock_timestamp(), close_reason = state::text where proposal_id = of_proposal;
  else
    verdict := 'OPEN';
  end if;
end $$;

-- Records the approval of a second operator. The verdict is OPEN where the act may be carried out now.
create function approve_proposal(of_proposal uuid, of_name text, of_names text[], of_reason text, out verdict text, out state jsonb)
language plpgsql security definer set search_path = public, pg_temp as $$
begin
  select j.verdict, j.state into approve_proposal.verdict, approve_proposal.state from evaluate_proposal(of_proposal, of_names) j;
  if verdict = 'OPEN' then
    update proposal set status = 'APPROVED', approved_by = of_name, approver_names = of_names, approve_reason = of_reason, approved_at = clock_timestamp()
     where proposal_id = of_proposal and status = 'PROPOSED';
  end if;
end $$;

-- Runs in the transaction of the act: marks the proposal as carried out, once, while it is approved and its
-- state is the one that it saw. Decisions of the same transaction name it: see name_approval.
create function carry_out_proposal(of_proposal uuid) returns void language plpgsql security definer set search_path = public, pg_temp as $$
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
    raise exception 'proposal %: it is not approved, too old, or the state is not the one that it saw', of_proposal using errcode = 'FP014';
  end if;
  update proposal set status = 'CARRIED_OUT', closed_at = clock_timestamp(), carried_out_xid = pg_current_xact_id() where proposal_id = of_proposal;
  perform set_config('fencepost.proposal', of_proposal::text, true);
  if p.act not in ('policy', 'callers', 'signer', 'resume') then
    insert into submitter_change (submitter, action, by, reason)
    select s.submitter, 'APPROVED', p.proposed_by, p.effect
      from submitter s
     where s.submitter = coalesce(p.subject ->> 'submitter', (select m.submitter from managed_tx m where m.tx_id = (p.subject ->> 'txId')::uuid),
                                (select t.payout_submitter from transfers_tb t where t.req_id = p.subject ->> 'reqId'));
  end if;
end $$;

-- Keeps the answer of the act. An act without a transaction of its own is marked as carried out here.
create function finish_proposal(of_proposal uuid, of_status integer, of_answer text) returns void
language plpgsql security definer set search_path = public, pg_temp as $$
begin
  update proposal set status = 'CARRIED_OUT', closed_at = coalesce(closed_at, clock_timestamp()), outcome_status = of_status, outcome = of_answer
   where proposal_id = of_proposal and status in ('APPROVED', 'CARRIED_OUT') and outcome_status is null;
end $$;

-- Rejects a proposal. Its proposer withdraws it in the same way.
create function reject_proposal(of_proposal uuid, of_name text, of_reason text) returns text
language plpgsql security definer set search_path = public, pg_temp as $$
declare
  p proposal;
begin
  select * into p from proposal where proposal_id = of_proposal for update;
  if p.status in ('PROPOSED', 'APPROVED') then
    update proposal set status = 'REJECTED', closed_by = of_name, close_reason = of_reason, closed_at = clock_timestamp() where proposal_id = of_proposal;
  end if;
  return coalesce(p.status, 'UNKNOWN');
end $$;

-- Writes the proposal and the approver on a decision. The session's setting is not trusted: only a proposal
-- that this very transaction carries out counts.
create function name_approval() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
declare
  said text := coalesce(current_setting('fencepost.proposal', true), '');
begin
  new.proposal := null;
  new.approved_by := null;
  if said ~ '^[0-9a-f-]{36}$' then
    select p.proposal_id, p.approved_by into new.proposal, new.approved_by
      from proposal p where p.proposal_id = said::uuid and p.carried_out_xid = pg_current_xact_id();
  end if;
  return new;
end $$;
create trigger name_approval before insert on submitter_change for each row execute function name_approval();
create trigger name_approval before insert on tx_decision for each row execute function name_approval();

revoke execute on function proposal_state(text, jsonb), propose_act(text, text, jsonb, text, text, text, text, text, text, text[], text, interval),
  evaluate_proposal(uuid, text[]), approve_proposal(uuid, text, text[], text), carry_out_proposal(uuid), finish_proposal(uuid, integer, text),
  reject_proposal(uuid, text, text), name_approval() from public;
-- +goose StatementEnd
