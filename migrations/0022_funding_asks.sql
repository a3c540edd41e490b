-- Funding does nothing in a restored copy that nobody has accepted, and the first
-- deposits into an account, made at once, do not pass what 64 bits hold.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

alter function funding_apply(text, text, bigint, integer, numeric) rename to funding_do;
alter function funding_resolve(text, text, bigint, integer, numeric) rename to funding_settle;

-- +goose StatementBegin
-- What funding_do does, or nothing where this is not the database written last:
-- foreign_copy says so.
create function funding_apply(req text, op text, of_user bigint, of_asset integer, of_units numeric,
  out result text, out reason text, out same boolean, out foreign_copy boolean)
language plpgsql as $$
begin
  foreign_copy := not is_authority();
  if not foreign_copy then
    select d.result, d.reason, d.same into result, reason, same from funding_do(req, op, of_user, of_asset, of_units) as d;
  end if;
end
$$;

create function funding_resolve(req text, op text, of_user bigint, of_asset integer, of_units numeric,
  out result text, out reason text, out same boolean, out foreign_copy boolean)
language plpgsql as $$
begin
  foreign_copy := not is_authority();
  if not foreign_copy then
    select d.result, d.reason, d.same into result, reason, same from funding_settle(req, op, of_user, of_asset, of_units) as d;
  end if;
end
$$;

-- Changes the balance by what the journal has just taken down. A deposit that meets
-- the account which another one makes at this moment was judged without it.
create or replace function funding_move(op text, of_user bigint, of_asset integer, digits smallint, change numeric) returns void
language plpgsql as $$
declare
  after_it numeric;
begin
  if op = 'outside_deposit' then
    insert into balances_tb (user_id, asset_id, precision, available)
    values (of_user, of_asset, digits, change)
        on conflict on constraint one_balance_per_account
        do update set available = balances_tb.available + excluded.available, updated_at = clock_timestamp()
    returning available into after_it;
    if after_it * 10::numeric ^ digits > 18446744073709551615 then
      raise exception 'user % would hold too much of asset %: ask again', of_user, of_asset using errcode = '40001';
    end if;
    return;
  end if;
  update balances_tb
     set available = available + case when op in ('deposit', 'refund') then change else -change end, updated_at = clock_timestamp()
   where user_id = of_user and asset_id = of_asset and account_type = 'FUNDING';
  if not found then
    raise exception 'user % has no account in asset %', of_user, of_asset;
  end if;
end
$$;
-- +goose StatementEnd

-- +goose Down
drop function funding_resolve;
drop function funding_apply;
alter function funding_settle(text, text, bigint, integer, numeric) rename to funding_resolve;
alter function funding_do(text, text, bigint, integer, numeric) rename to funding_apply;
