-- Funding, the ledger in this database: balances, and the journal of every operation with its answer. A row
-- of the journal is the answer, the key against a second effect, and the record of the first.

-- +goose Up
-- +goose StatementBegin
-- The balance of an account.
create table balances_tb (
  user_id      bigint         not null,
  asset_id     integer        not null,
  account_type text           not null default 'FUNDING',
  precision    smallint       not null,
  available    numeric(30, 8) not null,
  status       text           not null default 'ACTIVE',
  created_at   timestamptz    not null default clock_timestamp(),
  updated_at   timestamptz    not null default clock_timestamp(),
  constraint one_balance_per_account primary key (user_id, asset_id, account_type),
  constraint balance_of_an_asset foreign key (asset_id, precision) references assets_tb (asset_id, precision),
  constraint balance_of_a_user check (user_id > 0),
  constraint balance_is_funding check (account_type = 'FUNDING'),
  constraint balance_is_not_negative check (available >= 0 and available <> 'NaN'),
  constraint balance_is_whole_units check (scale(trim_scale(available)) <= precision),
  constraint status_is_known check (status in ('ACTIVE', 'FROZEN', 'DISABLED'))
) with (fillfactor = 70);

-- An account is never deleted, and its key never changes.
create function guard_balance() returns trigger language plpgsql as $$
begin
  raise exception 'the account of user % in asset % stays', old.user_id, old.asset_id
    using errcode = 'FP003', constraint = 'accounts_stay';
end $$;
create trigger guard_balance before delete on balances_tb for each row execute function guard_balance();
create trigger guard_balance_key after update on balances_tb for each row
  when ((old.user_id, old.asset_id, old.account_type) is distinct from (new.user_id, new.asset_id, new.account_type))
  execute function guard_balance();
create trigger guard_balances_truncate before truncate on balances_tb for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on balances_tb for each statement execute function refuse_while_moving();

-- The journal. units is the amount that was requested, in 10^-precision of the asset. amount is the same in
-- the asset, and is missing where no asset gave a precision. The id is given under the lock on the balance, so
-- the operations of an account are numbered in the order in which they applied. Ids of different accounts
-- commit in any order: a reader continues from the database snapshot that it read, by tx.
create table transfer_operations (
  id       bigint         not null generated always as identity,
  tx       xid8           not null default pg_current_xact_id(),
  req_id   text           not null,
  op_type  text           not null,
  result   text           not null,
  reason   text,
  user_id  bigint         not null,
  asset_id integer        not null,
  units    numeric(20, 0) not null,
  amount   numeric(30, 8),
  at       timestamptz    not null default clock_timestamp(),
  constraint one_operation_per_request primary key (req_id, op_type),
  constraint operation_has_a_request check (length(req_id) between 1 and 128),
  constraint operation_is_known check (op_type in ('withdraw', 'deposit', 'refund', 'outside_deposit', 'outside_withdrawal',
    'journal_credit', 'journal_debit', 'balance_credit', 'balance_debit')),
  constraint result_is_known check (result in ('SUCCESS', 'REFUSED')),
  constraint refused_for_a_reason check ((result = 'REFUSED') = (reason is not null) and reason <> ''),
  constraint refund_is_never_refused check (op_type <> 'refund' or result = 'SUCCESS'),
  constraint units_are_64_bits check (units between 0 and 18446744073709551615),
  constraint applied_moves_something check (result = 'REFUSED'
    or coalesce(user_id > 0 and asset_id > 0 and units > 0 and amount > 0 and amount <> 'NaN', false))
);
create index operations_by_transaction on transfer_operations (tx, id);
create trigger guard_operations before update or delete on transfer_operations for each row execute function refuse_change();
create trigger guard_operations_truncate before truncate on transfer_operations for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on transfer_operations for each statement execute function refuse_while_moving();

-- What is stored under (req, op); result null: nothing. same reports whether the other fields are equal.
create function funding_stored(req text, op text, of_user bigint, of_asset integer, of_units numeric,
  out result text, out reason text, out same boolean)
language sql stable as $$
  select o.result, o.reason, (o.user_id, o.asset_id, o.units) = (of_user, of_asset, of_units)
    from transfer_operations o
   where o.req_id = req and o.op_type = op
$$;

-- Why an operation must not apply to an account, as it is under its lock; null: it may apply. A null account
-- does not exist. An outside deposit makes its account.
create function funding_refusal(op text, account balances_tb, change numeric, scale numeric) returns text language sql immutable as $$
  select case
    when op in ('withdraw', 'outside_withdrawal') then case
      when account.user_id is null       then 'SOURCE_ACCOUNT_NOT_FOUND'
      when account.status = 'FROZEN'     then 'ACCOUNT_FROZEN'
      when account.status = 'DISABLED'   then 'ACCOUNT_DISABLED'
      when account.available < change    then 'INSUFFICIENT_BALANCE'
    end
    when op = 'deposit' and account.user_id is null then 'TARGET_ACCOUNT_NOT_FOUND'
    when account.status = 'DISABLED'                then 'ACCOUNT_DISABLED'
    when coalesce(account.available, 0) + change > 18446744073709551615 * scale then 'OVERFLOW'
  end
