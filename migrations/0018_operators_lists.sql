-- What operators see and do about webhook endpoints, transfers of all users, and one list of all acts of operators.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
-- The pause of a webhook endpoint, and its last answer. secrets are fingerprints of those that signed the last
-- delivery.
alter table event_endpoint
  alter column failures set default 0,
  alter column next_attempt_at set default clock_timestamp(),
  add column paused_at    timestamptz,
  add column paused_by    text,
  add column pause_reason text,
  add column answered_at  timestamptz,
  add column last_status  integer, -- null: there was no answer
  add column last_answer  text,
  add column secrets      text[],
  add constraint pause_is_complete check ((paused_at is null) = (coalesce(paused_by, '') = '') and (paused_at is null) = (coalesce(pause_reason, '') = ''));

-- A redelivery sets delivered back. redeliver_after says so to an invocation that delivers meanwhile, which would
-- raise it again.
alter table event_delivery_queue
  add column redeliver_after bigint,
  add column redelivered_at  timestamptz;

-- What operators did to webhook endpoints.
create table webhook_act (
  id              bigint      generated always as identity,
  endpoint        text        not null,
  action          text        not null,
  by              text        not null,
  reason          text        not null,
  after_position  bigint,       -- REDELIVER: of the events after this position
  submitter       submitter_id, -- REDELIVER: of this one alone
  at              timestamptz not null default clock_timestamp(),
  proposal        uuid,
  approved_by     text,
  status          integer,      -- TEST: the answer; null: none
  answer          text,
  answered_at     timestamptz,
  constraint one_number_per_webhook_act primary key (id),
  constraint webhook_act_is_known check (action in ('TEST', 'REDELIVER', 'PAUSE', 'RESUME')),
  constraint webhook_act_of_a_person check (by <> '' and reason <> ''),
  constraint redelivery_has_a_cursor check ((action = 'REDELIVER') = (after_position is not null) and (submitter is null or after_position is not null)),
  constraint only_tests_are_answered check (action = 'TEST' or answered_at is null)
);
create index tests_of_endpoint on webhook_act (endpoint, id) where action = 'TEST';
create trigger name_approval before insert on webhook_act for each row execute function name_approval();

-- A test changes once: when it is answered.
create function guard_webhook_act() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.answered_at is not null
     or (new.id, new.endpoint, new.action, new."by", new.reason, new.after_position, new.submitter, new.at, new.proposal, new.approved_by)
        is distinct from (old.id, old.endpoint, old.action, old."by", old.reason, old.after_position, old.submitter, old.at, old.proposal, old.approved_by) then
    raise exception 'an act on a webhook endpoint changes once: when a test is answered' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end $$;
create trigger guard_webhook_act before update or delete on webhook_act for each row execute function guard_webhook_act();
create trigger guard_webhook_acts_truncate before truncate on webhook_act for each statement execute function refuse_change();

-- The state that an act on a webhook endpoint depends on.
create function webhook_state(of_endpoint text) returns jsonb language sql stable set search_path = public, pg_temp as $$
  select jsonb_build_object('pausedAt', (select e.paused_at from event_endpoint e where e.endpoint = of_endpoint),
                            'lastAct', (select coalesce(max(w.id), 0) from webhook_act w where w.endpoint = of_endpoint and w.action <> 'TEST'))
$$;
alter function proposal_state(text, jsonb) rename to proposal_state_of_others;
create function proposal_state(of_act text, subject jsonb) returns jsonb language sql stable security definer set search_path = public, pg_temp as $$
  select case when of_act = 'webhook' then webhook_state(subject ->> 'endpoint') else proposal_state_of_others(of_act, subject) end
$$;
revoke execute on function proposal_state(text, jsonb) from public;

-- Transfers that failed or were refunded, by state. A row of history never changes, so no transition of
-- transfers_tb writes this index.
create index transfers_that_failed on transfer_history (state, transfer_id) where state in (-10, -30);

-- True of an operator's decision; null of a caller's, of one that code made, and of one from before this column.
alter table tx_decision add column operator boolean;

-- As before, with this column.
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
    'decision', (select jsonb_build_object('id', d.id, 'tx', d.tx_id, 'action', d.action, 'by', d.by, 'reason', d.reason, 'operator', d.operator,
                   'at', extract(epoch from d.at)::text, 'proposal', d.proposal, 'approvedBy', d.approved_by)
                   from tx_decision d where d.id = of_decision)))::text
$$;

-- One index in the order of time for each source of the list of acts: see actSources in shared/store. Where a row has no
-- number, the second column is a hash of its key. identity_change has few rows, and needs none.
create index acts_of_registration on submitter (created_at, (hashtextextended(submitter, 0)));
create index acts_of_change on submitter_change (at, id);
create index acts_of_decision on tx_decision (at, id) where operator;
create index acts_of_release on protect_incident (closed_at, (hashtextextended(submitter || '/' || incident, 0))) where closed_at is not null;
create index acts_of_hold on foreign_hold (ended_at, (hashtextextended(submitter || '/' || nonce, 0))) where ended_at is not null;
create index acts_of_resolution on transfer_resolution (at, id);
create index acts_of_acknowledgement on transfer_acknowledgement (at, id);
create index acts_of_resumption on transfer_halt (resumed_at, halt_id) where resumed_at is not null;
create index acts_of_statement on payout_statement (at, id);
create index acts_of_withdrawal on payout_statement (withdrawn_at, id) where withdrawn_at is not null;
create index acts_of_removal on payout_address (removed_at, address_id) where removed_by <> 'user';
create index acts_of_block on payout_address_block (at, block_id);
create index acts_of_lift on payout_address_block (lifted_at, block_id) where lifted_at is not null;
create index acts_of_adjustment on conservation_adjustment (at, id);
create index acts_of_proposal on proposal (created_at, seq);
create index acts_of_approval on proposal (approved_at, seq) where approved_at is not null;
create index acts_of_rejection on proposal (closed_at, seq) where closed_by is not null;
create index acts_of_webhook on webhook_act (at, id);
-- +goose StatementEnd
