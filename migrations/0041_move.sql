-- A planned move of the database to another server: an upgrade, or a switch to a
-- replica. From when it is expected until it is confirmed or called off nothing is
-- written that a copy would have to have: no lease is granted, nothing is taken on. The
-- database itself refuses, so that no process that has not heard of it goes on.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

create table authority_move (
  id            bigint      generated always as identity primary key,
  mark          text        not null, -- the last one of the server that is left
  from_system   bigint      not null,
  from_timeline integer     not null,
  by            text        not null check (by <> ''),
  reason        text        not null check (reason <> ''),
  at            timestamptz not null default clock_timestamp(),
  outcome       text        check (outcome in ('CONFIRMED', 'CANCELLED')),
  ended_at      timestamptz,
  ended_by      text        check (ended_by <> ''),
  ended_reason  text        check (ended_reason <> ''),
  to_system     bigint,
  to_timeline   integer,
  after_change  bigint,     -- the last row of authority_change when it was confirmed; 0: there was none
  constraint move_ends_by_somebody check ((ended_at is null) = (outcome is null) and (ended_at is null) = (ended_by is null)
    and (ended_at is null) = (ended_reason is null)),
  constraint confirmed_on_a_server check (coalesce(outcome = 'CONFIRMED', false) = (to_system is not null)
    and (to_system is null) = (to_timeline is null) and (to_system is null) = (after_change is null))
);
create unique index one_open_move on authority_move ((ended_at is null)) where ended_at is null;
create trigger keep_move before update on authority_move for each row when (old.ended_at is not null) execute function refuse_change();
create trigger keep_move_row before delete on authority_move for each row execute function refuse_change();
create trigger keep_all_moves before truncate on authority_move for each statement execute function refuse_change();

select copy_grants('managed_tx', 'authority_move', array['SELECT']);

-- Whoever expects the move locks these tables: who writes has written before, or looks
-- here after the commit. fencepost.move is on where the move itself is written.
-- +goose StatementBegin
create function refuse_while_moving() returns trigger
language plpgsql as $$
begin
  if exists (select from authority_move where ended_at is null) and current_setting('fencepost.move', true) is distinct from 'on' then
    raise exception 'the database is about to be moved: nothing is written to % until migrate confirm-move or migrate cancel-move', tg_table_name
      using errcode = 'FP013', constraint = 'move_expected';
  end if;
  return null;
end
$$;
-- +goose StatementEnd

create trigger not_while_moving before insert or update on submitter_lease for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on managed_tx for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on tx_version for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on transfers_tb for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on submitter for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on submitter_policy for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on payout_statement for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on transfer_resolution for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on transfer_halt for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on foreign_hold for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on event_counter for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on conservation_adjustment for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on submitter_nonce_cursor for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on submitter_change for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on tx_decision for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on payout_confirmed for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on payout_proof for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on transfer_operations for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert or update on balances_tb for each statement execute function refuse_while_moving();
create trigger not_while_moving before insert on authority_mark for each statement execute function refuse_while_moving();

-- +goose Down
drop trigger not_while_moving on submitter_lease;
drop trigger not_while_moving on managed_tx;
drop trigger not_while_moving on tx_version;
drop trigger not_while_moving on transfers_tb;
drop trigger not_while_moving on submitter;
drop trigger not_while_moving on submitter_policy;
drop trigger not_while_moving on payout_statement;
drop trigger not_while_moving on transfer_resolution;
drop trigger not_while_moving on transfer_halt;
drop trigger not_while_moving on foreign_hold;
drop trigger not_while_moving on event_counter;
drop trigger not_while_moving on conservation_adjustment;
drop trigger not_while_moving on submitter_nonce_cursor;
drop trigger not_while_moving on submitter_change;
drop trigger not_while_moving on tx_decision;
drop trigger not_while_moving on payout_confirmed;
drop trigger not_while_moving on payout_proof;
drop trigger not_while_moving on transfer_operations;
drop trigger not_while_moving on balances_tb;
drop trigger not_while_moving on authority_mark;
drop function refuse_while_moving;
drop table authority_move;
