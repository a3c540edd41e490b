-- Transactions: the intents that were accepted, the nonces they hold, every version that was signed, the
-- documents that belong to them, and their history.

-- +goose Up
-- +goose StatementBegin
-- An intent, and the transaction that carries it out. Its keys keep the nonces of a submitter unique and
-- without a gap. Bulky documents are in tx_document.
--
-- A transaction that moves between states in which it holds its nonce changes no indexed column, so that
-- Postgres writes no index (a HOT update). Predicates of indexes count as indexed columns. Therefore they
-- use the columns queued and open, which do not change meanwhile.
create table managed_tx (
  -- What was asked, and by whom. It never changes: see guard_tx.
  tx_id                 uuid         primary key,
  submitter             submitter_id not null references submitter,
  request_id            text         not null check (octet_length(request_id) between 1 and 128),
  seq                   bigint       generated always as identity,
  caller                text         not null,
  fingerprint           bytea        not null check (octet_length(fingerprint) = 32),
  handler               text         constraint handler_is_a_name check (handler ~ '^[a-z][a-z0-9_.-]{0,63}$'),
  valid_until           timestamptz,               -- until when it may get a nonce
  mac                   bytea,                     -- proves that a function that accepts intents stored the row
  mac_key               text,                      -- the id of the MAC's key
  trace                 bytea,                     -- trace id, span id and flags of the request; null: not traced
  events_kept           boolean      not null default coalesce(current_setting('fencepost.events', true) = 'keep', false),
  created_at            timestamptz  not null default clock_timestamp(),

  -- Its state.
  state                 text         not null default 'QUEUED',
  sub_state             text,
  queued                boolean      not null generated always as (state = 'QUEUED') stored,
  open             boolean      not null generated always as (state in ('IN_FLIGHT', 'SUBMITTED', 'TRACKING', 'STUCK', 'PROTECT')) stored,
  requested_action               text,                      -- the action that an operator or the caller requested
  held                  boolean      not null default false, -- gets no nonce until its caller repeats it or an operator decides
  held_for              text,                      -- CALL, HANDLER: as a foreign transaction; null: queued in a restored copy
  blocked_since       timestamptz,               -- since when its own limits keep it from a nonce
  deferred_at           timestamptz,               -- since when intents of other callers go ahead of it
  last_error            text,
  event_sequence        integer      not null default 1, -- events that were made of it
  fencing_token         bigint,
  updated_at            timestamptz  not null default clock_timestamp(),

  -- Its nonce.
  nonce                 bigint       check (nonce >= 0),
  prev_nonce            bigint,
  first_nonce           bigint       generated always as (case when prev_nonce is null then nonce end) stored,
  deferred_until_nonce       bigint,
  recorded_nonce        bigint,                    -- that a foreign transaction consumed, which a release named as this intent
  fills                 boolean      not null default false, -- a placeholder for a nonce that a lost database may have signed
  reservation           text,                      -- of a nonce for a caller's own bytes, by the low-level hooks
  lock_owner            text,
  lock_until            timestamptz,

  -- What was signed and sent.
  tx_hash               text         check (octet_length(tx_hash) = 66 and tx_hash ~ '^0x[0-9a-f]+$'),
  replaced_by_hash      text         check (octet_length(replaced_by_hash) = 66 and replaced_by_hash ~ '^0x[0-9a-f]+$'),
  first_submit_at       timestamptz,
  last_submit_at        timestamptz,
  next_resubmit_at      timestamptz,
  next_bump_at          timestamptz,               -- of the fee; null while gasbump.enabled is false
  submit_attempts       integer      not null default 0 check (submit_attempts >= 0),
  last_gas_params       jsonb,

  -- What the chain says.
  last_receipt_check_at timestamptz,
  next_check_at         timestamptz,
  last_mempool_diag     jsonb,
  receipt               jsonb,
  confirmations         jsonb,
  confirmed_at          timestamptz,

  -- request_id comes first: otherwise the planner may take either of two keys that begin with submitter,
  -- and read every row of a submitter that has a million.
  constraint one_tx_per_request unique (request_id, submitter),
  constraint one_tx_per_nonce unique (submitter, nonce),
  constraint one_nonce_per_tx unique (tx_id, submitter, nonce),

  -- No gap: a nonce is bound only where its predecessor is bound. Only the first nonce of a submitter has
  -- no predecessor, and it must be the start nonce.
  constraint follows_the_last_nonce foreign key (submitter, prev_nonce) references managed_tx (submitter, nonce),
  constraint begins_at_start_nonce foreign key (submitter, first_nonce) references submitter (submitter, start_nonce),
  constraint prev_nonce_is_one_less check (prev_nonce = nonce - 1),
  constraint prev_nonce_of_a_nonce check (prev_nonce is null or nonce is not null),

  constraint state_is_known check (state in
    ('QUEUED', 'IN_FLIGHT', 'SUBMITTED', 'TRACKING', 'STUCK', 'PROTECT', 'CONFIRMED', 'FAILED')),
  constraint sub_state_fits check (case state
    when 'TRACKING' then sub_state is not null and sub_state in ('PENDING', 'INCLUDED')
    when 'FAILED' then sub_state is not null
      and sub_state in ('REJECTED', 'CANCELLED', 'EXPIRED', 'REVERTED', 'PLACEHOLDER', 'DISPLACED')
    when 'CONFIRMED' then sub_state is null or sub_state = 'RECORDED' and recorded_nonce is not null
    else sub_state is null end),
  constraint nonce_fits_state check (case
    when state = 'QUEUED' then nonce is null
    when state = 'FAILED' and sub_state in ('REJECTED', 'CANCELLED', 'EXPIRED') then nonce is null
    when state = 'FAILED' and sub_state = 'DISPLACED' then true
    when state in ('CONFIRMED', 'FAILED') and recorded_nonce is not null then true
    else nonce is not null end),
  constraint bytes_fit_state check (case
    when state in ('QUEUED', 'IN_FLIGHT') then tx_hash is null
    when sub_state = 'RECORDED' then true
    when state in ('SUBMITTED', 'TRACKING', 'CONFIRMED') then tx_hash is not null
    else true end),
  constraint sent_fits_state check (case
    when state in ('SUBMITTED', 'TRACKING') then last_submit_at is not null and first_submit_at is not null
    else true end),
  constraint receipt_fits_state check (case
    when state = 'TRACKING' and sub_state = 'INCLUDED' then receipt is not null
    when state = 'TRACKING' then receipt is null
    when sub_state = 'RECORDED' then true
    when state = 'CONFIRMED' then receipt is not null and confirmations is not null
    when state = 'FAILED' and sub_state in ('REVERTED', 'PLACEHOLDER') then receipt is not null
    else true end),
  constraint receipt_has_no_document check (not receipt ? 'document'),
  constraint confirmed_at_fits_state check (case
    when sub_state = 'RECORDED' then (confirmed_at is not null) = (receipt is not null)
    else (confirmed_at is not null) = (state = 'CONFIRMED' or (state = 'FAILED' and sub_state in ('REVERTED', 'PLACEHOLDER'))) end),

  constraint requested_action_is_known check (requested_action in ('CANCEL', 'PLACEHOLDER', 'REPLACE', 'REBROADCAST')),
  constraint requested_action_fits_state check (requested_action is null
    or state in ('IN_FLIGHT', 'SUBMITTED', 'TRACKING', 'STUCK', 'PROTECT')),
  constraint held_has_no_nonce check (not held or state in ('QUEUED', 'CONFIRMED', 'FAILED')),
  constraint held_for_is_known check (held_for is null or held and held_for in ('CALL', 'HANDLER')),
  constraint deferred_is_blocked check (deferred_at is null or blocked_since is not null),
  constraint expired_had_an_end check (sub_state is distinct from 'EXPIRED' or valid_until is not null),
  constraint fills_a_nonce check (not fills or nonce is not null and handler is null and reservation is null and state <> 'CONFIRMED'),

  constraint reservation_is_known check (reservation in ('RESERVED', 'USED', 'RECYCLABLE')),
  constraint reservation_has_a_lock check (case when reservation is null
    then lock_owner is null and lock_until is null
    else lock_until is not null and coalesce(octet_length(lock_owner), 0) between 1 and 128 end),
  constraint reservation_fits_state check (case
    when reservation is null then true
    when handler is not null or state = 'QUEUED' or sub_state in ('REJECTED', 'EXPIRED') then false
    when sub_state = 'CANCELLED' then reservation = 'RECYCLABLE'
    when reservation = 'USED' then tx_hash is not null
    else true end),

  constraint trace_is_a_span check (octet_length(trace) = 25),
  constraint mac_has_a_key check ((mac is null) = (mac_key is null)),
  constraint mac_is_of_32_bytes check (octet_length(mac) = 32),
  constraint mac_key_is_an_id check (octet_length(mac_key) between 1 and 64)
) with (fillfactor = 50);
create unique index first_nonce on managed_tx (submitter) where nonce is not null and prev_nonce is null;
create index tx_deferred_until_nonce on managed_tx (submitter, deferred_until_nonce) where queued and deferred_until_nonce is not null;
create index tx_open on managed_tx (submitter, nonce) where open;
-- Nonces of reservations that can be given out again.
create index tx_recyclable on managed_tx (submitter, nonce) where open and reservation = 'RECYCLABLE';
-- The queue of a submitter. Held intents are skipped. After a deferred one it is read caller by caller.
create index tx_queue on managed_tx (submitter, held, seq) where queued;
create index tx_valid_until on managed_tx (submitter, valid_until) where queued and not held and valid_until is not null;
create index tx_deferred on managed_tx (submitter, deferred_at) where queued and not held and deferred_at is not null;
create index tx_queue_of_caller on managed_tx (submitter, caller, seq) where queued and not held;
-- Lists of a caller's transactions, in the order in which they were accepted.
create index tx_of_caller on managed_tx (submitter, caller, seq);

