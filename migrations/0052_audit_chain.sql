-- A chain over the rows that say who decided what: a row that is changed, removed or put
-- between others later no longer fits it. The mark outside the database has its end.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- The last link of each submitter, and up to which one is under a seal.
create table audit_head (
  submitter submitter_id primary key references submitter,
  number    bigint       not null,
  hash      bytea        not null,
  sealed    bigint       not null default 0
);

-- One link for each row of submitter_change and of tx_decision. The hash is that of the link
-- before, and of the link's text: see audit_text.
create table audit_link (
  submitter   submitter_id not null references submitter,
  number      bigint       not null,
  change_id   bigint,
  decision_id bigint,
  by_role     text,        -- the login of the database that wrote the row; null: the row is older than the chain
  at          timestamptz  not null,
  hash        bytea        not null,
  primary key (submitter, number),
  constraint link_has_one_row check (num_nonnulls(change_id, decision_id) = 1)
);
create unique index one_link_per_change on audit_link (change_id);
create unique index one_link_per_decision on audit_link (decision_id);

-- The ends of the chains that went on since the seal before, by submitter: [number, hash].
create table audit_seal (
  number bigint      primary key,
  heads  jsonb       not null,
  hash   bytea       not null,
  at     timestamptz not null default clock_timestamp()
);

create trigger keep_links before update or delete on audit_link for each row execute function refuse_change();
create trigger keep_all_links before truncate on audit_link for each statement execute function refuse_change();
create trigger keep_seals before update or delete on audit_seal for each row execute function refuse_change();
create trigger keep_all_seals before truncate on audit_seal for each statement execute function refuse_change();

-- What a link's hash is over, beside the hash before. It depends on no setting of the session.
-- A column that a later migration adds changes no text while it is null.
create function audit_text(of_submitter submitter_id, of_number bigint, of_change bigint, of_decision bigint, of_role text, of_time timestamptz)
returns text language sql stable set search_path = public, pg_temp as $$
  select jsonb_strip_nulls(jsonb_build_object('submitter', of_submitter, 'number', of_number, 'role', of_role,
    'linked', extract(epoch from of_time)::text,
    'change', (select jsonb_build_object('id', c.id, 'submitter', c.submitter, 'action', c.action, 'by', c.by, 'reason', c.reason,
                 'policy', c.policy, 'fromSigner', c.from_signer, 'toSigner', c.to_signer, 'fromCallers', c.from_callers,
                 'toCallers', c.to_callers, 'succeeds', c.succeeds, 'at', extract(epoch from c.at)::text)
                 from submitter_change c where c.id = of_change),
    'decision', (select jsonb_build_object('id', d.id, 'tx', d.tx_id, 'action', d.action, 'by', d.by, 'reason', d.reason,
                   'at', extract(epoch from d.at)::text)
                   from tx_decision d where d.id = of_decision)))::text
$$;

-- +goose StatementBegin
create function link_audit(of_submitter submitter_id, of_change bigint, of_decision bigint, of_role text) returns void
language plpgsql security definer set search_path = public, pg_temp as $$
declare
  last  audit_head;
  time  timestamptz := clock_timestamp();
  after bytea;
begin
  insert into audit_head (submitter, number, hash) values (of_submitter, 0, '') on conflict do nothing;
  select * into last from audit_head where submitter = of_submitter for no key update;
  after := sha256(last.hash || convert_to(audit_text(of_submitter, last.number + 1, of_change, of_decision, of_role, time), 'UTF8'));
  insert into audit_link (submitter, number, change_id, decision_id, by_role, at, hash)
  values (of_submitter, last.number + 1, of_change, of_decision, of_role, time, after);
  update audit_head set number = last.number + 1, hash = after where submitter = of_submitter;
end
$$;
-- +goose StatementEnd

-- Links what was written, whoever wrote it. It runs at the commit, when its transaction waits
-- for no further row.
-- +goose StatementBegin
create function link_written() returns trigger
language plpgsql security definer set search_path = public, pg_temp as $$
begin
  if tg_table_name = 'submitter_change' then
    perform link_audit(new.submitter, new.id, null, session_user);
  else
    perform link_audit((select m.submitter from managed_tx m where m.tx_id = new.tx_id), null, new.id, session_user);
  end if;
  return null;
end
$$;
-- +goose StatementEnd

-- Puts the ends of all chains under a seal, and returns the last seal; number 0: there is
-- none. A chain that is being written to at this moment comes under the next one.
-- +goose StatementBegin
create function seal_audit(for_mark text) returns table (seal_number bigint, seal_hash text)
language plpgsql security definer set search_path = public, pg_temp as $$
begin
  if for_mark is not null and exists (select from audit_head h where h.number > h.sealed) then
    lock table audit_seal in exclusive mode;
    with moved as (
      select h.submitter, h.number, h.hash
        from audit_head h
       where h.number > h.sealed
         for no key update skip locked
    ), marked as (
      update audit_head h set sealed = m.number from moved m where h.submitter = m.submitter
    ), content as (
      select jsonb_object_agg(m.submitter, jsonb_build_array(m.number, encode(m.hash, 'hex'))) as heads from moved m
    )
    insert into audit_seal (number, heads, hash)
    select coalesce(s.number, 0) + 1, c.heads, sha256(coalesce(s.hash, '') || convert_to((coalesce(s.number, 0) + 1) || ' ' || c.heads, 'UTF8'))
      from content c
      left join (select number, hash from audit_seal order by number desc limit 1) s on true
     where c.heads is not null;
  end if;
  return query
    select coalesce(s.number, 0), coalesce(encode(s.hash, 'hex'), '')
      from (values (1)) as one
      left join (select number, hash from audit_seal order by number desc limit 1) s on true;
end
$$;
-- +goose StatementEnd

revoke execute on function link_audit(submitter_id, bigint, bigint, text), link_written(), seal_audit(text) from public;

-- What is older than the chain, in its order. Nobody recorded which login wrote it.
lock table submitter_change, tx_decision in share row exclusive mode;
-- +goose StatementBegin
do $$
declare
  row record;
begin
  for row in
    select c.submitter, c.id as change_id, null::bigint as decision_id, c.at from submitter_change c
     union all
    select m.submitter, null, d.id, d.at from tx_decision d join managed_tx m using (tx_id)
     order by at, change_id, decision_id
  loop
    perform link_audit(row.submitter, row.change_id, row.decision_id, null);
  end loop;
end
$$;
-- +goose StatementEnd

create constraint trigger link_change after insert on submitter_change deferrable initially deferred for each row execute function link_written();
create constraint trigger link_decision after insert on tx_decision deferrable initially deferred for each row execute function link_written();

select copy_grants('managed_tx', 'audit_head', array['SELECT']);
select copy_grants('managed_tx', 'audit_link', array['SELECT']);
select copy_grants('managed_tx', 'audit_seal', array['SELECT']);

-- +goose Down
drop trigger link_decision on tx_decision;
drop trigger link_change on submitter_change;
drop function seal_audit(text), link_written(), link_audit(submitter_id, bigint, bigint, text), audit_text(submitter_id, bigint, bigint, bigint, text, timestamptz);
drop table audit_seal, audit_link, audit_head;
