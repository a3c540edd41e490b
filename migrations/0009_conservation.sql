-- Conservation: the check that no money appears and none is lost. It reads the ledgers' journals and the
-- payers' payments on the chain, and stores how far it read, the sums, and its findings.

-- +goose Up
-- +goose StatementBegin
-- A generation is a series of runs that continue each other. A full run begins a new one, which replaces the
-- current one at its end. Each step that is stored raises the version.
create table conservation_checkpoint (
  generation bigint      not null generated always as identity,
  version    bigint      not null default 0,
  epoch      text        not null, -- of the database: the cursors are not valid in another one
  cursors    jsonb       not null default '{}',
  is_current boolean     not null default false,
  over       boolean     not null default true, -- no run continues it
  begun_at   timestamptz not null default clock_timestamp(),
  stored_at  timestamptz not null default clock_timestamp(),
  constraint one_checkpoint_per_generation primary key (generation),
  constraint version_counts_up check (version >= 0)
);
create unique index one_current_checkpoint on conservation_checkpoint (is_current) where is_current;

-- Moves a checkpoint by compare-and-set. A run with an old version fails, and stores nothing.
create function conservation_advance(of_generation bigint, from_version bigint, to_cursors jsonb) returns void language plpgsql as $$
begin
  update conservation_checkpoint
     set version = version + 1, cursors = to_cursors, stored_at = clock_timestamp()
   where generation = of_generation and version = from_version;
  if not found then
    raise exception 'another run has moved checkpoint % from version %', of_generation, from_version using errcode = 'FP008';
  end if;
end $$;

-- The sum that a side's journal applied to an account, up to the cursors.
create table conservation_sum (
  generation bigint         not null,
  side       text           not null,
  user_id    bigint         not null,
  asset_id   integer        not null,
  units      numeric(40, 0) not null,
  constraint one_sum_per_account primary key (generation, side, user_id, asset_id),
  constraint sum_of_a_generation foreign key (generation) references conservation_checkpoint,
  constraint sum_of_a_side check (side in ('FUNDING', 'SPOT', 'CHAIN'))
) with (fillfactor = 70);

-- The journals' entries for one req_id, and the transfer's row once it is terminal. open: the check still
-- misses an entry.
create table conservation_request (
  generation bigint         not null,
  req_id     text           not null,
  user_id    bigint         not null,
  asset_id   integer        not null,
  units      numeric(20, 0) not null,
  debit      text,
  deposit    text,
  refund     text,
  type       smallint       not null, -- of the transfer; 0: it has no row
  final      smallint       not null, -- its final state; 0: it has none
  open       boolean        not null,
  constraint one_evidence_per_request primary key (generation, req_id),
  constraint evidence_of_a_generation foreign key (generation) references conservation_checkpoint,
  constraint evidence_of_sides check (debit in ('FUNDING', 'SPOT', 'CHAIN') and deposit in ('FUNDING', 'SPOT', 'CHAIN')
    and refund in ('FUNDING', 'SPOT', 'CHAIN')),
  constraint evidence_is_final_or_not check (final in (0, 40, -10, -30))
) with (fillfactor = 70);
create index requests_open on conservation_request (generation, req_id) where open;

-- The precision of an asset in a side's journal. More than one row is a contradiction.
create table conservation_scale (
  generation bigint   not null,
  side       text     not null,
  asset_id   integer  not null,
  precision  smallint not null,
  constraint one_scale_each primary key (generation, side, asset_id, precision),
  constraint scale_of_a_generation foreign key (generation) references conservation_checkpoint,
  constraint scale_of_a_side check (side in ('FUNDING', 'SPOT', 'CHAIN'))
);

-- The findings of all runs.
create table conservation_finding (
  finding_id bigint      not null generated always as identity,
  at         timestamptz not null default clock_timestamp(),
  generation bigint      not null,
  kind       text        not null,
  side       text,
  req_id     text,
  user_id    bigint      not null,
  asset_id   integer     not null,
  expected   text        not null,
  got        text        not null,
  evidence   jsonb       not null,
  constraint one_number_per_finding primary key (finding_id),
  constraint finding_is_named check (kind ~ '^[A-Z][A-Z_]*$')
);
create trigger guard_findings before update or delete on conservation_finding for each row execute function refuse_change();
create trigger guard_findings_truncate before truncate on conservation_finding for each statement execute function refuse_change();

-- Findings that no check has cleared yet, so that the same is not found twice.
create table conservation_standing (
  key        text   not null,
  finding_id bigint not null,
  seen       bigint not null default 0, -- the newest generation when it was last found
  expected   text,                      -- as the last check saw it; null: as in the finding
  got        text,
  constraint stands_once primary key (key),
  constraint what_stands_was_found foreign key (finding_id) references conservation_finding
);