-- A final state never changes, and neither does what binds a transaction to its request. A nonce stays,
-- except that of a reservation that its owner released: no intent was bound to it. The trigger calls the
-- function only where it refuses or must look closer.
create function guard_tx() returns trigger language plpgsql as $$
begin
  if old.state in ('CONFIRMED', 'FAILED') then
    raise exception 'transaction % is final', old.tx_id using errcode = 'FP002', constraint = 'final_never_changes';
  end if;
  if (new.tx_id, new.submitter, new.request_id, new.fingerprint, new.seq, new.caller, new.handler)
     is distinct from (old.tx_id, old.submitter, old.request_id, old.fingerprint, old.seq, old.caller, old.handler)
     or (old.nonce is not null and new.nonce is distinct from old.nonce
         and not (new.nonce is null and coalesce(new.sub_state = 'CANCELLED' and old.reservation = 'RECYCLABLE', false)
                  and old.state = 'IN_FLIGHT' and old.requested_action is null)) then
    raise exception 'transaction % is bound for ever', old.tx_id using errcode = 'FP003', constraint = 'binding_never_changes';
  end if;
  return new;
end $$;
create trigger guard_tx after update on managed_tx for each row when (old.state in ('CONFIRMED', 'FAILED')
    or (old.tx_id, old.submitter, old.request_id, old.fingerprint, old.seq, old.caller, old.handler)
       is distinct from (new.tx_id, new.submitter, new.request_id, new.fingerprint, new.seq, new.caller, new.handler)
    or (old.nonce is not null and old.nonce is distinct from new.nonce))
  execute function guard_tx();
