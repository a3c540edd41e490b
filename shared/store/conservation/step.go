package conservation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/transfer"
)

const addSums = `
insert into conservation_sum (generation, side, user_id, asset_id, units)
select $1, $2, user_id, asset_id, units::numeric
  from unnest($3::bigint[], $4::integer[], $5::text[]) as moved (user_id, asset_id, units)
    on conflict on constraint one_sum_per_account do update set units = conservation_sum.units + excluded.units`

var putEvidence = `
insert into conservation_request (generation, req_id, user_id, asset_id, units, debit, deposit, refund, type, final, open)
select $1, req_id, user_id, asset_id, units, nullif(debit, ''), nullif(deposit, ''), nullif(refund, ''), type, final, open
  from ` + store.RecordSet(evidenceColumns, 1, "known") + `
    on conflict on constraint one_evidence_per_request do update
       set debit = excluded.debit, deposit = excluded.deposit, refund = excluded.refund,
           type = excluded.type, final = excluded.final, open = excluded.open`

var addScales = `
insert into conservation_scale (generation, side, asset_id, precision)
select $1, side, asset_id, precision
  from ` + store.RecordSet(scaleColumns, 1, "said") + `
    on conflict on constraint one_scale_each do nothing`

// putFinding stores a finding, unless it is open already; then it stores that it still is, with the
// present values. An account that was adjusted after the run began may have been read before: the
// next run evaluates it.
const putFinding = `
with again as (
  update conservation_standing
     set seen = (select max(generation) from conservation_checkpoint), expected = @expected, got = @got
   where key = @key and (seen < (select max(generation) from conservation_checkpoint) or (expected, got) is distinct from (@expected::text, @got::text))
), found as (
  insert into conservation_finding (generation, kind, side, req_id, user_id, asset_id, expected, got, evidence)
  select @generation, @kind, nullif(@side, ''), nullif(@req_id, ''), @user_id, @asset_id, @expected, @got, @evidence::jsonb
   where not exists (select from conservation_standing where key = @key)
     and not exists (select from conservation_adjustment a
                      where @kind = 'BALANCE_DIFFERS' and a.side = @side and a.user_id = @user_id and a.asset_id = @asset_id and coalesce(a.applied_at, a.at) >= @began)
  returning finding_id
)
insert into conservation_standing (key, finding_id, seen, expected, got)
select @key, finding_id, (select max(generation) from conservation_checkpoint), @expected, @got from found
    on conflict on constraint stands_once do nothing
returning finding_id`

// recovered closes balances and scales that were not found again.
const recovered = `
delete from conservation_standing
 where (key like 'BALANCE\_DIFFERS|%' or key like 'PRECISION\_DIFFERS|%') and not key = any ($1)`

// adjusted closes findings that are open although they were adjusted before the run began ($2): the
// balance differs again, which is a new finding.
const adjusted = `
delete from conservation_standing s
 where s.key = any ($1) and exists (select from conservation_adjustment a where a.finding_id = s.finding_id and a.applied_at < $2)`

const openHalts = `
select distinct scope, coalesce(user_id, 0), coalesce(asset_id, 0) from transfer_halt where resumed_at is null`

// halt stops everything if it is about an unknown asset.
const halt = `
insert into transfer_halt (scope, user_id, asset_id, evidence)
select case when a.known then h.scope else 'all' end,
       case when a.known and h.scope = 'user_asset' then h.user_id end,
       case when a.known and h.scope <> 'all' then h.asset_id end, $4::jsonb
  from (select $1::text, $2::bigint, $3::integer) as h (scope, user_id, asset_id),
       lateral (select exists (select from assets_tb where asset_id = h.asset_id)) as a (known)
returning scope, coalesce(user_id, 0), coalesce(asset_id, 0)`

// recoveredChain closes findings about the chain that were not found again.
const recoveredChain = `
delete from conservation_standing
 where (key like 'PAYMENT\_%' or key like 'PAID\_TWICE|%' or key like 'TRANSFER\_WITHOUT\_PAYMENT|%') and not key = any ($1)`

// Store stores a step. Without findings it is one round trip. Otherwise another one adds the halts, in
// the same commit.
func (b *Book) Store(ctx context.Context, s conservation.Step) (out conservation.Stored, err error) {
	out.Checkpoint = s.From
	out.Checkpoint.Version++
	out.Checkpoint.Cursors = s.Cursors
	batch := new(pgx.Batch)
	if len(s.Found) == 0 {
		batch.Queue("begin")
	}
	if err := queueStep(batch, s, &out); err != nil {
		return out, err
	}
	if len(s.Found) == 0 {
		batch.Queue("commit")
		err = b.db.SendBatch(ctx, batch).Close()
	} else {
		err = pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
			if err := tx.SendBatch(ctx, batch).Close(); err != nil {
				return err
			}
			return putHalts(ctx, tx, s, &out)
		})
	}
	if pg := results.Refusal(err); pg.Code == supersededCode {
		err = fmt.Errorf("%s: %w", pg.Message, conservation.ErrSuperseded)
	}
	if err != nil {
		return conservation.Stored{}, fmt.Errorf("store a step of the check: %w", err)
	}
	return out, nil
}

