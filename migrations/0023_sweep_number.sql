-- The number of the sweep whose gauges are shown.

-- +goose Up
-- +goose StatementBegin
-- Each sweep takes a number. The process that took the last one shows the gauges of the deployment, and no other does.
create sequence sweep_number;
-- +goose StatementEnd
