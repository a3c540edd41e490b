-- What a policy bounds of gas and fees, and the fees that were signed for, counted at their
-- worst.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- Amounts are in wei, a null is no limit. A tip of 0 or a gas limit below 21000 would let
-- no transaction pass.
alter table submitter_policy
  add column max_fee_wei      numeric(78) constraint fee_is_an_amount check (max_fee_wei >= 0),
  add column max_tip_wei      numeric(78) constraint tip_is_an_amount check (max_tip_wei >= 1),
  add column max_gas          bigint      constraint gas_is_an_amount check (max_gas >= 21000),
  add column max_day_fees_wei numeric(78) constraint day_of_fees_is_an_amount check (max_day_fees_wei >= 0);
alter table submitter_policy drop column limited;
alter table submitter_policy add column limited boolean not null generated always as
  (max_value_wei is not null or max_day_wei is not null or max_per_minute is not null or targets is not null
   or max_fee_wei is not null or max_tip_wei is not null or max_gas is not null or max_day_fees_wei is not null) stored;

-- One row for each time that a nonce is bound, or that a later version may cost more,
-- with the sum so far: what 24 hours have used is one subtraction. Only the holder of the
-- submitter's lease writes it, and only while a policy bounds the fees of a day.
create table submitter_fee (
  submitter submitter_id not null,
  number    bigint       not null check (number > 0),
  at        timestamptz  not null,
  tx_id     uuid         not null,
  added_wei numeric(90)  not null check (added_wei >= 0),
  total_wei numeric      not null,
  constraint one_fee_each primary key (submitter, number)
);
create index fees_in_time on submitter_fee (submitter, at, number);

create trigger keep_fees before update or delete on submitter_fee for each row execute function refuse_change();
create trigger keep_all_fees before truncate on submitter_fee for each statement execute function refuse_change();
select copy_grants('managed_tx', 'submitter_fee', array['SELECT', 'INSERT']);

-- +goose Down
drop table submitter_fee;
alter table submitter_policy drop column limited;
alter table submitter_policy
  drop column max_fee_wei, drop column max_tip_wei, drop column max_gas, drop column max_day_fees_wei;
alter table submitter_policy add column limited boolean not null generated always as
  (max_value_wei is not null or max_day_wei is not null or max_per_minute is not null or targets is not null) stored;