create trigger guard_tx_delete before delete on managed_tx for each row execute function refuse_change();
create trigger guard_txs_truncate before truncate on managed_tx for each statement execute function refuse_change();
create trigger guard_fills before update on managed_tx for each row when (old.fills is distinct from new.fills) execute function refuse_change();
create trigger guard_valid_until before update of valid_until on managed_tx for each row
  when (old.valid_until is distinct from new.valid_until) execute function refuse_change();

-- A reservation changes once, while nothing is signed for it and no action is requested.
create function guard_reservation() returns trigger language plpgsql as $$
begin
  if old.reservation is distinct from 'RESERVED' or old.state <> 'IN_FLIGHT' or old.requested_action is not null
     or coalesce(new.reservation, 'RESERVED') = 'RESERVED'
     or (new.lock_owner, new.lock_until) is distinct from (old.lock_owner, old.lock_until) then
    raise exception 'reservation % was made for %, and changes once', old.tx_id, old.lock_owner
      using errcode = 'FP003', constraint = 'reservation_changes_once';
  end if;
  return new;
end $$;
create trigger guard_reservation after update on managed_tx for each row
  when ((old.reservation, old.lock_owner, old.lock_until) is distinct from (new.reservation, new.lock_owner, new.lock_until))
  execute function guard_reservation();

