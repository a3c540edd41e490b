-- An asset of a retired payer can be suspended, and acts on webhook endpoints wait for a planned move.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
-- An asset that keeps its payer can be changed, so that it can be suspended.
drop trigger refuse_retired_payer_of_asset on assets_tb;
create trigger refuse_retired_payer_of_asset after insert on assets_tb for each row
  when (new.payout_submitter is not null) execute function refuse_retired_payer();
create trigger refuse_another_retired_payer after update of payout_submitter on assets_tb for each row
  when (new.payout_submitter is not null and new.payout_submitter is distinct from old.payout_submitter) execute function refuse_retired_payer();

create trigger refuse_while_moving before insert on webhook_act for each statement execute function refuse_while_moving();

-- Whether an asset has entries: without it each change of an asset would read all acts.
create index money_of_asset on account_act (asset_id) where kind <> 'STATUS';
-- +goose StatementEnd
