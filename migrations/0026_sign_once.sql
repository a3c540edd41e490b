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
-- What the bytes of a transaction say: its chain, its nonce, and where in them stands
-- what it calls for: receiver, value and data, which are next to each other. It may be
-- of type 2 (EIP-1559), of type 1 (EIP-2930), or of legacy form with its chain in the
-- signature's v (EIP-155). All are null where the bytes are no such transaction. What
-- comes before the data is less than 256 bytes; it is cut off once, and filled up, so
-- that neither a long transaction is read again for each of its numbers nor a short one
-- beyond its end.
create function signed_call(raw bytea, out chain bigint, out nonce bigint, out call_at integer, out call_size integer)
language plpgsql immutable as $$
declare
  bytes  integer := coalesce(octet_length(raw), 0);
  head   bytea := substr(raw, 1, 256) || decode(repeat('00', 256), 'hex');
  kind   integer := 0; -- legacy: it begins with its list
  place  integer := 0;
  first  integer;
  size   integer;
  begins integer;
  number bigint;
  found_chain bigint;
  found_nonce bigint;
begin
  if bytes < 2 then
    return;
  end if;
  if get_byte(head, 0) < 192 then
    kind := get_byte(head, 0);
    place := 1;
    if kind not in (1, 2) or get_byte(head, 1) < 192 then
      return;
    end if;
  end if;
  place := place + 1 + greatest(get_byte(head, place) - 247, 0);
  for item in 1..3 + kind loop -- chain, but for legacy; nonce; one price of gas, of type 2 two; gas
    first := get_byte(head, place);
    if first > 160 then
      return;
    end if;
    if item = 1 or item = 2 and kind > 0 then
      if first > 136 then
        return;
      end if;
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
  if first not in (128, 148) then
    return;
  end if;
  place := place + first - 127;
  first := get_byte(head, place); -- the value
  if first > 160 then
    return;
  end if;
  place := place + greatest(first - 127, 1);
  first := get_byte(head, place); -- the data, up to 16 MiB
  if first < 184 then
    size := greatest(first - 127, 1);
  elsif first < 187 then
    size := first - 182 + ('x' || lpad(encode(substr(head, place + 2, first - 183), 'hex'), 8, '0'))::bit(32)::integer;
  else
    return;
  end if;
  if place + size > bytes then
    return;
  end if;
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
end
$$;

-- Versions are numbered without a gap, so that whoever adds one has seen all before.
-- Tables are named with their schema: a temporary one of the same name would go first.
create function sign_once() returns trigger
language plpgsql as $$
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
      using errcode = 'FP009', constraint = 'bytes_bind_here';
  end if;
  if new.kind = 'PLACEHOLDER'
     and substr(raw, said.call_at, said.call_size) <> '\x94'::bytea || decode(right(new.submitter, 40), 'hex') || '\x8080'::bytea then
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
  select d.bytes into first
    from public.tx_document d
   where d.tx_id = new.tx_id and d.name = 'version:1';
  meant := public.signed_call(first);
  if substr(first, meant.call_at, meant.call_size) is distinct from substr(raw, said.call_at, said.call_size) then
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
