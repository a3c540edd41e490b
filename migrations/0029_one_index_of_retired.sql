-- Retired submitters are found by the index of 0024, which has their status first. With a second index for them the
-- planner chose either, by chance. And a function that nothing calls since 0028.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
drop index retired_submitters;
drop function is_transfer_transition(smallint, smallint);
-- +goose StatementEnd
