-- Submitters: the accounts that sign, the lease that one invocation holds to write for a submitter, its
-- nonce cursor, and the PROTECT incidents that stop it.

-- +goose Up
-- +goose StatementBegin
-- An account that signs transactions, and who may use it. The name transfer is that of the transfer
-- coordinator: another caller beside it could use a payout's request id for a different transaction.
create table submitter (
  submitter     submitter_id primary key,
  signer        text         not null check (signer <> ''),
  start_nonce   bigint       not null check (start_nonce >= 0),
  start_reason  text,
  max_in_flight integer      not null check (max_in_flight between 1 and 10000),
  status        text         not null default 'ACTIVE' check (status in ('ACTIVE', 'SUSPENDED')),
  callers       text[]       not null,
  -- By each former name of a caller, its present name. A chain of renames is stored as one step.
  succeeded     jsonb        not null default '{}' constraint succeeded_are_names check (jsonb_typeof(succeeded) = 'object'),
  created_at    timestamptz  not null default clock_timestamp(),
  created_by    text         not null check (created_by <> ''),
  swept_at      timestamptz  not null default '-infinity',
  constraint start_nonce_key unique (submitter, start_nonce),
  constraint start_nonce_has_a_reason check (start_nonce = 0 or coalesce(start_reason, '') <> ''),
  constraint payer_serves_transfers_only check (not 'transfer' = any (callers) or callers = array['transfer'])
);
create index submitter_succeeded on submitter (submitter) where succeeded <> '{}';

-- A submitter is never deleted, and its start nonce never changes: managed_tx refers to it.
create function guard_submitter() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or (new.submitter, new.start_nonce) is distinct from (old.submitter, old.start_nonce) then
    raise exception 'submitter % stays, with its start nonce', old.submitter
      using errcode = 'FP003', constraint = 'start_never_changes';
  end if;
  return new;
end $$;
create trigger guard_submitter before update or delete on submitter for each row execute function guard_submitter();
create trigger refuse_while_moving before insert or update on submitter for each statement execute function refuse_while_moving();

-- The lease of a submitter. An empty owner_node means that it was released. A row is never deleted, so
-- that no fencing token is given twice.
create table submitter_lease (
  submitter     submitter_id primary key,
  owner_node    text         not null,
  fencing_token bigint       not null check (fencing_token > 0),
  expires_at    timestamptz  not null,
  updated_at    timestamptz  not null,
  rerun_requested        boolean      not null default false, -- an invocation found the lease held: the holder iterates again
  name_epoch    text                                 -- of task names after a resync; null: the database's epoch
) with (fillfactor = 50);

-- A fencing token never goes down.
create function guard_lease() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or new.fencing_token < old.fencing_token or new.submitter <> old.submitter then
    raise exception 'the lease of %: its token never goes down', old.submitter
      using errcode = 'FP006', constraint = 'tokens_only_rise';
  end if;
  return new;
end $$;
create trigger guard_lease before delete on submitter_lease for each row execute function guard_lease();
create trigger guard_lease_update after update on submitter_lease for each row
  when (new.fencing_token < old.fencing_token or new.submitter <> old.submitter) execute function guard_lease();
create trigger refuse_while_moving before insert or update on submitter_lease for each statement execute function refuse_while_moving();

-- The fence of a commit: it raises FP001 unless the lease is held now. It keeps the row locked until the
-- commit, so that a takeover waits for it.
create function require_lease(held text, owner text, token bigint) returns void language plpgsql as $$
declare
  until timestamptz;
begin
  select expires_at into until
    from submitter_lease
   where submitter = held and owner_node = owner and fencing_token = token
     for share;
  if until is null or until <= clock_timestamp() then
    raise exception 'fenced: % is not held by % under token %', held, owner, token
      using errcode = 'FP001';
  end if;
end $$;

