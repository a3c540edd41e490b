-- The check that no money comes from nothing and none is lost: how far it has read
-- the ledgers' journals, what that comes to, and what it has found.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- Who reads which transfers became final goes on from the snapshot that it has read:
-- numbers do not commit in their order.
alter table transfer_history add column tx xid8 not null default pg_current_xact_id();
create index transfers_final on transfer_history (tx, id) where state in (40, -10, -30);

-- One generation is what the runs come to that go on from each other. A full run
-- begins another, which takes the place of the current one when it has come to its
-- end. The version goes up with each step that is stored.
create table conservation_checkpoint (
  generation bigint      not null generated always as identity,
  version    bigint      not null default 0,
  epoch      text        not null, -- of the database: in a restored one, cursors mean nothing
  cursors    jsonb       not null default '{}',
  is_current boolean     not null default false,
  begun_at   timestamptz not null default clock_timestamp(),
  stored_at  timestamptz not null default clock_timestamp(),
  constraint one_checkpoint_per_generation primary key (generation),
  constraint version_counts_up check (version >= 0)
);
create unique index one_current_checkpoint on conservation_checkpoint (is_current) where is_current;

-- The sum of what a side's journal says was applied to an account, up to the cursors.
create table conservation_sum (
  generation bigint         not null,
  side       text           not null,
  user_id    bigint         not null,
  asset_id   integer        not null,
  units      numeric(40, 0) not null,
  constraint one_sum_per_account primary key (generation, side, user_id, asset_id),
  constraint sum_of_a_generation foreign key (generation) references conservation_checkpoint,
  constraint sum_of_a_side check (side in ('FUNDING', 'SPOT', 'CHAIN'))
) with (fillfactor = 70);

-- What the journals, and the transfer's row once it is final, have said of one
-- req_id. Open is what something is still to be looked for.
create table conservation_request (
  generation bigint         not null,
  req_id     text           not null,
  user_id    bigint         not null,
  asset_id   integer        not null,
  units      numeric(20, 0) not null,
  debit      text,
  deposit    text,
  refund     text,
  type       smallint       not null, -- of the transfer; 0: it has no row
  final      smallint       not null, -- where it ended; 0: it has not
  open       boolean        not null,
  constraint one_evidence_per_request primary key (generation, req_id),
  constraint evidence_of_a_generation foreign key (generation) references conservation_checkpoint,
  constraint evidence_of_sides check (debit in ('FUNDING', 'SPOT', 'CHAIN') and deposit in ('FUNDING', 'SPOT', 'CHAIN')
    and refund in ('FUNDING', 'SPOT', 'CHAIN')),
  constraint evidence_is_final_or_not check (final in (0, 40, -10, -30))
) with (fillfactor = 70);
create index requests_open on conservation_request (generation, req_id) where open;

create table conservation_finding (
  finding_id bigint      not null generated always as identity,
  at         timestamptz not null default clock_timestamp(),
  generation bigint      not null,
  kind       text        not null,
  side       text,
  req_id     text,
  user_id    bigint      not null,
  asset_id   integer     not null,
  expected   text        not null,
  got        text        not null,
  evidence   jsonb       not null,
  constraint one_number_per_finding primary key (finding_id),
  constraint finding_is_named check (kind ~ '^[A-Z][A-Z_]*$')
);

-- What was found and is not known to be right again: the same is not found anew.
create table conservation_standing (
  key        text   not null,
  finding_id bigint not null,
  constraint stands_once primary key (key),
  constraint what_stands_was_found foreign key (finding_id) references conservation_finding
);

create trigger keep_findings before update or delete on conservation_finding for each row execute function refuse_change();
create trigger keep_all_findings before truncate on conservation_finding for each statement execute function refuse_change();

-- +goose StatementBegin
-- Moves a checkpoint by compare-and-set; whoever comes with an old version fails, and
-- with it all that it would have stored.
create function conservation_advance(of_generation bigint, from_version bigint, to_cursors jsonb) returns void
language plpgsql as $$
begin
  update conservation_checkpoint
     set version = version + 1, cursors = to_cursors, stored_at = clock_timestamp()
   where generation = of_generation and version = from_version;
  if not found then
    raise exception 'checkpoint % is not at version % any more', of_generation, from_version using errcode = 'FP008';
  end if;
end
$$;
-- +goose StatementEnd

select copy_grants('managed_tx', of_table, privileges)
  from (values ('conservation_checkpoint', array['SELECT', 'INSERT', 'UPDATE']), ('conservation_sum', array['SELECT', 'INSERT', 'UPDATE']),
               ('conservation_request', array['SELECT', 'INSERT', 'UPDATE']), ('conservation_finding', array['SELECT', 'INSERT']),
               ('conservation_standing', array['SELECT', 'INSERT', 'UPDATE'])) as t (of_table, privileges);
-- These are thrown away: sums and evidence of a generation that is over, and what
-- stands no longer. Nobody else can delete anything.
-- +goose StatementBegin
do $$
declare
  held record;
  part text;
begin
  for held in
    select case when a.grantee = 0 then 'public' else quote_ident(a.grantee::regrole::text) end as grantee
      from pg_class c, aclexplode(c.relacl) as a
     where c.oid = 'managed_tx'::regclass and a.grantee <> c.relowner and a.privilege_type = 'INSERT'
  loop
    foreach part in array array['conservation_checkpoint', 'conservation_sum', 'conservation_request', 'conservation_standing'] loop
      execute format('grant delete on %I to %s', part, held.grantee);
    end loop;
  end loop;
end
$$;
-- +goose StatementEnd

-- +goose Down
drop function conservation_advance;
drop table conservation_standing;
drop table conservation_finding;
drop table conservation_request;
drop table conservation_sum;
drop table conservation_checkpoint;
drop index transfers_final;
alter table transfer_history drop column tx;