// queueStep adds everything that a step writes but the halts.
func queueStep(b *pgx.Batch, s conservation.Step, out *conservation.Stored) error {
	b.Queue(`select conservation_advance($1, $2, $3)`, s.From.Generation, s.From.Version, s.Cursors)
	for _, side := range slices.Sorted(maps.Keys(s.Moved)) {
		queueSums(b, s.From.Generation, side, s.Moved[side])
	}
	if len(s.Evidence) > 0 {
		b.Queue(putEvidence, store.RecordArrays([]any{s.From.Generation}, evidenceColumns, slices.Collect(maps.Values(s.Evidence)))...)
	}
	if len(s.Scales) > 0 {
		b.Queue(addScales, store.RecordArrays([]any{s.From.Generation}, scaleColumns, s.Scales)...)
	}
	if s.Lost {
		b.Queue(`update conservation_checkpoint set over = true where generation = $1`, s.From.Generation)
	}
	keys := []string{}
	for _, f := range s.Found {
		keys = append(keys, f.Key())
	}
	if s.Verdict && len(keys) > 0 {
		b.Queue(adjusted, keys, s.From.Began)
	}
	for _, f := range s.Found {
		if err := queueFinding(b, s.From, f, out); err != nil {
			return err
		}
	}
	if s.Verdict {
		b.Queue(recovered, keys)
	}
	if s.Chain {
		b.Queue(recoveredChain, keys)
	}
	if len(s.Owed) > 0 {
		b.Queue(`insert into conservation_owed (req_id) select unnest($1::text[]) on conflict on constraint one_row_per_owed do nothing`, s.Owed)
	}
	return nil
}

func queueSums(b *pgx.Batch, generation int64, side conservation.Side, moved map[conservation.Account]conservation.Sum) {
	var users []int64
	var assets []int32
	var units []string
	for at, change := range moved {
		users, assets, units = append(users, at.UserID), append(assets, at.AssetID), append(units, change.String())
	}
	if len(users) > 0 {
		b.Queue(addSums, generation, side, users, assets, units)
	}
}

// evidenceColumns are what evidence gives to [putEvidence].
var evidenceColumns = []store.RecordColumn[*conservation.Evidence]{
	store.RecordValue("req_id", "text", func(e **conservation.Evidence) string { return (*e).ReqID }),
	store.RecordValue("user_id", "bigint", func(e **conservation.Evidence) int64 { return (*e).Account.UserID }),
	store.RecordValue("asset_id", "integer", func(e **conservation.Evidence) int32 { return (*e).Account.AssetID }),
	store.RecordValue("units", "numeric", func(e **conservation.Evidence) string { return strconv.FormatUint((*e).Units, 10) }),
	store.RecordValue("debit", "text", func(e **conservation.Evidence) string { return string((*e).Debit) }),
	store.RecordValue("deposit", "text", func(e **conservation.Evidence) string { return string((*e).Deposit) }),
	store.RecordValue("refund", "text", func(e **conservation.Evidence) string { return string((*e).Refund) }),
	store.RecordValue("type", "smallint", func(e **conservation.Evidence) transfer.Type { return (*e).Type }),
	store.RecordValue("final", "smallint", func(e **conservation.Evidence) transfer.State { return (*e).Final }),
	store.RecordValue("open", "boolean", func(e **conservation.Evidence) bool { return (*e).Open() }),
}

// scaleColumns are what a scale gives to [addScales].
var scaleColumns = []store.RecordColumn[conservation.Scale]{
	store.RecordValue("side", "text", func(s *conservation.Scale) string { return string(s.Side) }),
	store.RecordValue("asset_id", "integer", func(s *conservation.Scale) int32 { return s.AssetID }),
	store.RecordValue("precision", "smallint", func(s *conservation.Scale) int16 { return int16(s.Precision) }),
}

func queueFinding(b *pgx.Batch, from conservation.Checkpoint, f conservation.Finding, out *conservation.Stored) error {
	text, err := json.Marshal(f.Evidence)
	if err != nil {
		return fmt.Errorf("store the evidence of %s: %w", f, err)
	}
	b.Queue(putFinding, store.NamedArgs{
		"generation": from.Generation,
		"key":        f.Key(),
		"kind":       f.Kind,
		"side":       f.Side,
		"req_id":     f.ReqID,
		"user_id":    f.Account.UserID,
		"asset_id":   f.Account.AssetID,
		"expected":   f.Expected,
		"got":        f.Got,
		"evidence":   text,
		"began":      from.Began,
	}).QueryRow(func(row pgx.Row) error {
		var id int64
		err := row.Scan(&id)
		if err == nil {
			out.Fresh = append(out.Fresh, f)
		}
		return results.Missing(err, nil)
	})
	return nil
}

// putHalts opens the halts for the new findings, beside any open ones: resuming an earlier halt does
// not resume these.
func putHalts(ctx context.Context, tx pgx.Tx, s conservation.Step, out *conservation.Stored) error {
	open, err := results.All(ctx, tx, scanHalt, openHalts)
	if err != nil {
		return err
	}
	for _, h := range conservation.Halts(s.Mode, open, out.Fresh, s.Halts) {
		made, err := results.One(ctx, tx, scanHalt, halt, h.Scope, h.Account.UserID, h.Account.AssetID, whyHalted(h.Findings))
		if err != nil {
			return err
		}
		made.Findings = h.Findings
		out.Halts = append(out.Halts, made)
	}
	return nil
}

// shown bounds the findings that a halt's evidence repeats; all are in their own table.
const shown = 20

func whyHalted(fresh []conservation.Finding) any {
	lines := []string{}
	for _, f := range fresh[:min(len(fresh), shown)] {
		lines = append(lines, f.String())
	}
	return map[string]any{"what": "conservation is violated", "findings": len(fresh), "first": lines}
}

func scanHalt(row pgx.CollectableRow) (h conservation.Halt, err error) {
	err = row.Scan(&h.Scope, &h.Account.UserID, &h.Account.AssetID)
	return h, err
}
