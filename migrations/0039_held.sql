-- Held intents: an intent in the queue that no nonce is given to. The acceptance of a
-- restored database holds the whole queue, since what was decided after the backup is
-- not known; a repeated post by the caller, or an operator, lets an intent go on.
-- Whatever breaks off here may be run again.

-- +goose NO TRANSACTION
-- +goose Up
set lock_timeout = '5s';
set statement_timeout = '60s';

-- Not valid: no row is held yet, and none need be read to know that.
alter table managed_tx
  add column if not exists held boolean not null default false,
  drop constraint if exists held_has_no_nonce,
  add constraint held_has_no_nonce check (not held or state in ('QUEUED', 'CONFIRMED', 'FAILED')) not valid;
alter table tx_decision
  drop constraint if exists tx_decision_action_check,
  add constraint tx_decision_action_check
    check (action in ('CANCEL', 'WAIT', 'REBROADCAST', 'REPLACE', 'PLACEHOLDER', 'PROCEED')) not valid;

-- The queue is read past what is held. Where this breaks off the index that is not
-- finished is left behind invalid, and tx_queue may be missing until it is run again.
set statement_timeout = '60min';
drop index concurrently if exists tx_queue_held;
create index concurrently tx_queue_held on managed_tx (submitter, held, seq) where queued;
drop index concurrently if exists tx_queue;
alter index tx_queue_held rename to tx_queue;
reset statement_timeout;
reset lock_timeout;

-- +goose Down
set statement_timeout = '60min';
drop index concurrently if exists tx_queue_seq;
create index concurrently tx_queue_seq on managed_tx (submitter, seq) where queued;
drop index concurrently if exists tx_queue;
alter index tx_queue_seq rename to tx_queue;
reset statement_timeout;
alter table tx_decision
  drop constraint tx_decision_action_check,
  add constraint tx_decision_action_check check (action in ('CANCEL', 'WAIT', 'REBROADCAST', 'REPLACE', 'PLACEHOLDER')) not valid;
alter table managed_tx drop column held;
