-- What only ever rises: fencing tokens, nonces handed out. And what is never
-- deleted: leases, cursors, the authority; or changed: a submitter's start.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- +goose StatementBegin
create function keep_lease() returns trigger
language plpgsql as $$
begin
  if tg_op = 'DELETE' or new.fencing_token < old.fencing_token or new.submitter <> old.submitter then
    raise exception 'the lease of %: its token never goes down', old.submitter
      using errcode = 'FP006', constraint = 'tokens_only_rise';
  end if;
  return new;
end
$$;

create function keep_cursor() returns trigger
language plpgsql as $$
begin
  if tg_op = 'DELETE' or new.next_nonce < old.next_nonce or new.submitter <> old.submitter then
    raise exception 'the cursor of %: no nonce is handed out again', old.submitter
      using errcode = 'FP006', constraint = 'nonces_only_rise';
  end if;
  return new;
end
$$;

create function keep_submitter() returns trigger
language plpgsql as $$
begin
  if tg_op = 'DELETE' or (new.submitter, new.start_nonce) is distinct from (old.submitter, old.start_nonce) then
    raise exception 'submitter % stays, with its start nonce', old.submitter
      using errcode = 'FP003', constraint = 'start_never_changes';
  end if;
  return new;
end
$$;
-- +goose StatementEnd

create trigger keep_lease before update or delete on submitter_lease for each row execute function keep_lease();
create trigger keep_cursor before update or delete on submitter_nonce_cursor for each row execute function keep_cursor();
create trigger keep_submitter before update or delete on submitter for each row execute function keep_submitter();
create trigger keep_authority before delete on authority for each row execute function refuse_change();
create trigger keep_all_decisions before truncate on tx_decision for each statement execute function refuse_change();
create trigger keep_all_episodes before truncate on protect_episode for each statement execute function refuse_change();
create trigger keep_all_authority_changes before truncate on authority_change for each statement execute function refuse_change();

-- +goose Down
drop trigger keep_all_authority_changes on authority_change;
drop trigger keep_all_episodes on protect_episode;
drop trigger keep_all_decisions on tx_decision;
drop trigger keep_authority on authority;
drop trigger keep_submitter on submitter;
drop trigger keep_cursor on submitter_nonce_cursor;
drop trigger keep_lease on submitter_lease;
drop function keep_submitter;
drop function keep_cursor;
drop function keep_lease;
