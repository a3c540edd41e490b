-- The two-person rule: what one operator proposes, and another approves before it is
-- carried out.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

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
  saw            jsonb       not null, -- the state that the proposal was made in
  saw_hash       bytea       not null,
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
  carried_xid    xid8,        -- the transaction that carried it out
  outcome_status integer,     -- what the act answered, once that is stored
  outcome        text,
  constraint one_id_per_proposal primary key (proposal_id),
  constraint one_number_per_proposal unique (seq),
  constraint status_of_proposal_is_known check (status in ('PROPOSED', 'APPROVED', 'CARRIED_OUT', 'REJECTED', 'EXPIRED', 'STALE')),
  constraint proposed_by_a_person check (proposed_by <> '' and proposed_by = any(proposer_names)),
  constraint two_people_agree check (case when approved_at is null
    then approved_by is null and approver_names is null and approve_reason is null and status not in ('APPROVED', 'CARRIED_OUT')
    else coalesce(approved_by = any(approver_names) and approve_reason <> '' and not approver_names && proposer_names, false) end),
  constraint end_of_proposal_is_whole check ((closed_at is null) = (status in ('PROPOSED', 'APPROVED'))
    and (status = 'REJECTED') = (closed_by is not null) and (outcome_status is null or status = 'CARRIED_OUT'))
);
create unique index one_open_proposal on proposal (digest) where status = 'PROPOSED';
create index open_proposals on proposal (seq) where status in ('PROPOSED', 'APPROVED');

-- A proposal changes by its state alone, and only forward.
-- +goose StatementBegin
create function keep_proposal() returns trigger
language plpgsql as $$
begin
  if tg_op = 'DELETE'
     or (new.proposal_id, new.seq, new.kind, new.act, new.subject, new.method, new.path, new.body, new.effect, new.saw, new.saw_hash, new.epoch, new.digest,
         new.proposed_by, new.proposer_names, new.reason, new.created_at, new.expires_at)
        is distinct from (old.proposal_id, old.seq, old.kind, old.act, old.subject, old.method, old.path, old.body, old.effect, old.saw, old.saw_hash, old.epoch, old.digest,
         old.proposed_by, old.proposer_names, old.reason, old.created_at, old.expires_at)
     or old.approved_at is not null and (new.approved_by, new.approver_names, new.approve_reason, new.approved_at)
        is distinct from (old.approved_by, old.approver_names, old.approve_reason, old.approved_at)
     or old.outcome_status is not null
     or (case old.status when 'PROPOSED' then new.status in ('PROPOSED', 'CARRIED_OUT')
                         when 'APPROVED' then new.status = 'PROPOSED'
                         when 'CARRIED_OUT' then new.status <> 'CARRIED_OUT' or new.carried_xid is distinct from old.carried_xid
                         else true end) then
    raise exception 'a proposal is history: it goes forward once, and never changes' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end
$$;
-- +goose StatementEnd

create trigger keep_proposal before update or delete on proposal for each row execute function keep_proposal();
create trigger keep_all_proposals before truncate on proposal for each statement execute function refuse_change();
create trigger not_while_moving before insert or update on proposal for each statement execute function refuse_while_moving();

-- The number of the last recorded change of a submitter; 0: there was none.
create function last_change(sub text) returns bigint
language sql stable set search_path = public, pg_temp as $$ select coalesce(max(c.id), 0) from submitter_change c where c.submitter = sub $$;

-- What an act stands on, as it is now. An act is carried out only while this is what its
-- proposal saw.
-- +goose StatementBegin
create function proposal_state(of_act text, subject jsonb) returns jsonb
language plpgsql stable security definer set search_path = public, pg_temp as $$
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
    when 'release' then (select jsonb_build_object('episode', p.episode, 'openedAt', p.opened_at, 'evidence', p.evidence, 'nextNonce', c.next_nonce)
                           from submitter_nonce_cursor c
                           left join protect_episode p on p.submitter = c.submitter and p.closed_at is null
                          where c.submitter = sub)
    when 'accept' then (select jsonb_build_object('epoch', a.epoch, 'acceptedAt', a.accepted_at, 'isAuthority', is_authority(),
                                 'systemIdentifier', s.system_identifier::text, 'timeline', current_timeline())
                          from authority a, pg_control_system() s)
    when 'release-untouched' then (select jsonb_build_object('epoch', a.epoch, 'acceptedAt', a.accepted_at, 'isAuthority', is_authority()) from authority a)
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
end
$$;

