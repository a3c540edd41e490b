-- Fewer statements for each transfer: a transition is recorded for all rows of its statement at once, SOURCE_PENDING
-- becomes TARGET_PENDING in one update, and the balances of many calls are changed in one.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
-- Writes the history for all rows of a statement. A transfer that goes from SOURCE_PENDING to TARGET_PENDING has gone
-- through SOURCE_DONE, and has a row for each of the two transitions.
drop trigger record_new_transfer on transfers_tb;
drop trigger record_transfer on transfers_tb;
drop function record_transfer();
create function record_transfers() returns trigger language plpgsql set enable_nestloop = off as $$
begin
  if tg_op = 'INSERT' then
    insert into transfer_history (transfer_id, state, reason, retry_count)
    select transfer_id, state, error_message, retry_count
      from new_transfers
     order by transfer_id;
    return null;
  end if;
  -- A role that may change no state, as that of the sweep, has no right to write the history.
  if not exists (select from new_transfers n join old_transfers o using (transfer_id) where o.state <> n.state) then
    return null;
  end if;
  insert into transfer_history (transfer_id, from_state, state, reason, retry_count)
  select c.transfer_id, case when c.step = 2 then 20 else c.was end, case when c.step < c.steps then 20 else c.becomes end,
         c.error_message, c.retry_count
    from (select s.*, generate_series(1, s.steps) as step
            from (select n.transfer_id, o.state as was, n.state as becomes, n.error_message, n.retry_count,
                         case when o.state = 10 and n.state = 30 then 2 else 1 end as steps
                    from new_transfers n
                    join old_transfers o using (transfer_id)
                   where o.state <> n.state) as s) as c
   order by c.transfer_id, c.step;
  return null;
end $$;
create trigger record_new_transfer after insert on transfers_tb
  referencing new table as new_transfers for each statement execute function record_transfers();
create trigger record_transfer after update on transfers_tb
  referencing old table as old_transfers new table as new_transfers for each statement execute function record_transfers();

-- As before, with two differences. A transfer can go from SOURCE_PENDING to TARGET_PENDING in one update: both
-- transitions follow from one answer of the source, and no call lies between them. And each statement prepares less:
-- the condition has the pairs of is_transfer_transition as numbers, 100 times the old state plus the new one, and the
-- columns that never change have a separate trigger, which Postgres skips where a statement sets none of them. No
-- trigger before an update sets a column.
drop trigger guard_transfer on transfers_tb;
create trigger guard_transfer after update on transfers_tb for each row when (not old.open
    or (old.state <> new.state and not (old.state * 100 + new.state in (10, -10, 1020, 1030, 990, 2030, 3040, 2980, -2030)
      and (new.state <> -10 or (old.state = 0) = (new.error_message in ('EXPIRED', 'CANCELLED')))
      and (new.state <> -30 or new.error_message = old.error_message)))
    or (old.state = new.state and old.error_message is distinct from new.error_message)
    or new.retry_count < old.retry_count)
  execute function guard_transfer();
create trigger guard_transfer_binding after update of transfer_id, req_id, cid, user_id, asset_id, amount, precision, transfer_type, created_at,
    payout_submitter, payout_chain_id, payout_token, payout_address, payout_base_units, payout_payload
  on transfers_tb for each row when (
    (old.transfer_id, old.req_id, old.cid, old.user_id, old.asset_id, old.amount, old.precision, old.transfer_type, old.created_at)
       is distinct from (new.transfer_id, new.req_id, new.cid, new.user_id, new.asset_id, new.amount, new.precision, new.transfer_type, new.created_at)
    or (old.payout_submitter, old.payout_chain_id, old.payout_token, old.payout_address, old.payout_base_units, old.payout_payload)
       is distinct from (new.payout_submitter, new.payout_chain_id, new.payout_token, new.payout_address, new.payout_base_units, new.payout_payload))
  execute function guard_transfer();

-- As before, but one statement changes all balances, so that Postgres prepares its triggers and checks once. It finds
-- each balance by its key.
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
  if n > 0 then
    update balances_tb b set available = u.becomes, updated_at = clock_timestamp()
      from unnest(owners, owned, was, becomes) as u (of_user, of_asset, was, becomes)
     where b.user_id = u.of_user and b.asset_id = u.of_asset and b.account_type = 'FUNDING' and b.available = u.was;
    get diagnostics changed = row_count;
  end if;
  if stored <> rows or changed <> n then
    raise exception 'another call has stored a key, or changed a balance, meanwhile: call again' using errcode = '40001';
  end if;
  return query select u.place, u.result, u.reason, u.same, false
                 from unnest(results, reasons, sames) with ordinality as u (result, reason, same, place);
end $$;
-- +goose StatementEnd