-- Only a role that may add intents can let a held intent go on, since it may have run before a restore. A
-- role that cancels has the same column, and can only hold.
create function guard_held() returns trigger language plpgsql as $$
begin
  if not has_table_privilege('public.managed_tx', 'insert') then
    raise exception 'intent % is held, and % may not let it go on', new.tx_id, current_user using errcode = '42501', constraint = 'held_until_decided';
  end if;
  return new;
end $$;
create trigger guard_held before update of held on managed_tx for each row
  when (old.held and not new.held and new.state = 'QUEUED') execute function guard_held();
create trigger refuse_while_moving before insert or update on managed_tx for each statement execute function refuse_while_moving();

-- Whether intents must have a MAC. The row with the highest id counts. While required is true, intents up
-- to intents_upto (by seq) may have none: a release without MACs stored them.
create table intent_mac_rule (
  id           bigint      generated always as identity primary key,
  required     boolean     not null,
  intents_upto bigint      not null default last_intent_seq(),
  by           text        not null check (by <> ''),
  reason       text        not null check (reason <> ''),
  at           timestamptz not null default clock_timestamp()
);
create trigger guard_rules before update or delete on intent_mac_rule for each row execute function refuse_change();
create trigger guard_rules_truncate before truncate on intent_mac_rule for each statement execute function refuse_change();
insert into intent_mac_rule (required, by, reason) values (true, 'migrate', 'the database is new');

-- The last intent that may be without a MAC; null: each may. A role that writes transactions can call it
-- without a right on the table.
create function last_intent_without_mac() returns bigint language sql stable security definer set search_path = public, pg_temp as $$
  select case when r.required then r.intents_upto end from intent_mac_rule r order by r.id desc limit 1
$$;

-- Refuses a queued intent without a MAC where one is required, at the insert and when it gets a nonce. No
-- intent is added with a number of those that may be without. Rows that a release from PROTECT adds have no
-- caller, and are never queued.
create function require_mac() returns trigger language plpgsql as $$
declare
  upto bigint := last_intent_without_mac();
begin
  if tg_op = 'INSERT' and upto is not null and (new.seq <= upto or new.state = 'QUEUED' and new.caller <> '')
     or tg_op = 'UPDATE' and new.seq > upto then
    raise exception 'intent % has no MAC, and one is required', new.tx_id using errcode = 'FP051', constraint = 'intents_have_a_mac';
  end if;
  return new;
end $$;
create trigger require_mac_at_insert before insert on managed_tx for each row when (new.mac is null) execute function require_mac();
create trigger require_mac_at_allocation before update on managed_tx for each row
  when (new.mac is null and old.nonce is null and new.nonce is not null and new.state in ('IN_FLIGHT', 'SUBMITTED'))
  execute function require_mac();
create trigger guard_mac before update of mac, mac_key on managed_tx for each row
  when ((old.mac, old.mac_key) is distinct from (new.mac, new.mac_key)) execute function refuse_change();

-- The documents of a transaction: its payload, the bytes of each version, and receipts. They never change.
-- A tx_id is a UUIDv7, whose first 48 bits are a time in milliseconds, so there is one partition for each
-- quarter. An operator can detach and archive an old one.
create table tx_document (
  tx_id uuid not null,
  name  text not null,
  body  json,
  bytes bytea,
  primary key (tx_id, name),
  constraint document_is_known
    check (name = 'payload' or name ~ '^version:[1-9][0-9]*$' or octet_length(name) = 74 and name ~ '^receipt:0x[0-9a-f]+$'),
  constraint document_has_a_body check (body is not null),
  constraint versions_have_bytes check ((name like 'version:%') = coalesce(octet_length(bytes) > 0, false))
) partition by range (tx_id);
create table tx_document_default partition of tx_document default;
create trigger guard_documents before update or delete on tx_document for each row execute function refuse_change();
create trigger guard_documents_truncate before truncate on tx_document for each statement execute function refuse_change();
create trigger guard_truncate before truncate on tx_document_default for each statement execute function refuse_change();