-- Stores what an operator wants done, with the state that it is wanted in.
create function propose_act(of_kind text, of_act text, of_subject jsonb, of_method text, of_path text, of_body text, of_call text, of_effect text,
  of_name text, of_names text[], of_reason text, valid_for interval) returns proposal
language plpgsql security definer set search_path = public, pg_temp as $$
declare
  state jsonb := proposal_state(of_act, of_subject);
  print bytea;
  made  proposal;
begin
  print := sha256(convert_to(jsonb_build_array(of_name, of_method, of_path, of_call, state, (select a.epoch from authority a))::text, 'UTF8'));
  if (select count(*) from proposal p where p.proposed_by = of_name and p.status in ('PROPOSED', 'APPROVED') and p.expires_at > clock_timestamp() and p.digest <> print) >= 100 then
    raise exception 'the operator has 100 open proposals' using errcode = 'FP015';
  end if;
  update proposal set status = 'EXPIRED', closed_at = clock_timestamp() where digest = print and status = 'PROPOSED' and expires_at <= clock_timestamp();
  insert into proposal (kind, act, subject, method, path, body, effect, saw, saw_hash, epoch, digest, proposed_by, proposer_names, reason, expires_at)
  select of_kind, of_act, of_subject, of_method, of_path, of_body, of_effect, coalesce(state, 'null'), sha256(convert_to(coalesce(state, 'null')::text, 'UTF8')), a.epoch, print,
         of_name, of_names, of_reason, clock_timestamp() + valid_for
    from authority a
      on conflict (digest) where status = 'PROPOSED' do nothing
  returning * into made;
  if made.proposal_id is null then
    select * into made from proposal where digest = print and status = 'PROPOSED';
  end if;
  return made;
end
$$;

-- Whether a proposal that somebody approves may be carried out. It locks the proposal, and
-- ends one that is too old, or whose state has gone.
create function judge_proposal(of_proposal uuid, of_names text[], out verdict text, out state jsonb)
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
  elsif p.act <> 'accept' and not is_authority() then
    verdict := 'FOREIGN';
  elsif state <> p.saw or p.epoch is distinct from (select a.epoch from authority a) then
    verdict := 'STALE';
    update proposal set status = verdict, closed_at = clock_timestamp(), close_reason = state::text where proposal_id = of_proposal;
  else
    verdict := 'OPEN';
  end if;
end
$$;

-- A second operator agrees. The verdict is OPEN where it may be carried out now.
create function approve_proposal(of_proposal uuid, of_name text, of_names text[], of_reason text, out verdict text, out state jsonb)
language plpgsql security definer set search_path = public, pg_temp as $$
begin
  select j.verdict, j.state into approve_proposal.verdict, approve_proposal.state from judge_proposal(of_proposal, of_names) j;
  if verdict = 'OPEN' then
    update proposal set status = 'APPROVED', approved_by = of_name, approver_names = of_names, approve_reason = of_reason, approved_at = clock_timestamp()
     where proposal_id = of_proposal and status = 'PROPOSED';
  end if;
end
$$;

-- Stands in the transaction of the act: carries the proposal out, once, while it is approved
-- and its state is the one that it saw. What decides in the same transaction names it: see
-- name_approval.
create function carry_out_proposal(of_proposal uuid) returns void
language plpgsql security definer set search_path = public, pg_temp as $$
declare
  p proposal;
begin
  select * into p from proposal where proposal_id = of_proposal for update;
  if p.act = 'unblock-addresses' then -- the act has no lock of its own before this
    perform from payout_address_block b where b.user_id = (p.subject ->> 'userId')::bigint and b.lifted_at is null for update;
  elsif p.act = 'transfer' then
    perform from transfers_tb t where t.req_id = p.subject ->> 'reqId' for update;
  end if;
  if p.status is distinct from 'APPROVED' or p.expires_at <= clock_timestamp() or coalesce(proposal_state(p.act, p.subject), 'null') <> p.saw
     or p.act <> 'accept' and (not is_authority() or p.epoch is distinct from (select a.epoch from authority a)) then
    raise exception 'proposal %: it is not approved, too old, or the state is not the one that it saw', of_proposal using errcode = 'FP014';
  end if;
  update proposal set status = 'CARRIED_OUT', closed_at = clock_timestamp(), carried_xid = pg_current_xact_id() where proposal_id = of_proposal;
  perform set_config('fencepost.proposal', of_proposal::text, true);
  if p.act not in ('policy', 'callers', 'signer', 'resume') then
    insert into submitter_change (submitter, action, by, reason)
    select s.submitter, 'APPROVED', p.proposed_by, p.effect
      from submitter s
     where s.submitter = coalesce(p.subject ->> 'submitter', (select m.submitter from managed_tx m where m.tx_id = (p.subject ->> 'txId')::uuid),
                                (select t.payout_submitter from transfers_tb t where t.req_id = p.subject ->> 'reqId'));
  end if;