-- The next nonce of a submitter, and what it has in flight. in_flight_state only shows PROTECT: the
-- incident itself is a row of protect_incident.
create table submitter_nonce_cursor (
  submitter          submitter_id primary key references submitter,
  next_nonce         bigint       not null check (next_nonce >= 0),
  in_flight_tx_id    uuid,
  in_flight_nonce    bigint,
  in_flight_state    text         not null default 'IDLE' check (in_flight_state in ('IDLE', 'IN_FLIGHT', 'PROTECT')),
  final_block_number bigint,
  -- The blocks of the last final transactions, ascending: [{"number": …, "hash": …}, …]. A reorg below
  -- finality shows by them.
  final_blocks       jsonb        not null default '[]' check (jsonb_typeof(final_blocks) = 'array'),
  suspected_violation          jsonb,
  -- By caller: since when its own limits hold back its first queued intents. The time is kept until an
  -- intent of the caller gets a nonce. Otherwise many intents that end one by one would block the queue.
  blocked_callers          jsonb        not null default '{}',
  fencing_token      bigint       not null default 0,
  updated_at         timestamptz  not null default clock_timestamp(),
  constraint in_flight_is_complete check ((in_flight_tx_id is null) = (in_flight_nonce is null)),
  constraint in_flight_has_a_nonce check (in_flight_state <> 'IN_FLIGHT' or in_flight_nonce is not null),
  constraint idle_has_no_nonce check (in_flight_state <> 'IDLE' or in_flight_nonce is null),
  constraint in_flight_is_below_next check (in_flight_nonce < next_nonce)
) with (fillfactor = 50);

-- The next nonce never goes down: no nonce is given out again.
create function guard_cursor() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or new.next_nonce < old.next_nonce or new.submitter <> old.submitter then
    raise exception 'the cursor of %: no nonce is handed out again', old.submitter
      using errcode = 'FP006', constraint = 'nonces_only_rise';
  end if;
  return new;
end $$;
create trigger guard_cursor before delete on submitter_nonce_cursor for each row execute function guard_cursor();
create trigger guard_cursor_update after update on submitter_nonce_cursor for each row
  when (new.next_nonce < old.next_nonce or new.submitter <> old.submitter) execute function guard_cursor();
create trigger refuse_while_moving before insert or update on submitter_nonce_cursor for each statement execute function refuse_while_moving();

-- A PROTECT incident: evidence stopped the submitter, and an operator releases it with a reason.
create table protect_incident (
  submitter submitter_id not null references submitter,
  incident   integer      not null check (incident > 0),
  opened_at timestamptz  not null default clock_timestamp(),
  evidence  jsonb        not null,
  closed_at timestamptz,
  closed_by text,
  mode      text check (mode in ('resume', 'resync')),
  reason    text,
  released  jsonb, -- what the release did
  primary key (submitter, incident),
  constraint closed_by_an_operator check ((closed_at is null) = (closed_by is null)
    and (closed_at is null) = (reason is null) and (closed_at is null) = (mode is null))
);
create unique index one_open_incident on protect_incident (submitter) where closed_at is null;

-- An incident changes once: when it is closed.
create function guard_incident() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.closed_at is not null
     or (new.submitter, new.incident, new.opened_at, new.evidence)
        is distinct from (old.submitter, old.incident, old.opened_at, old.evidence) then
    raise exception 'a PROTECT incident is history: it is never changed'
      using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end $$;
create trigger guard_incident before update or delete on protect_incident for each row execute function guard_incident();
create trigger guard_incidents_truncate before truncate on protect_incident for each statement execute function refuse_change();

-- Closes the incident with this number and no other. An incident that began after the operator read the
-- state is not released.
create function close_incident(of_submitter text, number integer, how text, by_whom text, why text, what jsonb)
returns void
language plpgsql as $$
begin
  update protect_incident
     set closed_at = clock_timestamp(), mode = how, closed_by = by_whom, reason = why, released = what
   where submitter = of_submitter and incident = number and closed_at is null;
  if not found then
    raise exception 'incident % of % is not open', number, of_submitter using errcode = 'FP005';
  end if;
end $$;

-- Opens PROTECT on every submitter of a database that was not accepted. Nothing in it is used before
-- an operator has reconciled it with the chain. Every function may call it, whatever its role may write.
create function protect_all() returns void language sql security definer set search_path = public, pg_temp as $$
  insert into protect_incident (submitter, incident, evidence)
  select s.submitter, 1 + coalesce((select max(incident) from protect_incident p where p.submitter = s.submitter), 0),
         jsonb_build_object('what', 'the database is not the one written last: a restored or re-created copy',
           'expectedSystem', a.system_identifier::text, 'expectedTimeline', a.timeline_id,
           'system', c.system_identifier::text, 'timeline', current_timeline())
    from submitter s, database_identity a, pg_control_system() c
   where not is_accepted_database()
      on conflict (submitter) where closed_at is null do nothing
$$;
revoke execute on function protect_all() from public;
-- +goose StatementEnd
