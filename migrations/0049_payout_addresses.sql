-- Bounds of what a user can have paid out: an amount of each asset in 24 hours, and a
-- list of the user's addresses, on which a new one waits before it is paid.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- Of one user, in 24 hours, by payouts alone; null: no limit.
alter table assets_tb
  add column daily_payout_amount decimal(30,8),
  add constraint day_of_payouts_is_an_amount check (daily_payout_amount >= min_transfer_amount
    and scale(trim_scale(daily_payout_amount)) <= precision
    and daily_payout_amount * 10::numeric ^ precision <= 18446744073709551615);

-- A row is added by the user, and changes once: when the address is taken off. One that is
-- added again is a new row, and waits again. When it can be paid follows from added_at, from
-- the last acceptance of a restored database, and from a setting.
create table payout_address (
  address_id    bigint      generated always as identity,
  user_id       bigint      not null,
  chain_id      bigint      not null,
  address       text        not null,
  added_at      timestamptz not null default clock_timestamp(),
  removed_at    timestamptz,
  removed_by    text,        -- user, or the operator's name
  remove_reason text,        -- of an operator
  constraint one_number_per_address primary key (address_id),
  constraint address_of_a_user check (user_id > 0),
  constraint address_on_a_chain check (chain_id > 0),
  constraint address_is_canonical check (octet_length(address) = 42 and address ~ '^0x[0-9a-f]+$'),
  constraint removed_by_somebody check ((removed_at is null) = (coalesce(removed_by, '') = '')
    and (coalesce(removed_by, 'user') = 'user') = (coalesce(remove_reason, '') = ''))
);
create unique index one_listed_address on payout_address (user_id, chain_id, address) where removed_at is null;
create index addresses_of_user on payout_address (user_id, address_id);

-- While one is open the user can add no address.
create table payout_address_block (
  block_id    bigint      generated always as identity,
  user_id     bigint      not null,
  at          timestamptz not null default clock_timestamp(),
  by          text        not null,
  reason      text        not null,
  lifted_at   timestamptz,
  lifted_by   text,
  lift_reason text,
  constraint one_number_per_block primary key (block_id),
  constraint block_of_a_user check (user_id > 0),
  constraint blocked_by_a_person check (by <> '' and reason <> ''),
  constraint lifted_by_a_person check ((lifted_at is null) = (coalesce(lifted_by, '') = '')
    and (lifted_at is null) = (coalesce(lift_reason, '') = ''))
);
create unique index one_open_block on payout_address_block (user_id) where lifted_at is null;

-- +goose StatementBegin
create function keep_payout_address() returns trigger
language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.removed_at is not null
     or (new.address_id, new.user_id, new.chain_id, new.address, new.added_at)
        is distinct from (old.address_id, old.user_id, old.chain_id, old.address, old.added_at) then
    raise exception 'an address of a user is history: it is taken off once, and never changed' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end
$$;

create function keep_payout_address_block() returns trigger
language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.lifted_at is not null
     or (new.block_id, new.user_id, new.at, new."by", new.reason) is distinct from (old.block_id, old.user_id, old.at, old."by", old.reason) then
    raise exception 'a block of a user''s addresses is history: it is lifted once, and never changed' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end
$$;
-- +goose StatementEnd

create trigger keep_payout_address before update or delete on payout_address for each row execute function keep_payout_address();
create trigger keep_all_payout_addresses before truncate on payout_address for each statement execute function refuse_change();
create trigger keep_payout_address_block before update or delete on payout_address_block for each row execute function keep_payout_address_block();
create trigger keep_all_payout_address_blocks before truncate on payout_address_block for each statement execute function refuse_change();
create trigger not_while_moving before insert or update on payout_address for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on payout_address_block for each statement execute function refuse_while_moving();

select copy_grants('transfers_tb', to_table, array['SELECT', 'INSERT', 'UPDATE'])
  from unnest(array['payout_address', 'payout_address_block']) as to_table;

-- +goose Down
drop table payout_address_block;
drop table payout_address;
drop function keep_payout_address_block;
drop function keep_payout_address;
alter table assets_tb drop constraint day_of_payouts_is_an_amount, drop column daily_payout_amount;
