-- An invocation that read a transfer before the database was lost can run on after an operator has accepted the restored
-- copy. The copy may not have that transfer. Then nothing moves for it: its user posts it again.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';

-- As before, but in a copy that was accepted, a call of a transfer that it does not have does nothing: not_accepted is true.
create or replace function funding_apply_all(reqs text[], ops text[], users bigint[], assets integer[], amounts numeric[],
  out place bigint, out result text, out reason text, out same boolean, out not_accepted boolean) returns setof record language plpgsql
  set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  c       record;
  account balances_tb;
  change  numeric;
  why     text;
  results text[] := array_fill(null::text, array[cardinality(reqs)]); -- of each call, as the next two
  reasons text[] := results;
  sames   boolean[] := results;
  changes numeric[] := results; -- of each new row of the journal
  owners  bigint[]; -- of each account that changes, as the next three
  owned   integer[];
  was     numeric[];
  becomes numeric[];
  rows    integer := 0;
  n       integer := 0;
  stored  integer;
  changed integer := 0;
  losts   boolean[] := results; -- of each call
  copied  boolean;
begin
  if not is_accepted_database() then
    return query select u.place, null::text, null::text, null::boolean, true from unnest(reqs) with ordinality as u (req, place);
    return;
  end if;
  copied := exists (select from identity_change);
  perform from (select distinct u.of_user, u.of_asset from unnest(reqs, ops, users, assets) as u (req, op, of_user, of_asset)
                 where not exists (select from transfer_operations o where o.req_id = u.req and o.op_type = u.op)
                 order by u.of_user, u.of_asset) as a,
          lateral (select from balances_tb b
                    where b.user_id = a.of_user and b.asset_id = a.of_asset and b.account_type = 'FUNDING' for no key update) as locked;
  for c in
    select u.*, ('1e-' || a.precision)::numeric as scale, b.row as balance, o.result as known, o.reason as known_reason,
           (o.user_id, o.asset_id, o.units) = (u.of_user, u.of_asset, u.of_units) as known_same,
           w.amount as taken, (w.user_id, w.asset_id, w.units) = (u.of_user, u.of_asset, u.of_units) as taken_same,
           copied and u.op in ('withdraw', 'deposit', 'refund') and not exists (select from transfers_tb t where t.req_id = u.req) as lost
      from unnest(reqs, ops, users, assets, amounts) with ordinality as u (req, op, of_user, of_asset, of_units, place)
      left join assets_tb a on a.asset_id = u.of_asset
      left join lateral (select x as row from balances_tb x
                          where x.user_id = u.of_user and x.asset_id = u.of_asset and x.account_type = 'FUNDING' limit 1) as b on true
      left join lateral (select x.* from transfer_operations x where x.req_id = u.req and x.op_type = u.op limit 1) as o on true
      left join lateral (select x.* from transfer_operations x
                          where u.op = 'refund' and x.req_id = u.req and x.op_type = 'withdraw' and x.result = 'SUCCESS' limit 1) as w on true
     order by u.of_user, u.of_asset, u.place
  loop
    losts[c.place] := c.lost;
    if c.lost then continue; end if;
    sames[c.place] := case when c.known is not null then c.known_same when c.op = 'refund' then c.taken_same else true end;
    results[c.place] := c.known;
    reasons[c.place] := c.known_reason;
    if c.known is not null or sames[c.place] is not true then continue; end if;

    if (account.user_id, account.asset_id) is distinct from (c.of_user, c.of_asset) then account := c.balance; end if;
    change := case when c.op = 'refund' then c.taken else c.of_units * c.scale end;
    why := case when c.of_units <= 0 then 'INVALID_AMOUNT' when c.of_user <= 0 then 'INVALID_USER'
                when c.of_asset <= 0 or c.scale is null and c.op <> 'refund' then 'INVALID_ASSET'
                when c.op <> 'refund' then funding_refusal(c.op, account, change, c.scale) end;
    rows := rows + 1;
    changes[c.place] := coalesce(change, 'NaN');
    results[c.place] := case when why is null then 'SUCCESS' else 'REFUSED' end;
    reasons[c.place] := why;
    if why is not null then continue; end if;

    if n = 0 or (owners[n], owned[n]) is distinct from (c.of_user, c.of_asset) then
      n := n + 1;
      owners[n] := c.of_user; owned[n] := c.of_asset; was[n] := account.available;
    end if;
    account.available := account.available + case when c.op in ('deposit', 'refund') then change else -change end;
    becomes[n] := account.available;
  end loop;

  if rows = 0 then -- each has its stored answer, also while a move of the database is open
    return query select u.place, u.result, u.reason, u.same, u.lost
                   from unnest(results, reasons, sames, losts) with ordinality as u (result, reason, same, lost, place);
    return;
  end if;
  insert into transfer_operations (req_id, op_type, result, reason, user_id, asset_id, units, amount)
  select u.req, u.op, u.result, u.reason, u.of_user, u.of_asset, u.of_units, nullif(u.change, 'NaN')
    from unnest(reqs, ops, users, assets, amounts, results, reasons, changes) with ordinality
         as u (req, op, of_user, of_asset, of_units, result, reason, change, place)
   where u.change is not null
   order by u.of_user, u.of_asset, u.place
      on conflict on constraint one_operation_per_request do nothing;
  get diagnostics stored = row_count;
  if n > 0 then
    update balances_tb b set available = u.becomes, updated_at = clock_timestamp()
      from unnest(owners, owned, was, becomes) as u (of_user, of_asset, was, becomes)
     where b.user_id = u.of_user and b.asset_id = u.of_asset and b.account_type = 'FUNDING' and b.available = u.was;
    get diagnostics changed = row_count;
  end if;
  if stored <> rows or changed <> n then
    raise exception 'another call has stored a key, or changed a balance, meanwhile: call again' using errcode = '40001';
  end if;
  return query select u.place, u.result, u.reason, u.same, u.lost
                 from unnest(results, reasons, sames, losts) with ordinality as u (result, reason, same, lost, place);
end $$;

-- As before. It also refuses a payout without a transfer.
create or replace function refuse_payout_in_doubt() returns trigger language plpgsql as $$
begin
  if exists (select from transfers_tb t, identity_change c
              where t.req_id = new.request_id and (c.at >= t.created_at or c.transfers_upto >= t.transfer_id))
     and not exists (select from payout_statement s
                      where s.req_id = new.request_id and s.acted_at is not null and not s.of_confirmed
                        and s.change = (select coalesce(max(c.id), 0) from identity_change c))
     or exists (select from identity_change) and not exists (select from transfers_tb t where t.req_id = new.request_id) then
    raise exception 'payout % is in doubt: a transaction that the database lost may have paid it', new.request_id
      using errcode = 'FP012', constraint = 'payout_in_doubt';
  end if;
  return null;
end $$;
-- +goose StatementEnd