$$;

-- Changes the balance by a row of the journal. A first deposit that meets another one was evaluated without
-- it, so the sum is checked again.
create function funding_move(op text, of_user bigint, of_asset integer, digits smallint, change numeric) returns void language plpgsql as $$
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
end $$;

-- Does an operation once, or returns what is stored for it. A null result is unknown; then same is false if
-- the key was used with other fields. The balance is locked and evaluated, then the row of the journal is
-- written, then the balance is changed. So the unique key is there before the effect, and one commit has
-- both. A refund takes its amount from the withdrawal of the same request, and is never refused.
create function funding_do(req text, op text, of_user bigint, of_asset integer, of_units numeric,
  out result text, out reason text, out same boolean)
language plpgsql as $$
declare
  account balances_tb;
  digits  smallint;
  scale   numeric;
  change  numeric;
begin
  select s.result, s.reason, s.same into result, reason, same from funding_stored(req, op, of_user, of_asset, of_units) as s;
  if result is not null then return; end if;
  same := true;

  select a.precision, ('1e-' || a.precision)::numeric into digits, scale from assets_tb a where a.asset_id = of_asset;
  change := of_units * scale;
  if op = 'refund' then
    select o.amount, (o.user_id, o.asset_id, o.units) = (of_user, of_asset, of_units) into change, same
      from transfer_operations o
     where o.req_id = req and o.op_type = 'withdraw' and o.result = 'SUCCESS';
    if same is not true then return; end if;
  end if;

  reason := case when of_units <= 0 then 'INVALID_AMOUNT' when of_user <= 0 then 'INVALID_USER'
                 when of_asset <= 0 or scale is null and op <> 'refund' then 'INVALID_ASSET' end;
  if reason is null then
    select b.* into account from balances_tb b
     where b.user_id = of_user and b.asset_id = of_asset and b.account_type = 'FUNDING'
       for no key update;
    if op <> 'refund' then
      reason := funding_refusal(op, account, change, scale);
    end if;
  end if;

  insert into transfer_operations (req_id, op_type, result, reason, user_id, asset_id, units, amount)
  values (req, op, case when reason is null then 'SUCCESS' else 'REFUSED' end, reason, of_user, of_asset, of_units, change)
      on conflict on constraint one_operation_per_request do nothing;
  if not found then -- another has done it while we waited for it
    select s.result, s.reason, s.same into result, reason, same from funding_stored(req, op, of_user, of_asset, of_units) as s;
    return;
  end if;
  result := case when reason is null then 'SUCCESS' else 'REFUSED' end;
  if reason is null then
    perform funding_move(op, of_user, of_asset, digits, change);
  end if;
end $$;

-- Calls funding_do, except in a restored copy that was not accepted: there it does nothing, and not_accepted
-- is true.
create function funding_apply(req text, op text, of_user bigint, of_asset integer, of_units numeric,
  out result text, out reason text, out same boolean, out not_accepted boolean)
language plpgsql as $$
begin
  not_accepted := not is_accepted_database();
  if not not_accepted then
    select d.result, d.reason, d.same into result, reason, same from funding_do(req, op, of_user, of_asset, of_units) as d;
  end if;
end $$;

-- Returns what is stored, or stores that the operation is refused for ever. A refund that is not stored is
-- not refused: result is null.
create function funding_settle(req text, op text, of_user bigint, of_asset integer, of_units numeric,
  out result text, out reason text, out same boolean)
language plpgsql as $$
begin
  if op <> 'refund' then
    insert into transfer_operations (req_id, op_type, result, reason, user_id, asset_id, units)
    values (req, op, 'REFUSED', 'RESOLVED', of_user, of_asset, of_units)
        on conflict on constraint one_operation_per_request do nothing;
  end if;
  select s.result, s.reason, s.same into result, reason, same from funding_stored(req, op, of_user, of_asset, of_units) as s;
end $$;

-- Calls funding_settle, with the exception of funding_apply.
create function funding_resolve(req text, op text, of_user bigint, of_asset integer, of_units numeric,
  out result text, out reason text, out same boolean, out not_accepted boolean)
language plpgsql as $$
begin
  not_accepted := not is_accepted_database();
  if not not_accepted then
    select d.result, d.reason, d.same into result, reason, same from funding_settle(req, op, of_user, of_asset, of_units) as d;
  end if;
end $$;

-- Adjusts an account by a conservation finding: a row of the journal, and the balance where the operation is
-- about it. The balance must be what was found. problem says why nothing was done; null: it was done.
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
  if problem is not null then return; end if;
  insert into transfer_operations (req_id, op_type, result, user_id, asset_id, units, amount)
  values ('finding-' || finding, of_op, 'SUCCESS', of_user, of_asset, of_units, of_units * scale);
  if change <> 0 then
    update balances_tb set available = available + change, updated_at = clock_timestamp()
     where user_id = of_user and asset_id = of_asset and account_type = 'FUNDING';
  end if;
end $$;
-- +goose StatementEnd