-- A transaction that can still be carried out has a payload. It is checked at the commit, since a later
-- statement of the same transaction may store it. An operator may detach its partition later.
create function check_payload() returns trigger language plpgsql as $$
begin
  if not exists (select from public.tx_document d where d.tx_id = new.tx_id and d.name = 'payload')
     and exists (select from public.managed_tx m where m.tx_id = new.tx_id and m.state not in ('CONFIRMED', 'FAILED')) then
    raise exception 'transaction % has no payload', new.tx_id using errcode = 'FP011', constraint = 'transactions_have_payloads';
  end if;
  return null;
end $$;
create constraint trigger check_payload after insert on managed_tx deferrable initially deferred
  for each row when (new.state not in ('CONFIRMED', 'FAILED'))
  execute function check_payload();

-- Every version that was signed. The chain can include any of them. The key binds each hash for ever to
-- one nonce of one transaction.
create table tx_version (
  tx_hash       text          primary key check (octet_length(tx_hash) = 66 and tx_hash ~ '^0x[0-9a-f]+$'),
  tx_id         uuid          not null,
  submitter     submitter_id  not null,
  nonce         bigint        not null,
  version       integer       not null check (version > 0),
  kind          text          not null check (kind in ('ORIGINAL', 'BUMP', 'PLACEHOLDER')),
  extra_wei     numeric(78,0),            -- what the replacement can cost more than the version before it
  fencing_token bigint        not null,
  created_at    timestamptz   not null default clock_timestamp(),
  constraint one_of_each_version unique (tx_id, version),
  constraint bound_for_ever foreign key (tx_id, submitter, nonce) references managed_tx (tx_id, submitter, nonce),
  constraint extra_is_an_amount check (extra_wei >= 0)
);
create index version_of_budget on tx_version (submitter, created_at) where extra_wei is not null;

-- Reads a signed transaction: its chain, its nonce, and the place of its call, which is receiver, value and
-- data. It reads type 2 (EIP-1559), type 1 (EIP-2930), and legacy with a chain id (EIP-155). All results are
-- null for other bytes. What comes before the data has less than 256 bytes, so only those are cut off and
-- filled up.
create function signed_call(raw bytea, out chain bigint, out nonce bigint, out call_at integer, out call_size integer) language plpgsql immutable as $$
declare
  bytes  integer := coalesce(octet_length(raw), 0);
  head   bytea := substr(raw, 1, 256) || decode(repeat('00', 256), 'hex');
  kind   integer := 0; -- legacy: it begins with its list
  place  integer := 0;
  first integer; size integer; begins integer;
  number bigint; found_chain bigint; found_nonce bigint;
