-- What every function may do about a database that is not the one written last, whatever
-- its role may write: it takes trust away, and gives none.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- Opens PROTECT on every submitter of a database that is not the authority. Nothing in it is
-- believed until a person has reconciled it with the chain.
-- +goose StatementBegin
create function protect_all() returns void
language sql security definer set search_path = public, pg_temp as $$
  insert into protect_episode (submitter, episode, evidence)
  select s.submitter, 1 + coalesce((select max(episode) from protect_episode p where p.submitter = s.submitter), 0),
         jsonb_build_object('what', 'the database is not the one written last: a restored or re-created copy',
           'expectedSystem', a.system_identifier::text, 'expectedTimeline', a.timeline_id,
           'system', c.system_identifier::text, 'timeline', current_timeline())
    from submitter s, authority a, pg_control_system() c
   where not is_authority()
      on conflict (submitter) where closed_at is null do nothing
$$;
-- +goose StatementEnd

-- Distrusts a database that does not hold the mark that was read outside it, as migrate
-- distrust does, with the mark as the reason.
-- +goose StatementBegin
create function distrust_by_mark(of_id text, of_generation bigint, evidence text) returns void
language sql security definer set search_path = public, pg_temp as $$
  update authority
     set timeline_id = -1, accepted_at = clock_timestamp(),
         accepted_by = 'distrusted: the mark outside the database is not of this database: ' || evidence
   where timeline_id <> -1 and not exists (select from authority_mark where id = of_id or generation >= of_generation);
  select protect_all();
$$;
-- +goose StatementEnd

-- Records the mark that was read as seen. Those prepared over an older generation can be
-- written no more, and one that was seen before this is not the object's any more.
-- +goose StatementBegin
create function saw_mark(of_id text, of_generation bigint) returns void
language sql security definer set search_path = public, pg_temp as $$
  update authority_mark set generation = of_generation where id = of_id;
  delete from authority_mark
   where id <> of_id and written_over < of_generation
     and exists (select from authority_mark where id = of_id and generation = of_generation);
$$;
-- +goose StatementEnd

revoke execute on function protect_all(), distrust_by_mark(text, bigint, text), saw_mark(text, bigint) from public;

-- +goose Down
drop function saw_mark(text, bigint), distrust_by_mark(text, bigint, text), protect_all();
