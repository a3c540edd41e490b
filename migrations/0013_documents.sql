-- What is bulky goes out of managed_tx and tx_version into documents: payloads,
-- signed bytes, receipts. They are never changed, and lie in one partition for
-- each quarter: a txId is a UUIDv7, whose first 48 bits are its time in
-- milliseconds, so that the key itself says which. The keys that carry a
-- promise stay where they are, in tables without partitions.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60min';

-- Nobody adds what the copy below would miss.
lock table managed_tx, tx_version in access exclusive mode;

create table tx_document (
  tx_id uuid not null,
  name  text not null,
  body  json,
  bytes bytea,
  primary key (tx_id, name),
  constraint document_is_known check (name = 'payload' or name ~ '^(version:[1-9][0-9]*|receipt:0x[0-9a-f]{64})$'),
  constraint document_has_a_body check (body is not null),
  constraint versions_have_bytes check ((name like 'version:%') = coalesce(octet_length(bytes) > 0, false))
) partition by range (tx_id);
create table tx_document_default partition of tx_document default;

-- Who may read or write transactions may do so with their documents.
-- +goose StatementBegin
create function copy_grants(source text, target text, privileges text[]) returns void
language plpgsql as $$
declare
  held record;
begin
  for held in
    select case when a.grantee = 0 then 'public' else quote_ident(a.grantee::regrole::text) end as grantee, a.privilege_type
      from pg_class c, aclexplode(c.relacl) as a
     where c.oid = source::regclass and a.grantee <> c.relowner and a.privilege_type = any (privileges)
  loop
    execute format('grant %s on %I to %s', held.privilege_type, target, held.grantee);
  end loop;
end
$$;
-- +goose StatementEnd
revoke all on function copy_grants from public;
select copy_grants('managed_tx', 'tx_document', array['SELECT', 'INSERT']);

create trigger keep_documents before update or delete on tx_document for each row execute function refuse_change();
create trigger keep_all_documents before truncate on tx_document for each statement execute function refuse_change();
create trigger keep_all before truncate on tx_document_default for each statement execute function refuse_change();

