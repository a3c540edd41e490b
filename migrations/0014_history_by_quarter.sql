-- History lies in one partition for each quarter too, under one index.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60min';

alter table tx_history rename to old_history;
alter table old_history alter column id drop identity;
alter index tx_history_pkey rename to old_history_pkey;

create sequence tx_history_ids;
create table tx_history (
  id            bigint       not null default nextval('tx_history_ids'),
  tx_id         uuid         not null,
  submitter     submitter_id not null,
  at            timestamptz  not null,
  from_state    text,
  state         text         not null,
  sub_state     text,
  nonce         bigint,
  tx_hash       text,
  attempts      integer      not null,
  reason        text,
  block_hash    text,
  fencing_token bigint,
  primary key (tx_id, id)
) partition by range (tx_id);
alter sequence tx_history_ids owned by tx_history.id;
create table tx_history_default partition of tx_history default;

create trigger keep_history before update or delete on tx_history for each row execute function refuse_change();
create trigger keep_all_history before truncate on tx_history for each statement execute function refuse_change();
create trigger keep_all before truncate on tx_history_default for each statement execute function refuse_change();

-- +goose StatementBegin
create or replace function keep_partitions() returns integer
language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '1s' as $$
declare
  parents text[] := array['tx_document', 'tx_history'];
  parent  text;
  begins  date;
  made    integer := 0;
begin
  foreach parent in array parents loop
    for step in 0..2 loop
      begins := date_trunc('quarter', clock_timestamp() at time zone 'UTC')::date + step * interval '3 months';
      if to_regclass(parent || to_char(begins, '_YYYY"q"Q')) is null then
        perform pg_advisory_xact_lock(hashtext('keep_partitions'));
        made := made + make_quarter(parent, begins)::integer;
      end if;
    end loop;
  end loop;
  return made;
end
$$;

-- Takes the documents and the history of the quarter that begins on a day (UTC)
-- out of the tables, as tables of their own, for an operator to archive. It refuses
-- to while anything of that quarter is unfinished or final since less than thirty
-- days: that may be sent again.
create function detach_quarter(begins date) returns void
language plpgsql set search_path = public, pg_temp as $$
declare
  beyond timestamptz := (begins + interval '3 months')::timestamp at time zone 'UTC';
  needed uuid;
begin
  if beyond > clock_timestamp() then
    raise exception 'the quarter from % is not over', begins;
  end if;
  select tx_id into needed
    from managed_tx
   where tx_id >= tx_id_at(begins::timestamp at time zone 'UTC') and tx_id < tx_id_at(beyond)
     and (state not in ('CONFIRMED', 'FAILED') or updated_at > clock_timestamp() - interval '30 days')
   limit 1;
  if needed is not null then
    raise exception 'transaction % is unfinished, or has been final for less than thirty days', needed;
  end if;
  execute format('alter table tx_document detach partition %I', 'tx_document' || to_char(begins, '_YYYY"q"Q'));
  execute format('alter table tx_history detach partition %I', 'tx_history' || to_char(begins, '_YYYY"q"Q'));
end
$$;
-- +goose StatementEnd
revoke all on function detach_quarter from public;

select make_quarter('tx_history', quarter::date)
  from (select distinct date_trunc('quarter', created_at at time zone 'UTC') as quarter from managed_tx) as old
 order by quarter;
select keep_partitions();

insert into tx_history (id, tx_id, submitter, at, from_state, state, sub_state, nonce, tx_hash, attempts, reason, block_hash, fencing_token)
select id, tx_id, submitter, at, from_state, state, sub_state, nonce, tx_hash, attempts, reason, block_hash, fencing_token
  from old_history;
select copy_grants('old_history', 'tx_history', array['SELECT', 'INSERT']);
-- An identity column took its number without a right to the sequence.
-- +goose StatementBegin
do $$
declare
  held record;
begin
  for held in
    select case when a.grantee = 0 then 'public' else quote_ident(a.grantee::regrole::text) end as grantee
      from pg_class c, aclexplode(c.relacl) as a
     where c.oid = 'old_history'::regclass and a.grantee <> c.relowner and a.privilege_type = 'INSERT'
  loop
    execute format('grant usage on sequence tx_history_ids to %s', held.grantee);
  end loop;
end
$$;
-- +goose StatementEnd
select setval('tx_history_ids', greatest((select max(id) from old_history), 1), exists (select from old_history));
drop table old_history;

-- +goose Down
set local statement_timeout = '60min';
alter table tx_history rename to old_history;
alter index tx_history_pkey rename to old_history_pkey;
create table tx_history (
  id            bigint       generated always as identity primary key,
  tx_id         uuid         not null,
  submitter     submitter_id not null,
  at            timestamptz  not null,
  from_state    text,
  state         text         not null,
  sub_state     text,
  nonce         bigint,
  tx_hash       text,
  attempts      integer      not null,
  reason        text,
  block_hash    text,
  fencing_token bigint
);
create index history_of_tx on tx_history (tx_id, id);
insert into tx_history (id, tx_id, submitter, at, from_state, state, sub_state, nonce, tx_hash, attempts, reason, block_hash, fencing_token)
overriding system value
select id, tx_id, submitter, at, from_state, state, sub_state, nonce, tx_hash, attempts, reason, block_hash, fencing_token
  from old_history;
select setval(pg_get_serial_sequence('tx_history', 'id'), greatest((select max(id) from old_history), 1), exists (select from old_history));
drop table old_history;
create trigger keep_history before update or delete on tx_history for each row execute function refuse_change();
create trigger keep_all_history before truncate on tx_history for each statement execute function refuse_change();
drop function detach_quarter;
-- +goose StatementBegin
create or replace function keep_partitions() returns integer
language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '1s' as $$
declare
  begins date;
  made   integer := 0;
begin
  for step in 0..2 loop
    begins := date_trunc('quarter', clock_timestamp() at time zone 'UTC')::date + step * interval '3 months';
    made := made + make_quarter('tx_document', begins)::integer;
  end loop;
  return made;
end
$$;
-- +goose StatementEnd
