-- Transitions of many transfers, and calls to Funding of many transfers, in one statement each.

-- +goose Up
-- +goose StatementBegin
-- move_transfer for many: moves each transfer along its path, an array literal of states, if it is in the
-- path's first state, and returns the req_id of each that it moved. A req_id is given once. The first
-- statement decides. A later one only moves rows that this transaction has written: a transfer that another
-- transaction brought into the middle of its path stays there.
create function move_transfers(reqs text[], paths text[], whys text[]) returns setof text language plpgsql as $$
begin
  if not is_accepted_database() then return; end if;
  return query
    update transfers_tb t
       set state = m.path[2], error_message = coalesce(m.why, t.error_message),
           failures = 0, last_unknown = null, next_attempt_at = null,
           state_at = clock_timestamp(), updated_at = clock_timestamp()
      from (select u.req, u.path::smallint[] as path, nullif(u.why, '') as why from unnest(reqs, paths, whys) as u (req, path, why)) as m
     where t.req_id = m.req and t.state = m.path[1]
    returning t.req_id::text;
  for i in 3 .. (select max(cardinality(p::smallint[])) from unnest(paths) as p) loop
    update transfers_tb t
       set state = m.path[i], error_message = coalesce(m.why, t.error_message), state_at = clock_timestamp(), updated_at = clock_timestamp()
      from (select u.req, u.path::smallint[] as path, nullif(u.why, '') as why from unnest(reqs, paths, whys) as u (req, path, why)) as m
     where t.req_id = m.req and m.path[i] is not null and t.state = m.path[i - 1] and t.xmin = pg_current_xact_id()::xid;
  end loop;
end $$;

-- funding_apply for many calls of different requests, none of them an outside deposit. It has the effect of
-- the calls made one after another, in the order of their accounts, and of their places within an account.
-- The variable account is the balance that the calls before have left. A refused call leaves it as it is. The
-- same funding_refusal evaluates each call on it. Each new call gives one row of the journal, and each account
-- one new balance. All accounts of new calls are locked before they are read, in one order. If a key was stored
-- or a balance changed without that lock, the transaction ends with 40001: call again. The limits in the joins
-- keep the planner from reading whole tables.
create function funding_apply_all(reqs text[], ops text[], users bigint[], assets integer[], amounts numeric[],
  out place bigint, out result text, out reason text, out same boolean, out not_accepted boolean) returns setof record language plpgsql as $$
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
begin
  if not is_accepted_database() then
    return query select u.place, null::text, null::text, null::boolean, true from unnest(reqs) with ordinality as u (req, place);
    return;
  end if;
  perform from (select distinct u.of_user, u.of_asset from unnest(reqs, ops, users, assets) as u (req, op, of_user, of_asset)
                 where not exists (select from transfer_operations o where o.req_id = u.req and o.op_type = u.op)
                 order by u.of_user, u.of_asset) as a,
          lateral (select from balances_tb b
                    where b.user_id = a.of_user and b.asset_id = a.of_asset and b.account_type = 'FUNDING' for no key update) as locked;
  for c in
    select u.*, ('1e-' || a.precision)::numeric as scale, b.row as balance, o.result as known, o.reason as known_reason,
           (o.user_id, o.asset_id, o.units) = (u.of_user, u.of_asset, u.of_units) as known_same,
           w.amount as taken, (w.user_id, w.asset_id, w.units) = (u.of_user, u.of_asset, u.of_units) as taken_same
      from unnest(reqs, ops, users, assets, amounts) with ordinality as u (req, op, of_user, of_asset, of_units, place)
      left join assets_tb a on a.asset_id = u.of_asset
      left join lateral (select x as row from balances_tb x
                          where x.user_id = u.of_user and x.asset_id = u.of_asset and x.account_type = 'FUNDING' limit 1) as b on true
      left join lateral (select x.* from transfer_operations x where x.req_id = u.req and x.op_type = u.op limit 1) as o on true
      left join lateral (select x.* from transfer_operations x
                          where u.op = 'refund' and x.req_id = u.req and x.op_type = 'withdraw' and x.result = 'SUCCESS' limit 1) as w on true
     order by u.of_user, u.of_asset, u.place
  loop
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
    return query select u.place, u.result, u.reason, u.same, false
                   from unnest(results, reasons, sames) with ordinality as u (result, reason, same, place);
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
  for i in 1 .. n loop
    update balances_tb b set available = becomes[i], updated_at = clock_timestamp()
     where b.user_id = owners[i] and b.asset_id = owned[i] and b.account_type = 'FUNDING' and b.available = was[i];
    if not found then stored := -1; end if;
  end loop;
  if stored <> rows then
    raise exception 'another call has stored a key, or changed a balance, meanwhile: call again' using errcode = '40001';
  end if;
  return query select u.place, u.result, u.reason, u.same, false
                 from unnest(results, reasons, sames) with ordinality as u (result, reason, same, place);
end $$;
-- +goose StatementEnd
