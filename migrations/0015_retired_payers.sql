-- A retired account pays for no asset, a payer's window stays bounded in the database too, and a retirement that is
-- refused keeps nobody waiting.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
-- As before, but the open transfers, which have no index by payer, are read only for a payer that no asset names.
create or replace function open_work(of_submitter text) returns text language sql stable set search_path = public, pg_temp as $$
  select concat_ws(', ',
    case when exists (select from managed_tx m where m.submitter = of_submitter and m.queued) then 'queued intents' end,
    case when exists (select from managed_tx m where m.submitter = of_submitter and m.open) then 'open transactions' end,
    case when exists (select from protect_incident p where p.submitter = of_submitter and p.closed_at is null) then 'an open PROTECT incident' end,
    case when exists (select from foreign_hold h where h.submitter = of_submitter and h.ended_at is null) then 'foreign transactions without a decision' end,
    case when exists (select from submitter_nonce_cursor c where c.submitter = of_submitter and c.suspected_violation is not null) then 'a suspected violation' end,
    case when not is_accepted_database() then 'a database that is not accepted' end,
    case when exists (select from assets_tb a where a.payout_submitter = of_submitter) then 'an asset that names it as its payer'
         when not exists (select from submitter s where s.submitter = of_submitter and 'transfer' = any (s.callers)) then null
         when exists (select from transfers_tb t where t.open and t.payout_submitter = of_submitter) then 'open payouts' end)
$$;

create or replace function guard_submitter() returns trigger language plpgsql set search_path = public, pg_temp as $$
declare
  work text;
begin
  if tg_op = 'DELETE' or (new.submitter, new.start_nonce) is distinct from (old.submitter, old.start_nonce) then
    raise exception 'submitter % cannot be deleted, and its start nonce cannot change', old.submitter
      using errcode = 'FP003', constraint = 'start_never_changes';
  end if;
  if old.status = 'RETIRED' and (new.status, new.signer, new.max_in_flight) is distinct from (old.status, old.signer, old.max_in_flight) then
    raise exception 'submitter % is retired for ever', old.submitter using errcode = 'FP003', constraint = 'retired_for_ever';
  end if;
  -- A backup may be older than the change. A release from it fills a payer's nonces up to the widest window that it knows.
  if new.max_in_flight > old.max_in_flight and 'transfer' = any (new.callers)
     and new.max_in_flight > coalesce((select max(c.from_max_in_flight) from submitter_change c where c.submitter = new.submitter), 0) then
    raise exception 'payer % never had so wide a window', new.submitter using errcode = 'FP003', constraint = 'payer_window_is_known';
  end if;
  if new.status = 'RETIRED' and old.status <> 'RETIRED' then
    work := open_work(new.submitter); -- the lock would keep creates waiting
    if work = '' then
      perform pg_advisory_xact_lock(hashtext('retirement'), retirement_lock(new.submitter));
      work := open_work(new.submitter);
    end if;
    if work <> '' then
      raise exception 'submitter % has open work', new.submitter using errcode = 'FP016', constraint = 'retired_without_work', detail = work;
    end if;
  end if;
  return new;
end $$;

-- No asset names a retired payer. A retirement waits for an asset that is being stored, and then sees it.
create trigger refuse_retired_payer_of_asset after insert or update of payout_submitter on assets_tb for each row
  when (new.payout_submitter is not null) execute function refuse_retired_payer();
-- +goose StatementEnd
