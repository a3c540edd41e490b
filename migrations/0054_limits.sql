-- Limits of each caller and of amounts of tokens in a policy, what counts against them, and
-- what cancelled intents give back. Whatever breaks off here may be run again.

-- +goose NO TRANSACTION
-- +goose Up
set lock_timeout = '5s';
set statement_timeout = '60s';

-- Limits by the full name of a caller, and by the address of a token. A limit that is not
-- there is none. over_time says that creates of the submitter wait for each other.
-- +goose StatementBegin
do $$
begin
  alter table submitter_policy
    add column if not exists per_caller jsonb,
    add column if not exists tokens     jsonb,
    drop constraint if exists callers_limits_are_some,
    drop constraint if exists tokens_limits_are_some,
    add constraint callers_limits_are_some check (jsonb_typeof(per_caller) = 'object' and per_caller <> '{}'),
    add constraint tokens_limits_are_some check (jsonb_typeof(tokens) = 'object' and tokens <> '{}');
  alter table submitter_policy drop column if exists limited, drop column if exists over_time;
  alter table submitter_policy
    add column limited boolean not null generated always as
      (max_value_wei is not null or max_day_wei is not null or max_per_minute is not null or targets is not null
       or max_fee_wei is not null or max_tip_wei is not null or max_gas is not null or max_day_fees_wei is not null
       or per_caller is not null or tokens is not null) stored,
    add column over_time boolean not null generated always as
      (max_day_wei is not null or max_per_minute is not null
       or coalesce(jsonb_path_exists(per_caller, '$.*.maxValuePerDay'), false) or coalesce(jsonb_path_exists(per_caller, '$.*.maxPerMinute'), false)
       or coalesce(jsonb_path_exists(per_caller, '$.*.maxQueued'), false) or coalesce(jsonb_path_exists(tokens, '$.*.maxAmountPerDay'), false)) stored;
end
$$;
-- +goose StatementEnd

-- What counts against the limits of a caller or a token, as submitter_use has it for the
-- submitter. The scope is a caller's full name, or a token's address, which begins with 0x.
create table if not exists policy_use (
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
create index if not exists policy_uses_in_time on policy_use (submitter, scope, at, number);
create index if not exists policy_uses_of_tx on policy_use (tx_id);

-- What ended without ever having had a nonce gives its amounts back. They are summed by the
-- minute in which they were counted, and taken off for as long as that whole minute counts: a
-- day later both are gone. The scope '' is the submitter's value.
create table if not exists policy_given_back (
  submitter submitter_id not null,
  scope     text         not null,
  minute    timestamptz  not null,
  amount    numeric      not null check (amount > 0),
  constraint one_sum_a_minute primary key (submitter, scope, minute)
);

-- It runs at the commit, and locks what the chain over audit rows locks there, first: two
-- transactions about one submitter cannot wait for each other in a circle. What lost history
-- may have carried out, or whoever used the key, gives nothing back.
-- +goose StatementBegin
create or replace function give_back() returns trigger
language plpgsql security definer set search_path = public, pg_temp as $$
begin
  if not exists (select from submitter_use u where u.tx_id = new.tx_id and u.added_wei > 0)
     and not exists (select from policy_use u where u.tx_id = new.tx_id and u.added > 0)
     or not is_authority()
     or exists (select from authority_change c where coalesce(c.intents_upto >= new.seq, c.at >= new.created_at))
     or exists (select from protect_episode e where e.submitter = new.submitter and coalesce(e.closed_at, 'infinity') >= new.created_at) then
    return null;
  end if;
  insert into audit_head (submitter, number, hash) values (new.submitter, 0, '') on conflict do nothing;
  perform from audit_head where submitter = new.submitter for no key update;
  insert into policy_given_back as g (submitter, scope, minute, amount)
  select new.submitter, u.scope, date_bin('1 minute', u.at, 'epoch'), sum(u.added)
    from (select '' as scope, v.at, v.added_wei as added from submitter_use v where v.tx_id = new.tx_id
           union all
          select w.scope, w.at, w.added from policy_use w where w.tx_id = new.tx_id) as u
   where u.added > 0
   group by 2, 3
      on conflict (submitter, scope, minute) do update set amount = g.amount + excluded.amount;
  return null;
end
$$;
-- +goose StatementEnd
revoke execute on function give_back() from public;

drop trigger if exists give_back on managed_tx;
create constraint trigger give_back after update on managed_tx deferrable initially deferred for each row
  when (old.state = 'QUEUED' and new.state = 'FAILED' and new.sub_state in ('CANCELLED', 'EXPIRED') and new.nonce is null and new.recorded_nonce is null)
  execute function give_back();

create or replace trigger keep_scoped_uses before update or delete on policy_use for each row execute function refuse_change();
create or replace trigger keep_all_scoped_uses before truncate on policy_use for each statement execute function refuse_change();
create or replace trigger keep_given_back before delete on policy_given_back for each row execute function refuse_change();
create or replace trigger keep_all_given_back before truncate on policy_given_back for each statement execute function refuse_change();

select copy_grants('managed_tx', 'policy_use', array['SELECT', 'INSERT']);
select copy_grants('managed_tx', 'policy_given_back', array['SELECT']);

reset lock_timeout;

-- +goose Down
drop trigger if exists give_back on managed_tx;
drop function if exists give_back;
drop table if exists policy_given_back, policy_use;
-- +goose StatementBegin
do $$
begin
  alter table submitter_policy drop column if exists limited, drop column if exists over_time, drop column if exists per_caller, drop column if exists tokens;
  alter table submitter_policy
    add column limited boolean not null generated always as
      (max_value_wei is not null or max_day_wei is not null or max_per_minute is not null or targets is not null
       or max_fee_wei is not null or max_tip_wei is not null or max_gas is not null or max_day_fees_wei is not null) stored,
    add column over_time boolean not null generated always as (max_day_wei is not null or max_per_minute is not null) stored;
end
$$;
-- +goose StatementEnd