-- An adjustment of a balance that is not the sum of its journal: once for a finding, by exactly its
-- difference. While applied_at is null the ledger has not confirmed it, and it can be requested again.
create table conservation_adjustment (
  id         bigint         not null generated always as identity,
  finding_id bigint         not null,
  side       text           not null,
  op         text           not null,
  user_id    bigint         not null,
  asset_id   integer        not null,
  units      numeric(20, 0) not null,
  by         text           not null,
  reason     text           not null,
  at         timestamptz    not null default clock_timestamp(),
  applied_at timestamptz,
  constraint one_number_per_adjustment primary key (id),
  constraint adjusted_finding_exists foreign key (finding_id) references conservation_finding,
  constraint adjustment_of_a_side check (side in ('FUNDING', 'SPOT')),
  constraint adjustment_is_known check (op in ('journal_credit', 'journal_debit', 'balance_credit', 'balance_debit')),
  constraint adjusted_by_a_person check (by <> '' and reason <> ''),
  constraint adjustment_moves_something check (units between 1 and 18446744073709551615)
);
create unique index one_adjustment_per_finding on conservation_adjustment (finding_id) where applied_at is not null;

-- An adjustment changes once: when it is applied.
create function guard_adjustment() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.applied_at is not null
     or (new.id, new.finding_id, new.side, new.op, new.user_id, new.asset_id, new.units, new."by", new.reason, new.at)
        is distinct from (old.id, old.finding_id, old.side, old.op, old.user_id, old.asset_id, old.units, old."by", old.reason, old.at) then
    raise exception 'an adjustment changes once, when it is applied' using errcode = 'FP004', constraint = 'history_never_changes';
  end if;
  return new;
end $$;
create trigger guard_adjustment before update or delete on conservation_adjustment for each row execute function guard_adjustment();
create trigger guard_adjustments_truncate before truncate on conservation_adjustment for each statement execute function refuse_change();
create trigger refuse_while_moving before insert or update on conservation_adjustment for each statement execute function refuse_while_moving();

-- How far the chain was read for the payments of a payer: all final blocks after start_block, up to block. If
-- the hash of a block that was read has changed, another pass reads everything again.
create table conservation_chain (
  submitter   submitter_id not null,
  start_block bigint       not null,
  block       bigint       not null,
  block_hash  text         not null,
  sent        bigint       not null, -- transactions up to block, at least
  final_block bigint       not null, -- the last final block, when it was last asked for
  tokens      text[]       not null default '{}',
  pass        integer      not null default 1,
  reorged_block   jsonb,                 -- the block that changed; a full check clears it
  read_at     timestamptz  not null default clock_timestamp(), -- when all final blocks had been read
  constraint one_reading_per_payer primary key (submitter),
  constraint reading_of_a_submitter foreign key (submitter) references submitter,
  constraint reading_is_in_order check (start_block >= 0 and block >= start_block and sent >= 0 and pass > 0)
);

-- A payment that was found on the chain. log_index is that of the token's Transfer event, and -1 where the
-- native coin moved.
create table conservation_payment (
  submitter    submitter_id  not null,
  tx_hash      text          not null,
  log_index    integer       not null,
  pass         integer       not null, -- in which it was last read
  block_number bigint        not null,
  block_hash   text          not null,
  token        text,                   -- null: the native coin
  recipient    text,                   -- null: a contract was deployed
  amount       numeric(78,0) not null,
  found_at     timestamptz   not null default clock_timestamp(),
  outcome      text,                   -- null: no record explains it yet
  req_id       text,                   -- of the transfer that it paid
  constraint one_row_per_payment primary key (submitter, tx_hash, log_index),
  constraint payment_of_a_reading foreign key (submitter) references conservation_chain,
  constraint payment_has_canonical_addresses check (coalesce(is_address(split_part(submitter, ':', 1), token), true)
    and coalesce(is_address(split_part(submitter, ':', 1), recipient), true)),
  constraint payment_is_some_money check (amount > 0 and log_index >= -1 and block_number >= 0),
  constraint payment_outcome_is_known check (outcome is null or outcome = 'PAID' and req_id is not null or outcome = 'OTHER')
);
create index payments_unexplained on conservation_payment (submitter, block_number) where outcome is null;
create index payments_of_request on conservation_payment (req_id) where req_id is not null;

-- Payouts that are COMMITTED. due is the block by which the payment must have been read.
create table conservation_owed (
  req_id varchar(26) not null,
  due    bigint,
  paid   boolean     not null default false,
  constraint one_row_per_owed primary key (req_id)
);
create index owed_and_not_found on conservation_owed (req_id) where not paid;
-- +goose StatementEnd