begin
  if bytes < 2 then return; end if;
  if get_byte(head, 0) < 192 then
    kind := get_byte(head, 0);
    place := 1;
    if kind not in (1, 2) or get_byte(head, 1) < 192 then return; end if;
  end if;
  place := place + 1 + greatest(get_byte(head, place) - 247, 0);
  for item in 1..3 + kind loop -- chain, but for legacy; nonce; one price of gas, of type 2 two; gas
    first := get_byte(head, place);
    if first > 160 then return; end if;
    if item = 1 or item = 2 and kind > 0 then
      if first > 136 then return; end if;
      number := case when first < 128 then first
        else ('x' || lpad(encode(substr(head, place + 2, first - 128), 'hex'), 16, '0'))::bit(64)::bigint end;
      if item = 1 and kind > 0 then
        found_chain := number;
      else
        found_nonce := number;
      end if;
    end if;
    place := place + greatest(first - 127, 1);
  end loop;
  begins := place;
  first := get_byte(head, place); -- the receiver: an account, or none
  if first not in (128, 148) then return; end if;
  place := place + first - 127;
  first := get_byte(head, place); -- the value
  if first > 160 then return; end if;
  place := place + greatest(first - 127, 1);
  first := get_byte(head, place); -- the data, up to 16 MiB
  if first < 184 then
    size := greatest(first - 127, 1);
  elsif first < 187 then
    size := first - 182 + ('x' || lpad(encode(substr(head, place + 2, first - 183), 'hex'), 8, '0'))::bit(32)::integer;
  else
    return;
  end if;
  if place + size > bytes then return; end if;
  if kind = 0 then
    head := substr(raw, place + size + 1, 9) || decode(repeat('00', 9), 'hex'); -- v: twice the chain, and 35 or 36
    first := get_byte(head, 0);
    if first not between 35 and 136 or first = 128 or place + size + greatest(first - 127, 1) > bytes then
      return; -- cut off; or none, or 27 or 28, which name no chain
    end if;
    number := case when first < 128 then first
      else ('x' || lpad(encode(substr(head, 2, first - 128), 'hex'), 16, '0'))::bit(64)::bigint end;
    found_chain := div(case when number < 0 then number + 18446744073709551616 else number end - 35, 2);
  end if;
  chain := found_chain;
  nonce := found_nonce;
  call_at := begins + 1;
  call_size := place + size - begins;
end $$;

-- Sign once: the bytes of a version are for its nonce on its chain, and call for the same as the versions
-- before it. A placeholder does nothing, and only placeholders follow it. Postgres cannot check the
-- signature or the hash: it has no secp256k1 and no Keccak. Versions are numbered without a gap, so that
-- adding one means having read all before. Tables are named with their schema, since a temporary one of
-- the same name would go first.
create function sign_once() returns trigger language plpgsql as $$
declare
  raw    bytea;
  said   record;
  before text;
  first  bytea;
  meant  record;
begin
  select d.bytes into raw
    from public.tx_document d
   where d.tx_id = new.tx_id and d.name = 'version:' || new.version;
  said := public.signed_call(raw);
  if said.nonce is distinct from new.nonce or said.chain is distinct from split_part(new.submitter, ':', 2)::numeric then
    raise exception 'version % of transaction %: its bytes are not for nonce % of %', new.version, new.tx_id, new.nonce, new.submitter
      using errcode = 'FP009', constraint = 'bytes_match_nonce';
  end if;
  if new.kind = 'PLACEHOLDER'
     and substr(raw, said.call_at, said.call_size) <> '\x94'::bytea || decode(right(new.submitter, 40), 'hex') || '\x8080'::bytea then
    raise exception 'version % of transaction %: a placeholder sends nothing, and to its own account', new.version, new.tx_id
      using errcode = 'FP009', constraint = 'placeholders_do_nothing';
  end if;
  if new.version = 1 then return null; end if;
  select v.kind into before
    from public.tx_version v
   where v.tx_id = new.tx_id and v.version = new.version - 1;
  if not found then
    raise exception 'version % of transaction %: there is none before it', new.version, new.tx_id
      using errcode = 'FP009', constraint = 'versions_follow';
  end if;
  if new.kind = 'PLACEHOLDER' then return null; end if;
  if before = 'PLACEHOLDER' then
    raise exception 'version % of transaction % comes after a placeholder, and is none', new.version, new.tx_id
      using errcode = 'FP009', constraint = 'placeholders_are_last';
  end if;
  select d.bytes into first
    from public.tx_document d
   where d.tx_id = new.tx_id and d.name = 'version:1';
  meant := public.signed_call(first);
  if substr(first, meant.call_at, meant.call_size) is distinct from substr(raw, said.call_at, said.call_size) then
    raise exception 'version % of transaction % calls for another thing than the first', new.version, new.tx_id
      using errcode = 'FP009', constraint = 'one_intent_per_nonce';
  end if;
  return null;
end $$;
-- After the statement, which stores the bytes too.
create trigger sign_once after insert on tx_version for each row execute function sign_once();
create trigger guard_versions before update or delete on tx_version for each row execute function refuse_change();
create trigger guard_versions_truncate before truncate on tx_version for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on tx_version for each statement execute function refuse_while_moving();