end
$$;

-- Keeps what the act answered. An act that has no transaction of its own to be carried out
-- in is carried out by it.
create function finish_proposal(of_proposal uuid, of_status integer, of_answer text) returns void
language plpgsql security definer set search_path = public, pg_temp as $$
begin
  update proposal set status = 'CARRIED_OUT', closed_at = coalesce(closed_at, clock_timestamp()), outcome_status = of_status, outcome = of_answer
   where proposal_id = of_proposal and status in ('APPROVED', 'CARRIED_OUT') and outcome_status is null;
end
$$;

-- Any operator rejects; whoever proposed withdraws so.
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
end
$$;
-- +goose StatementEnd

-- Both names stand in what was decided by two, and so in its link: see audit_text.
alter table submitter_change
  add column proposal    uuid,
  add column approved_by text,
  drop constraint change_is_known,
  add constraint change_is_known check (action in ('SUSPEND', 'RESUME', 'POLICY', 'SIGNER', 'CALLERS', 'APPROVED')) not valid;
alter table submitter_change validate constraint change_is_known;
alter table tx_decision
  add column proposal    uuid,
  add column approved_by text;

-- The session's setting is not believed: only what this very transaction carries out counts.
-- +goose StatementBegin
create function name_approval() returns trigger
language plpgsql security definer set search_path = public, pg_temp as $$
declare
  said text := coalesce(current_setting('fencepost.proposal', true), '');
begin
  new.proposal := null;
  new.approved_by := null;
  if said ~ '^[0-9a-f-]{36}$' then
    select p.proposal_id, p.approved_by into new.proposal, new.approved_by
      from proposal p where p.proposal_id = said::uuid and p.carried_xid = pg_current_xact_id();
  end if;
  return new;
end
$$;
-- +goose StatementEnd

create trigger name_approval before insert on submitter_change for each row execute function name_approval();
create trigger name_approval before insert on tx_decision for each row execute function name_approval();

create or replace function audit_text(of_submitter submitter_id, of_number bigint, of_change bigint, of_decision bigint, of_role text, of_time timestamptz)
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

revoke execute on function proposal_state(text, jsonb), propose_act(text, text, jsonb, text, text, text, text, text, text, text[], text, interval),
  judge_proposal(uuid, text[]), approve_proposal(uuid, text, text[], text), carry_out_proposal(uuid), finish_proposal(uuid, integer, text),
  reject_proposal(uuid, text, text), name_approval() from public;

select copy_grants('managed_tx', 'proposal', array['SELECT']);

-- +goose Down
create or replace function audit_text(of_submitter submitter_id, of_number bigint, of_change bigint, of_decision bigint, of_role text, of_time timestamptz)
returns text language sql stable set search_path = public, pg_temp as $$
  select jsonb_strip_nulls(jsonb_build_object('submitter', of_submitter, 'number', of_number, 'role', of_role,
    'linked', extract(epoch from of_time)::text,
    'change', (select jsonb_build_object('id', c.id, 'submitter', c.submitter, 'action', c.action, 'by', c.by, 'reason', c.reason,
                 'policy', c.policy, 'fromSigner', c.from_signer, 'toSigner', c.to_signer, 'fromCallers', c.from_callers,
                 'toCallers', c.to_callers, 'succeeds', c.succeeds, 'at', extract(epoch from c.at)::text)
                 from submitter_change c where c.id = of_change),
    'decision', (select jsonb_build_object('id', d.id, 'tx', d.tx_id, 'action', d.action, 'by', d.by, 'reason', d.reason,
                   'at', extract(epoch from d.at)::text)
                   from tx_decision d where d.id = of_decision)))::text
$$;
drop trigger name_approval on tx_decision;
drop trigger name_approval on submitter_change;
drop function name_approval, reject_proposal, finish_proposal, carry_out_proposal, approve_proposal, judge_proposal, propose_act, proposal_state, last_change;
alter table tx_decision drop column approved_by, drop column proposal;
alter table submitter_change
  drop constraint change_is_known,
  add constraint change_is_known check (action in ('SUSPEND', 'RESUME', 'POLICY', 'SIGNER', 'CALLERS')) not valid,
  drop column approved_by,
  drop column proposal;
drop table proposal;
drop function keep_proposal;