-- +goose StatementBegin
-- The lowest txId of a moment.
create function tx_id_at(moment timestamptz) returns uuid
language sql immutable as $$
  select (lpad(to_hex((extract(epoch from moment) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

-- Makes the partition of the quarter that begins on a day (UTC), and says whether
-- it did. Where the default partition has rows of that quarter they stay there:
-- it takes whatever no other does. It is attached, since making it in place would
-- keep every reader waiting.
create function make_quarter(parent text, begins date) returns boolean
language plpgsql as $$
declare
  part    text := parent || to_char(begins, '_YYYY"q"Q');
  lowest  uuid := tx_id_at(begins::timestamp at time zone 'UTC');
  beyond  uuid := tx_id_at((begins + interval '3 months')::timestamp at time zone 'UTC');
  settled boolean;
begin
  if to_regclass(part) is not null then
    return false;
  end if;
  execute format('select exists (select from %I where tx_id >= $1 and tx_id < $2)', parent || '_default') into settled using lowest, beyond;
  if settled then
    return false;
  end if;
  execute format('create table %I (like %I including defaults including constraints including storage)', part, parent);
  execute format('create trigger keep_all before truncate on %I for each statement execute function refuse_change()', part);
  execute format('alter table %I attach partition %I for values from (%L) to (%L)', parent, part, lowest, beyond);
  return true;
end
$$;

-- Makes the partitions of this quarter and the next two, and says how many it made.
-- Whoever may call it needs no right to make tables. It costs a look at the catalog
-- where there is nothing to do, and gives up after a second where others are in
-- its way: there is time until the quarter comes.
create function keep_partitions() returns integer
language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '1s' as $$
declare
  parents text[] := array['tx_document'];
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
-- +goose StatementEnd

revoke all on function make_quarter from public;

select make_quarter('tx_document', quarter::date)
  from (select distinct date_trunc('quarter', created_at at time zone 'UTC') as quarter from managed_tx) as old
 order by quarter;
select keep_partitions();

insert into tx_document (tx_id, name, body)
select tx_id, 'payload', payload::json from managed_tx;
insert into tx_document (tx_id, name, body, bytes)
select tx_id, 'version:' || version, gas_params::json, decode(substr(raw_tx_hex, 3), 'hex') from tx_version;
insert into tx_document (tx_id, name, body)
select tx_id, 'receipt:' || (receipt ->> 'blockHash'), (receipt -> 'document')::json
  from managed_tx
 where jsonb_typeof(receipt -> 'document') = 'object';

-- +goose StatementBegin
do $$
begin
  if exists (select from managed_tx m where not exists (select from tx_document d where d.tx_id = m.tx_id and d.name = 'payload'))
     or exists (select from tx_version v where not exists (select from tx_document d where d.tx_id = v.tx_id and d.name = 'version:' || v.version)) then
    raise exception 'a payload or a version was not copied: nothing is dropped';
  end if;
end
$$;
-- +goose StatementEnd

-- Of the receipt its facts stay; of the gas what is unsettled.
alter table managed_tx
  drop column payload,
  drop column raw_tx_hex,
  alter column receipt type jsonb using receipt - 'document',
  alter column last_gas_params type jsonb using case when state not in ('CONFIRMED', 'FAILED') then last_gas_params end,
  add constraint receipt_is_facts check (not receipt ? 'document');
alter table tx_version
  drop column raw_tx_hex,
  drop column gas_params;

-- +goose StatementBegin
create or replace function guard_tx() returns trigger
language plpgsql as $$
begin
  if old.state in ('CONFIRMED', 'FAILED') then
    raise exception 'transaction % is final', old.tx_id using errcode = 'FP002', constraint = 'final_never_changes';
  end if;
  if (new.tx_id, new.submitter, new.request_id, new.fingerprint, new.seq, new.caller, new.handler)
     is distinct from (old.tx_id, old.submitter, old.request_id, old.fingerprint, old.seq, old.caller, old.handler)
     or (old.nonce is not null and new.nonce is distinct from old.nonce) then
    raise exception 'transaction % is bound for ever', old.tx_id using errcode = 'FP003', constraint = 'binding_never_changes';
  end if;
  return new;
end
$$;
-- +goose StatementEnd

-- +goose Down
set local statement_timeout = '60min';
alter table managed_tx disable trigger user;
alter table tx_version disable trigger user;
alter table managed_tx
  drop constraint receipt_is_facts,
  add column payload jsonb,
  add column raw_tx_hex text check (raw_tx_hex ~ '^0x([0-9a-f]{2})+$');
alter table tx_version
  add column raw_tx_hex text check (raw_tx_hex ~ '^0x([0-9a-f]{2})+$'),
  add column gas_params jsonb;
update tx_version v
   set raw_tx_hex = '0x' || encode(d.bytes, 'hex'), gas_params = d.body::jsonb
  from tx_document d
 where d.tx_id = v.tx_id and d.name = 'version:' || v.version;
-- What was archived is gone: an empty payload, and bytes that are none.
update managed_tx m
   set payload = coalesce((select d.body::jsonb from tx_document d where d.tx_id = m.tx_id and d.name = 'payload'), '{}'),
       raw_tx_hex = coalesce((select v.raw_tx_hex from tx_version v where v.tx_hash = m.tx_hash), case when m.tx_hash is not null then '0x00' end),
       last_gas_params = coalesce(last_gas_params, (select v.gas_params from tx_version v where v.tx_hash = m.tx_hash)),
       receipt = receipt || jsonb_build_object('document', (select d.body::jsonb from tx_document d
         where d.tx_id = m.tx_id and d.name = 'receipt:' || (m.receipt ->> 'blockHash')));
update tx_version set raw_tx_hex = coalesce(raw_tx_hex, '0x00'), gas_params = coalesce(gas_params, '{}');
alter table managed_tx
  alter column payload set not null,
  add constraint signed_as_one check ((raw_tx_hex is null) = (tx_hash is null));
alter table tx_version
  alter column raw_tx_hex set not null,
  alter column gas_params set not null;
alter table managed_tx enable trigger user;
alter table tx_version enable trigger user;
-- +goose StatementBegin
create or replace function guard_tx() returns trigger
language plpgsql as $$
begin
  if old.state in ('CONFIRMED', 'FAILED') then
    raise exception 'transaction % is final', old.tx_id using errcode = 'FP002', constraint = 'final_never_changes';
  end if;
  if (new.tx_id, new.submitter, new.request_id, new.fingerprint, new.seq, new.caller, new.payload, new.handler)
     is distinct from (old.tx_id, old.submitter, old.request_id, old.fingerprint, old.seq, old.caller, old.payload, old.handler)
     or (old.nonce is not null and new.nonce is distinct from old.nonce) then
    raise exception 'transaction % is bound for ever', old.tx_id using errcode = 'FP003', constraint = 'binding_never_changes';
  end if;
  return new;
end
$$;
-- +goose StatementEnd
drop function keep_partitions;
drop function copy_grants;
drop function make_quarter;
drop function tx_id_at;
drop table tx_document;
