-- Transitions of many transfers in one statement.

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
-- +goose StatementEnd
