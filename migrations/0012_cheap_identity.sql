-- Which server this is does not change within a session: it is read from the
-- control file once, not with every statement. The timeline is, each time.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- +goose StatementBegin
create or replace function is_authority() returns boolean
language plpgsql as $$
declare
  server text := current_setting('fencepost.system', true);
begin
  if coalesce(server, '') = '' then
    select system_identifier::text into server from pg_control_system();
    perform set_config('fencepost.system', server, false);
  end if;
  return (select a.system_identifier::text = server and a.timeline_id = current_timeline() from authority a);
end
$$;
-- +goose StatementEnd

-- +goose Down
create or replace function is_authority() returns boolean
language sql as $$
  select a.system_identifier = s.system_identifier and a.timeline_id = current_timeline()
    from authority a, pg_control_system() s
$$;
