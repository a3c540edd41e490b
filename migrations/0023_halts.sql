-- Every violation halts by a row of its own, so that who resumes one lets none pass
-- that he has not seen. What no longer stands is told from what does, a journal that
-- is not the one that was read from one that is, and the scales of the trading core's
-- assets are compared with ours.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

drop index one_open_halt;
create index open_halts on transfer_halt (halt_id) where resumed_at is null;

-- +goose StatementBegin
create or replace function halt_restored() returns trigger
language plpgsql as $$
begin
  insert into transfer_halt (scope, evidence)
  values ('all', jsonb_build_object('what', 'a restored or re-created database was accepted', 'by', new."by", 'reason', new.reason));
  return null;
end
$$;
-- +goose StatementEnd

-- What is over is gone on from by no run. Cursors from before this migration are: they
-- do not say what their last line was, and the assets before them were not looked at.
-- So are those that a process of before still begins.
alter table conservation_checkpoint add column over boolean not null default true;

-- The newest generation there was when it was found last: a full run that has not
-- found it, and is of that generation or a later one, has seen it right again.
alter table conservation_standing add column seen bigint not null default 0;

-- What a side's journal says of an asset's precision; more than one row is a
-- contradiction.
create table conservation_scale (
  generation bigint   not null,
  side       text     not null,
  asset_id   integer  not null,
  precision  smallint not null,
  constraint one_scale_each primary key (generation, side, asset_id, precision),
  constraint scale_of_a_generation foreign key (generation) references conservation_checkpoint,
  constraint scale_of_a_side check (side in ('FUNDING', 'SPOT', 'CHAIN'))
);

select copy_grants('managed_tx', 'conservation_scale', array['SELECT', 'INSERT', 'UPDATE']);
-- +goose StatementBegin
do $$
declare
  held record;
begin
  for held in
    select case when a.grantee = 0 then 'public' else quote_ident(a.grantee::regrole::text) end as grantee
      from pg_class c, aclexplode(c.relacl) as a
     where c.oid = 'managed_tx'::regclass and a.grantee <> c.relowner and a.privilege_type = 'INSERT'
  loop
    execute format('grant delete on conservation_scale to %s', held.grantee);
  end loop;
end
$$;
-- +goose StatementEnd

-- +goose Down
drop table conservation_scale;
alter table conservation_standing drop column seen;
alter table conservation_checkpoint drop column over;
-- +goose StatementBegin
create or replace function halt_restored() returns trigger
language plpgsql as $$
begin
  insert into transfer_halt (scope, evidence)
  values ('all', jsonb_build_object('what', 'a restored or re-created database was accepted', 'by', new."by", 'reason', new.reason))
      on conflict do nothing;
  return null;
end
$$;
-- +goose StatementEnd
drop index open_halts;
create unique index one_open_halt on transfer_halt (scope, coalesce(user_id, 0), coalesce(asset_id, 0)) where resumed_at is null;
