-- Why a transaction waits, as one of a closed set of causes.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
-- The cause is set with the decision to wait, and cleared when the wait is over. Causes that follow from other
-- columns or from the submitter are not stored. Neither column is in an index. The constraints apply to rows
-- written from now on: no earlier row has a cause, so none has to be read.
alter table managed_tx
  add column wait_cause    text,
  add column waiting_since timestamptz,
  add constraint wait_cause_is_known check (wait_cause in
    ('BALANCE', 'GAS_ESTIMATE', 'FEE_CEILING', 'OWN_BOUNDS', 'POLICY', 'DEFERRED', 'PREDECESSOR', 'HANDLER', 'SIGNER', 'MAC_KEY',
     'MAC_SERVICE', 'NODES', 'NODES_DIFFER', 'SUSPECTED', 'ACCOUNT_CODE', 'LOST_NONCES', 'GAS_BUMP', 'NODE_REFUSES', 'OPERATOR')) not valid,
  add constraint wait_has_a_start check ((wait_cause is null) = (waiting_since is null)) not valid;
-- +goose StatementEnd
