-- What an operator says became of a call that the trading core has forgotten, and
-- alerts that an operator has taken in hand.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- outcome is what the operator said; line is the line of the core's journal that
-- proves it, null where the check of conservation does.
alter table transfer_resolution
  add column outcome text,
  add column line    numeric(20, 0),
  add constraint outcome_is_known check (outcome in ('applied', 'not_applied')),
  add constraint outcome_of_a_call check (outcome is null or op <> 'cancel'),
  add constraint line_proves_an_outcome check (line is null or outcome is not null and line > 0);

-- +goose StatementBegin
create or replace function keep_resolution() returns trigger
language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.answered_at is not null
     or (new.id, new.transfer_id, new.op, new."by", new.reason, new.at, new.outcome, new.line)
        is distinct from (old.id, old.transfer_id, old.op, old."by", old.reason, old.at, old.outcome, old.line) then
    raise exception 'what an operator did is history: it is never changed' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end
$$;
-- +goose StatementEnd

-- MON-001 and MON-002 are silent for the transfer until the time, while it stays in
-- the state. The newest row counts.
create table transfer_acknowledgement (
  id          bigint      generated always as identity,
  transfer_id bigint      not null,
  state       smallint    not null,
  by          text        not null,
  reason      text        not null,
  at          timestamptz not null default clock_timestamp(),
  until       timestamptz not null,
  constraint one_number_per_acknowledgement primary key (id),
  constraint acknowledged_transfer_exists foreign key (transfer_id) references transfers_tb,
  constraint acknowledged_in_flight check (state in (30, -20)),
  constraint acknowledged_by_a_person check (by <> '' and reason <> ''),
  constraint acknowledged_for_a_time check (until > at and until <= at + interval '31 days')
);
create index acknowledgements_of_transfer on transfer_acknowledgement (transfer_id, id);
create trigger keep_acknowledgement before update or delete on transfer_acknowledgement for each row execute function refuse_change();
create trigger keep_all_acknowledgements before truncate on transfer_acknowledgement for each statement execute function refuse_change();
select copy_grants('managed_tx', 'transfer_acknowledgement', array['SELECT', 'INSERT']);

-- +goose Down
drop table transfer_acknowledgement;
-- +goose StatementBegin
create or replace function keep_resolution() returns trigger
language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.answered_at is not null
     or (new.id, new.transfer_id, new.op, new."by", new.reason, new.at)
        is distinct from (old.id, old.transfer_id, old.op, old."by", old.reason, old.at) then
    raise exception 'what an operator did is history: it is never changed' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end
$$;
-- +goose StatementEnd
alter table transfer_resolution drop column line, drop column outcome;
