-- The MAC of each intent: it shows that a function that accepts intents stored the row.
-- The function that signs checks it before it binds a nonce, and before it signs.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- mac_key is the id of the key, which is derived from the key. Without a default, neither
-- column rewrites a row.
alter table managed_tx
  add column mac     bytea,
  add column mac_key text,
  add constraint mac_has_a_key check ((mac is null) = (mac_key is null)) not valid,
  add constraint mac_is_of_32_bytes check (octet_length(mac) = 32) not valid,
  add constraint mac_key_is_an_id check (octet_length(mac_key) between 1 and 64) not valid;

-- Whether intents must have a MAC. The row with the highest id counts. While required is
-- true, intents up to intents_upto (by seq) may have none: a release without MACs stored them.
create table intent_mac_rule (
  id           bigint      generated always as identity primary key,
  required     boolean     not null,
  intents_upto bigint      not null default last_intent_seq(),
  by           text        not null check (by <> ''),
  reason       text        not null check (reason <> ''),
  at           timestamptz not null default clock_timestamp()
);
create trigger keep_rules before update or delete on intent_mac_rule for each row execute function refuse_change();
create trigger keep_all_rules before truncate on intent_mac_rule for each statement execute function refuse_change();
select copy_grants('managed_tx', 'intent_mac_rule', array['SELECT']);

-- A database without submitters has no intent of an older release.
insert into intent_mac_rule (required, by, reason)
select true, 'migrate', 'the database is new'
 where not exists (select from submitter);

-- The last intent that may be without a MAC; null: each may. Whoever writes transactions may
-- ask, without a right on the table.
create function unmarked_upto() returns bigint
language sql stable security definer set search_path = public, pg_temp as $$
  select case when r.required then r.intents_upto end from intent_mac_rule r order by r.id desc limit 1
$$;

-- No queued intent is stored without a MAC where one is required, and none is added with a
-- number of those that may be without. The rows that a release adds have no caller, and
-- never stay in the queue.
-- +goose StatementBegin
create function demand_mac() returns trigger
language plpgsql as $$
declare
  upto bigint := unmarked_upto();
begin
  if tg_op = 'INSERT' and upto is not null and (new.seq <= upto or new.state = 'QUEUED' and new.caller <> '')
     or tg_op = 'UPDATE' and new.seq > upto then
    raise exception 'intent % has no MAC, and one is required', new.tx_id using errcode = 'FP051', constraint = 'intents_have_a_mac';
  end if;
  return new;
end
$$;
-- +goose StatementEnd
create trigger insert_demands_mac before insert on managed_tx for each row
  when (new.mac is null) execute function demand_mac();
create trigger binding_demands_mac before update on managed_tx for each row
  when (new.mac is null and old.nonce is null and new.nonce is not null and new.state in ('IN_FLIGHT', 'SUBMITTED'))
  execute function demand_mac();
create trigger keep_mac before update of mac, mac_key on managed_tx for each row
  when ((old.mac, old.mac_key) is distinct from (new.mac, new.mac_key)) execute function refuse_change();

-- +goose Down
drop trigger keep_mac on managed_tx;
drop trigger binding_demands_mac on managed_tx;
drop trigger insert_demands_mac on managed_tx;
drop function demand_mac();
drop function unmarked_upto();
drop table intent_mac_rule;
alter table managed_tx drop column mac, drop column mac_key;
