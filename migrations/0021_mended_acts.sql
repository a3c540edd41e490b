-- Money before statuses, and the limit of the deposit service under the lock of its asset.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
-- The sweep repeats these first. See dueActs.
create index open_money on account_act (next_at, act_id) where open and kind <> 'STATUS';

-- As before, but a change of the limit waits for the deposits that have read it, or they for the change.
create or replace function order_money(of_kind text, of_request text, of_ledger text, of_user bigint, of_asset integer, of_units numeric, of_by text, of_reason text,
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
  select a.daily_service_deposits * 10::numeric ^ a.precision into most from assets_tb a where a.asset_id = of_asset for share;
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
-- +goose StatementEnd
