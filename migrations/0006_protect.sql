-- The way out of PROTECT: by a named person, with a reason, as history that
-- cannot be rewritten.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

alter table protect_episode add column released jsonb;

-- An episode changes once: when it is closed.
-- +goose StatementBegin
create function keep_episode() returns trigger
language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.closed_at is not null
     or (new.submitter, new.episode, new.opened_at, new.evidence)
        is distinct from (old.submitter, old.episode, old.opened_at, old.evidence) then
    raise exception 'an episode of PROTECT is history: it is never changed'
      using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end
$$;

-- Closes the episode named, and no other: an episode that began since an
-- operator looked is not released unseen.
create function close_episode(of_submitter text, number integer, how text, by_whom text, why text, what jsonb)
returns void
language plpgsql as $$
begin
  update protect_episode
     set closed_at = clock_timestamp(), mode = how, closed_by = by_whom, reason = why, released = what
   where submitter = of_submitter and episode = number and closed_at is null;
  if not found then
    raise exception 'episode % of % is not open', number, of_submitter using errcode = 'FP005';
  end if;
end
$$;
-- +goose StatementEnd

create trigger keep_episode before update or delete on protect_episode for each row execute function keep_episode();

-- +goose Down
drop trigger keep_episode on protect_episode;
drop function keep_episode;
drop function close_episode;
alter table protect_episode drop column released;
