-- Sign once: what is signed for one nonce of a submitter is one intent's, whatever
-- the code above says. A row of tx_version is bound to one nonce of one transaction
-- already; now its bytes are too. They must be for that nonce on that chain, and call
-- for the same as the versions before them: the same receiver, value and data. A
-- placeholder must do nothing, and after it nothing else is taken: an intent that was
-- never signed before has no call to be held to. What the database cannot tell is
-- whose signature it is, and whether the hash is that of the bytes: it has no Keccak
-- and no secp256k1.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- +goose StatementBegin
-- What the bytes of a transaction of type 2 (EIP-1559) say: its chain, its nonce, and
-- what it calls for, as it stands in them: receiver, value and data, which are next to
-- each other. All are null where the bytes are no such transaction.
create function signed_call(raw bytea, out chain bigint, out nonce bigint, out call bytea)
language plpgsql immutable as $$
declare
  bytes integer := coalesce(octet_length(raw), 0);
  place integer := 1; -- after the type
  head  integer;
  size  integer;
  begins integer;
  found_chain bigint;
  found_nonce bigint;
begin
  if bytes < 2 or get_byte(raw, 0) <> 2 or get_byte(raw, 1) < 192 then
    return;
  end if;
  place := 2 + greatest(get_byte(raw, 1) - 247, 0);
  -- chain id, nonce, tip cap, fee cap, gas, receiver, value, data
  for item in 1..8 loop
    if place >= bytes then
      return;
    end if;
    if item = 6 then
      begins := place;
    end if;
    head := get_byte(raw, place);
    if head < 128 then
      size := 1;
    elsif head < 184 then
      place := place + 1;
      size := head - 128;
    elsif head < 187 and place + head - 183 < bytes then -- up to 16 MiB
      size := 0;
      for digit in 1..head - 183 loop
        size := size * 256 + get_byte(raw, place + digit);
      end loop;
      place := place + head - 182;
    else
      return;
    end if;
    if item <= 2 and size > 8 or place + size > bytes then
      return;
    end if;
    if item = 1 then
      found_chain := ('x' || lpad(encode(substr(raw, place + 1, size), 'hex'), 16, '0'))::bit(64)::bigint;
    elsif item = 2 then
      found_nonce := ('x' || lpad(encode(substr(raw, place + 1, size), 'hex'), 16, '0'))::bit(64)::bigint;
    end if;
    place := place + size;
  end loop;
  chain := found_chain;
  nonce := found_nonce;
  call := substr(raw, begins + 1, place - begins);
end
$$;

-- Versions are numbered without a gap, so that whoever adds one has seen all before.
-- Tables are named with their schema: a temporary one of the same name would go first.
create function sign_once() returns trigger
language plpgsql as $$
declare
  said   record;
  before text;
  first  bytea;
begin
  select s.* into said
    from public.tx_document d, public.signed_call(d.bytes) as s
   where d.tx_id = new.tx_id and d.name = 'version:' || new.version;
  if said.nonce is distinct from new.nonce or said.chain is distinct from split_part(new.submitter, ':', 2)::numeric then
    raise exception 'version % of transaction %: its bytes are not for nonce % of %', new.version, new.tx_id, new.nonce, new.submitter
      using errcode = 'FP009', constraint = 'bytes_bind_here';
  end if;
  if new.kind = 'PLACEHOLDER'
     and said.call <> '\x94'::bytea || decode(right(new.submitter, 40), 'hex') || '\x8080'::bytea then
    raise exception 'version % of transaction %: a placeholder sends nothing, and to its own account', new.version, new.tx_id
      using errcode = 'FP009', constraint = 'placeholders_do_nothing';
  end if;
  if new.version = 1 then
    return null;
  end if;
  select v.kind into before
    from public.tx_version v
   where v.tx_id = new.tx_id and v.version = new.version - 1;
  if not found then
    raise exception 'version % of transaction %: there is none before it', new.version, new.tx_id
      using errcode = 'FP009', constraint = 'versions_follow';
  end if;
  if new.kind = 'PLACEHOLDER' then
    return null;
  end if;
  if before = 'PLACEHOLDER' then
    raise exception 'version % of transaction % comes after a placeholder, and is none', new.version, new.tx_id
      using errcode = 'FP009', constraint = 'placeholders_stay';
  end if;
  select s.call into first
    from public.tx_document d, public.signed_call(d.bytes) as s
   where d.tx_id = new.tx_id and d.name = 'version:1';
  if first is distinct from said.call then
    raise exception 'version % of transaction % calls for another thing than the first', new.version, new.tx_id
      using errcode = 'FP009', constraint = 'one_intent_per_nonce';
  end if;
  return null;
end
$$;
-- +goose StatementEnd

-- After the statement, which stores the bytes too.
create trigger sign_once after insert on tx_version for each row execute function sign_once();

-- +goose Down
set local lock_timeout = '5s';
set local statement_timeout = '60s';
drop trigger sign_once on tx_version;
drop function sign_once;
drop function signed_call;
