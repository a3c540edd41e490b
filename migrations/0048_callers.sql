-- Changes of callers. A caller that was taken off a submitter's list may have a successor,
-- whose the answers are that are stored under the old name: no row of a transaction is
-- rewritten.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- By each name that may stand with stored transactions, and is not their caller's present
-- one, the present one. A chain is one step long: what the old one had is the new one's too.
alter table submitter
  add column succeeded jsonb not null default '{}'
    constraint succeeded_are_names check (jsonb_typeof(succeeded) = 'object');
create index submitter_succeeded on submitter (submitter) where succeeded <> '{}';

alter table submitter_change
  add column from_callers text[],
  add column to_callers   text[],
  add column succeeds     jsonb,
  drop constraint change_is_known,
  add constraint change_is_known check (action in ('SUSPEND', 'RESUME', 'POLICY', 'SIGNER', 'CALLERS')) not valid,
  add constraint callers_of_callers check ((action = 'CALLERS') = (from_callers is not null)
    and (action = 'CALLERS') = (to_callers is not null) and (action = 'CALLERS') = (succeeds is not null)) not valid;
alter table submitter_change validate constraint change_is_known;
alter table submitter_change validate constraint callers_of_callers;

-- +goose Down
alter table submitter_change
  drop constraint callers_of_callers,
  drop constraint change_is_known,
  add constraint change_is_known check (action in ('SUSPEND', 'RESUME', 'POLICY', 'SIGNER')) not valid,
  drop column from_callers,
  drop column to_callers,
  drop column succeeds;
drop index submitter_succeeded;
alter table submitter drop column succeeded;
