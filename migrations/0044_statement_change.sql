-- A statement about a payout is about what was lost by then: after a later restore it
-- says nothing. And an intent that is held beside a foreign transaction may come to be
-- held for another that does the same.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- The last row of authority_change when the statement was made; 0 where it is about a
-- transaction that is CONFIRMED.
alter table payout_statement add column change bigint not null default 0;
alter table payout_statement disable trigger keep_statement;
update payout_statement s
   set change = coalesce((select max(c.id) from authority_change c where c.at <= s.at), 0)
 where not s.of_confirmed;
alter table payout_statement enable trigger keep_statement;
create trigger keep_statement_change before update on payout_statement for each row when (old.change <> new.change) execute function refuse_change();
drop index one_standing_statement;
create unique index one_standing_statement on payout_statement (req_id, of_confirmed, change) where withdrawn_at is null;

-- +goose StatementBegin
create or replace function refuse_doubtful_payout() returns trigger
language plpgsql as $$
begin
  if exists (select from transfers_tb t, authority_change c
              where t.req_id = new.request_id and (c.at >= t.created_at or c.transfers_upto >= t.transfer_id))
     and not exists (select from payout_statement s
                      where s.req_id = new.request_id and s.acted_at is not null and not s.of_confirmed
                        and s.change = (select coalesce(max(c.id), 0) from authority_change c)) then
    raise exception 'payout % is in doubt: it may have been paid by what the database has lost', new.request_id
      using errcode = 'FP012', constraint = 'payout_in_doubt';
  end if;
  return null;
end
$$;
-- +goose StatementEnd

alter table foreign_hold drop constraint one_hold_per_tx;
create unique index one_hold_per_tx on foreign_hold (tx_id) where ended_at is null and tx_id is not null;

-- +goose Down
drop index one_hold_per_tx;
alter table foreign_hold disable trigger keep_hold;
update foreign_hold h set tx_id = null -- what was held for several keeps the last
 where h.ended_at is not null and h.outcome <> 'MATCHED' and exists (select from foreign_hold o where o.tx_id = h.tx_id and o.nonce > h.nonce);
alter table foreign_hold enable trigger keep_hold;
alter table foreign_hold add constraint one_hold_per_tx unique (tx_id);
drop index one_standing_statement;
create unique index one_standing_statement on payout_statement (req_id, of_confirmed) where withdrawn_at is null;
drop trigger keep_statement_change on payout_statement;
alter table payout_statement drop column change;
-- +goose StatementBegin
create or replace function refuse_doubtful_payout() returns trigger
language plpgsql as $$
begin
  if exists (select from transfers_tb t, authority_change c
              where t.req_id = new.request_id and (c.at >= t.created_at or c.transfers_upto >= t.transfer_id))
     and not exists (select from payout_statement s where s.req_id = new.request_id and s.acted_at is not null and not s.of_confirmed) then
    raise exception 'payout % is in doubt: it may have been paid by what the database has lost', new.request_id
      using errcode = 'FP012', constraint = 'payout_in_doubt';
  end if;
  return null;
end
$$;
-- +goose StatementEnd
