-- The trace of the request that made a transaction, where that is traced: what is
-- done for it later, by any process, goes on in the same one. It is the trace's id,
-- a span's and the flags, and null for all that is not traced.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

-- Not valid: no row has one yet, and none need be read to know that.
alter table managed_tx
  add column trace bytea,
  add constraint trace_is_a_span check (octet_length(trace) = 25) not valid;

-- +goose Down
set local lock_timeout = '5s';
set local statement_timeout = '60s';
alter table managed_tx drop column trace;
