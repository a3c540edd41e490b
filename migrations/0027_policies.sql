-- What may be asked of a submitter: a policy of limits, what counts against it, and
-- who changed it, suspended and resumed the submitter, or moved its key to another signer.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- An amount is in wei, a null is no limit. A day is the last 24 hours. A target is an
-- address, or 'deploy' for a transaction without one. The row is what creates of a
-- submitter with limits over time wait for each other by.
create table submitter_policy (
  submitter      submitter_id primary key references submitter,
  max_value_wei  numeric(78) constraint value_is_an_amount check (max_value_wei >= 0),
  max_day_wei    numeric(78) constraint day_is_an_amount check (max_day_wei >= 0),
  max_per_minute integer     constraint rate_is_a_number check (max_per_minute between 1 and 1000000),
  targets        text[]      constraint targets_are_some check (cardinality(targets) between 1 and 1000),
  updated_at     timestamptz not null default clock_timestamp(),
  limited        boolean     not null generated always as
    (max_value_wei is not null or max_day_wei is not null or max_per_minute is not null or targets is not null) stored,
  over_time      boolean     not null generated always as (max_day_wei is not null or max_per_minute is not null) stored
);

-- One row for each intent, each transaction of a handler or of a reservation's owner,
-- and the reservations that were made together, that count against a limit over time,
-- with the sums so far: what a window has used is one subtraction.
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

create table submitter_change (
  id          bigint       generated always as identity primary key,
  submitter   submitter_id not null references submitter,
  action      text         not null constraint change_is_known check (action in ('SUSPEND', 'RESUME', 'POLICY', 'SIGNER')),
  by          text         not null check (by <> ''),
  reason      text         not null check (reason <> ''),
  policy      jsonb,
  from_signer text,
  to_signer   text,
  at          timestamptz  not null default clock_timestamp(),
  constraint policy_of_a_policy check ((policy is not null) = (action = 'POLICY')),
  constraint signers_of_a_signer check (case when action = 'SIGNER'
    then from_signer is not null and coalesce(to_signer, '') not in ('', from_signer)
    else from_signer is null and to_signer is null end)
);
create index changes_of_submitter on submitter_change (submitter, id);

-- What nobody may write where the policy refuses it, it ends with all that is written
-- with it.
-- +goose StatementBegin
create function refuse_by_policy(rule text, most text) returns void
language plpgsql as $$
begin
  raise exception '%', rule using errcode = 'FP010', detail = most;
end
$$;
-- +goose StatementEnd

create trigger keep_policy before delete on submitter_policy for each row execute function refuse_change();
create trigger keep_uses before update or delete on submitter_use for each row execute function refuse_change();
create trigger keep_all_uses before truncate on submitter_use for each statement execute function refuse_change();
create trigger keep_changes before update or delete on submitter_change for each row execute function refuse_change();
create trigger keep_all_changes before truncate on submitter_change for each statement execute function refuse_change();

select copy_grants('managed_tx', 'submitter_policy', array['SELECT', 'INSERT', 'UPDATE']);
select copy_grants('managed_tx', 'submitter_use', array['SELECT', 'INSERT']);
select copy_grants('managed_tx', 'submitter_change', array['SELECT', 'INSERT']);

-- +goose Down
drop function refuse_by_policy;
drop table submitter_change;
drop table submitter_use;
drop table submitter_policy;
