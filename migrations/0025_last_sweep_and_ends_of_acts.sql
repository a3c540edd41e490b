-- Which sweep was the last one, narrower statuses that wait for the trading core, and how operators end a deposit or
-- withdrawal.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
-- The sweep that ended last, by an id that its process chose. That process shows the gauges of the deployment, and no
-- other does. A sequence does not say that: after a crash it continues at a higher number.
-- The release before uses sweep_number beside this one; a later release drops it.
create table last_sweep (
  only_row boolean not null default true,
  sweep    text    not null,
  constraint one_last_sweep primary key (only_row),
  constraint last_sweep_is_one_row check (only_row)
);

-- One operator may order a status that only narrows, also while the trading core does not answer. If the core turns out
-- to have DISABLED, it keeps it.
alter table account_act add column only_narrower boolean not null default false;

-- Up to which line the core's journal was read for an operator's end of the act. It does not have the act up to there.
alter table account_act add column journal_read bigint not null default 0 check (journal_read >= 0);

-- As before, and with this column, which only grows.
create or replace function guard_account_act() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE'
     or (to_jsonb(new) - '{funding,trading,open,unknown,next_at,journal_read}'::text[]) <> (to_jsonb(old) - '{funding,trading,open,unknown,next_at,journal_read}'::text[])
     or new.journal_read < old.journal_read
     or old.funding is distinct from new.funding and old.funding is not null
     or old.trading is distinct from new.trading and old.trading is not null then
    raise exception 'of an act on an account only the answers are added' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end $$;

-- As before, with this column.
create or replace function order_status(of_user bigint, of_asset integer, of_status text, of_by text, of_reason text, only_narrower boolean,
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
  insert into account_act (kind, user_id, asset_id, status, by, reason, only_narrower)
  values ('STATUS', of_user, of_asset, of_status, of_by, of_reason, order_status.only_narrower)
  returning * into act;
  perform set_funding_status(act.act_id);
  select * into act from account_act a where a.act_id = act.act_id;
end $$;

-- An operator's end of a deposit or withdrawal that waits for the trading core. The evidence is the line of the core's
-- journal that has its answer, or that the lines after read_after, up to read_upto, the last one, do not have it.
create table account_act_ending (
  act_id      bigint      not null references account_act,
  by          text        not null check (by <> ''),
  reason      text        not null check (reason <> ''),
  at          timestamptz not null default clock_timestamp(),
  line        numeric(20, 0),
  read_after  numeric(20, 0),
  read_upto   numeric(20, 0),
  proposal    uuid,
  approved_by text,
  constraint one_ending_per_act primary key (act_id),
  constraint ending_has_evidence check (case when line is null then read_after >= 0 and read_upto >= read_after and read_upto is not null and read_after is not null
    else line > 0 and num_nonnulls(read_after, read_upto) = 0 end)
);
create index acts_of_account_act_endings on account_act_ending (at, act_id); -- for the list of operators' acts
create trigger guard_account_act_endings before update or delete on account_act_ending for each row execute function refuse_change();
create trigger guard_account_act_endings_truncate before truncate on account_act_ending for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on account_act_ending for each statement execute function refuse_while_moving();
create trigger name_approval before insert on account_act_ending for each row execute function name_approval();
-- +goose StatementEnd
