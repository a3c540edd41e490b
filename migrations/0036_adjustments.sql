-- The remedy of a balance that is not the sum of its journal: an adjustment, once for a
-- finding, by exactly its difference.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

alter table transfer_operations
  drop constraint operation_is_known,
  add constraint operation_is_known check (op_type in ('withdraw', 'deposit', 'refund', 'outside_deposit', 'outside_withdrawal',
    'journal_credit', 'journal_debit', 'balance_credit', 'balance_debit')) not valid;
alter table transfer_operations validate constraint operation_is_known;

-- What the last check saw of what stands; null: as it was found.
alter table conservation_standing add column expected text, add column got text;

-- Who ordered which adjustment, and why. applied_at is null where its ledger has not
-- said that it made it; the order can then be given again.
create table conservation_adjustment (
  id         bigint         not null generated always as identity,
  finding_id bigint         not null,
  side       text           not null,
  op         text           not null,
  user_id    bigint         not null,
  asset_id   integer        not null,
  units      numeric(20, 0) not null,
  by         text           not null,
  reason     text           not null,
  at         timestamptz    not null default clock_timestamp(),
  applied_at timestamptz,
  constraint one_number_per_adjustment primary key (id),
  constraint adjusted_finding_exists foreign key (finding_id) references conservation_finding,
  constraint adjustment_of_a_side check (side in ('FUNDING', 'SPOT')),
  constraint adjustment_is_known check (op in ('journal_credit', 'journal_debit', 'balance_credit', 'balance_debit')),
  constraint adjusted_by_a_person check (by <> '' and reason <> ''),
  constraint adjustment_moves_something check (units between 1 and 18446744073709551615)
);
create unique index one_adjustment_per_finding on conservation_adjustment (finding_id) where applied_at is not null;

-- +goose StatementBegin
create function keep_adjustment() returns trigger
language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.applied_at is not null
     or (new.id, new.finding_id, new.side, new.op, new.user_id, new.asset_id, new.units, new."by", new.reason, new.at)
        is distinct from (old.id, old.finding_id, old.side, old.op, old.user_id, old.asset_id, old.units, old."by", old.reason, old.at) then
    raise exception 'an adjustment is history: it is never changed' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end
$$;

-- Makes the adjustment of an account in Funding: a row of the journal, and the balance
-- where the operation is about it. The balance must be what was found. problem says why
-- nothing was done; null: it was done.
create function funding_adjust(finding bigint, of_op text, of_user bigint, of_asset integer, of_units numeric, found_units numeric,
  out problem text)
language plpgsql as $$
declare
  account balances_tb;
  scale   numeric;
  change  numeric;
begin
  select ('1e-' || a.precision)::numeric into scale from assets_tb a where a.asset_id = of_asset;
  select b.* into account from balances_tb b
   where b.user_id = of_user and b.asset_id = of_asset and b.account_type = 'FUNDING'
     for no key update;
  if not found or scale is null then
    problem := 'OUT_OF_RANGE';
  elsif floor(account.available / scale) <> found_units then
    problem := 'ACCOUNT_MOVED';
  end if;
  change := of_units * scale * case of_op when 'balance_credit' then 1 when 'balance_debit' then -1 else 0 end;
  if problem is null and (account.available + change < 0 or change > 0 and account.available + change > 18446744073709551615 * scale) then
    problem := 'OUT_OF_RANGE';
  end if;
  if problem is not null then
    return;
  end if;
  insert into transfer_operations (req_id, op_type, result, user_id, asset_id, units, amount)
  values ('finding-' || finding, of_op, 'SUCCESS', of_user, of_asset, of_units, of_units * scale);
  if change <> 0 then
    update balances_tb set available = available + change, updated_at = clock_timestamp()
     where user_id = of_user and asset_id = of_asset and account_type = 'FUNDING';
  end if;
end
$$;
-- +goose StatementEnd

create trigger keep_adjustment before update or delete on conservation_adjustment for each row execute function keep_adjustment();
create trigger keep_all_adjustments before truncate on conservation_adjustment for each statement execute function refuse_change();
select copy_grants('managed_tx', 'conservation_adjustment', array['SELECT', 'INSERT', 'UPDATE']);

-- +goose Down
drop function funding_adjust;
drop table conservation_adjustment;
drop function keep_adjustment;
alter table conservation_standing drop column got, drop column expected;
alter table transfer_operations
  drop constraint operation_is_known,
  add constraint operation_is_known check (op_type in ('withdraw', 'deposit', 'refund', 'outside_deposit', 'outside_withdrawal')) not valid;
