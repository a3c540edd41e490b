-- What a TxFailed says of the reason is what a caller may read of last_error: the part before
-- "; for operators: ". Behind it stand a node's own words, which name nonces. The functions
-- that make events keep all else that they have.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- +goose StatementBegin
do $$
declare
  one     record;
  changed text;
begin
  for one in
    select f.name::regproc as name, pg_get_functiondef(f.name::regproc) as text, f.whole, f.part
      from (values ('make_first_events', $q$'detail', last_error)$q$,   $q$'detail', split_part(last_error, '; for operators: ', 1))$q$),
                   ('make_events',       $q$'detail', n.last_error)$q$, $q$'detail', split_part(n.last_error, '; for operators: ', 1))$q$)) as f (name, whole, part)
  loop
    changed := replace(one.text, one.whole, one.part);
    if changed = one.text then
      raise exception 'function % does not take the detail of TxFailed from last_error', one.name;
    end if;
    execute changed;
  end loop;
end
$$;
-- +goose StatementEnd

-- +goose Down
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- +goose StatementBegin
do $$
declare
  one record;
begin
  for one in
    select pg_get_functiondef(f.name::regproc) as text, f.whole, f.part
      from (values ('make_first_events', $q$'detail', last_error)$q$,   $q$'detail', split_part(last_error, '; for operators: ', 1))$q$),
                   ('make_events',       $q$'detail', n.last_error)$q$, $q$'detail', split_part(n.last_error, '; for operators: ', 1))$q$)) as f (name, whole, part)
  loop
    execute replace(one.text, one.part, one.whole);
  end loop;
end
$$;
-- +goose StatementEnd