-- Every change of every transaction, in partitions as tx_document.
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
create trigger guard_history before update or delete on tx_history for each row execute function refuse_change();
create trigger guard_history_truncate before truncate on tx_history for each statement execute function refuse_change();
create trigger guard_truncate before truncate on tx_history_default for each statement execute function refuse_change();

-- Writes the history of a statement's changes, once for each statement. A nested loop is off because a
-- session keeps the plan of its first call: after a change of one row it would compare each old row with
-- each new one, which takes minutes for thousands of rows.
create function record_txs() returns trigger language plpgsql set enable_nestloop = off as $$
begin
  if tg_op = 'INSERT' then
    insert into tx_history (tx_id, submitter, at, state, sub_state, nonce, tx_hash, attempts, reason, block_hash, fencing_token)
    select tx_id, submitter, clock_timestamp(), state, sub_state, nonce, tx_hash, submit_attempts, last_error,
           receipt ->> 'blockHash', fencing_token
      from new_txs
     order by seq;
    return null;
  end if;
  insert into tx_history (tx_id, submitter, at, from_state, state, sub_state, nonce, tx_hash, attempts, reason, block_hash, fencing_token)
  select n.tx_id, n.submitter, clock_timestamp(), o.state, n.state, n.sub_state, n.nonce, n.tx_hash, n.submit_attempts, n.last_error,
         n.receipt ->> 'blockHash', n.fencing_token
    from new_txs n
    join old_txs o using (tx_id)
   where (n.state, n.sub_state, n.nonce, n.tx_hash, n.submit_attempts, n.last_error, n.receipt ->> 'blockHash')
         is distinct from
         (o.state, o.sub_state, o.nonce, o.tx_hash, o.submit_attempts, o.last_error, o.receipt ->> 'blockHash')
   order by n.nonce, n.seq;
  return null;
end $$;
create trigger record_new_txs after insert on managed_tx
  referencing new table as new_txs for each statement execute function record_txs();
create trigger record_txs after update on managed_tx
  referencing old table as old_txs new table as new_txs for each statement execute function record_txs();

-- The lowest tx_id of a moment.
create function tx_id_at(moment timestamptz) returns uuid language sql immutable as $$
  select (lpad(to_hex((extract(epoch from moment) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

-- Makes the partition of the quarter that begins on a day (UTC), and reports whether it did. Where the
-- default partition has rows of that quarter, they stay there. The partition is attached, since making it
-- in place would block all readers.
create function make_quarter(parent text, begins date) returns boolean language plpgsql as $$
declare
  part    text := parent || to_char(begins, '_YYYY"q"Q');
  lowest  uuid := tx_id_at(begins::timestamp at time zone 'UTC');
  beyond  uuid := tx_id_at((begins + interval '3 months')::timestamp at time zone 'UTC');
  settled boolean;
begin
  if to_regclass(part) is not null then return false; end if;
  execute format('select exists (select from %I where tx_id >= $1 and tx_id < $2)', parent || '_default') into settled using lowest, beyond;
  if settled then return false; end if;
  execute format('create table %I (like %I including defaults including constraints including storage)', part, parent);
  execute format('create trigger guard_truncate before truncate on %I for each statement execute function refuse_change()', part);
  execute format('alter table %I attach partition %I for values from (%L) to (%L)', parent, part, lowest, beyond);
  return true;
end $$;
revoke all on function make_quarter from public;

-- Makes the partitions of this quarter and the next two, and returns how many it made. The caller needs no
-- right to make tables. It waits at most a second for a lock, since a later call can make the partition too.
create function ensure_partitions() returns integer language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '1s' as $$
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
        perform pg_advisory_xact_lock(hashtext('ensure_partitions'));
        made := made + make_quarter(parent, begins)::integer;
      end if;
    end loop;
  end loop;
  return made;
end $$;
select ensure_partitions();

-- Detaches the documents and the history of the quarter that begins on a day (UTC), for an operator to
-- archive. It refuses while a transaction of that quarter is open, or final for less than thirty days,
-- since it may be sent again.
create function detach_quarter(begins date) returns void language plpgsql set search_path = public, pg_temp as $$
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
end $$;
revoke all on function detach_quarter from public;
-- +goose StatementEnd
