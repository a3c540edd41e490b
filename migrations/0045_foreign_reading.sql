-- How far the blocks of a chain were read for foreign transactions of a submitter, in an
-- episode of PROTECT, where the chain's nodes keep no counts that are old enough.

-- +goose Up
set local lock_timeout = '5s';
set local statement_timeout = '60s';

create table foreign_reading (
  submitter   submitter_id not null,
  episode     integer      not null, -- of PROTECT, in which they are read
  start_block bigint       not null,
  block       bigint       not null, -- all blocks after start_block, up to this one, were read
  final_block bigint       not null, -- the last final block, when it was last asked for
  again       bigint,                -- how far they were read once more; null: they are not read again now
  passes      integer      not null default 0, -- how often all of them were read
  ended_at    timestamptz,           -- when all final blocks had been read, the last time; null: not yet
  moved_at    timestamptz  not null default clock_timestamp(),
  constraint one_foreign_reading_per_submitter primary key (submitter),
  constraint foreign_reading_of_a_submitter foreign key (submitter) references submitter,
  constraint foreign_reading_is_in_order check (episode > 0 and start_block >= 0 and block >= start_block and final_block >= 0
    and passes >= 0 and coalesce(again between 0 and block, true))
);

select copy_grants('managed_tx', 'foreign_reading', array['SELECT', 'INSERT', 'UPDATE']);

-- +goose Down
drop table foreign_reading;
