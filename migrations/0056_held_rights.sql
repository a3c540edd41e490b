-- A held intent may have run before the restore. Only a role that may add intents lets it go
-- on: the functions that accept intents repeat it for its caller, or an operator decides. A
-- role that cancels has the same column, and may only hold.

-- +goose Up
set local lock_timeout = '5s';

-- +goose StatementBegin
create function keep_held() returns trigger
language plpgsql as $$
begin
  if not has_table_privilege('public.managed_tx', 'insert') then
    raise exception 'intent % is held, and % may not let it go on', new.tx_id, current_user using errcode = '42501', constraint = 'held_until_decided';
  end if;
  return new;
end
$$;
-- +goose StatementEnd
create trigger keep_held before update of held on managed_tx for each row
  when (old.held and not new.held and new.state = 'QUEUED') execute function keep_held();

-- +goose Down
drop trigger keep_held on managed_tx;
drop function keep_held();
