package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// fencedCommit is one commit with its result.
type fencedCommit struct {
	txmanager.Commit
	result txmanager.CommitResult
}

// fencedCommits are commits of different submitters. Each statement has the rows of all of them, and locks
// them in this order.
type fencedCommits []*fencedCommit

// newFencedCommit refuses an illegal transition.
func newFencedCommit(w txmanager.Commit) (*fencedCommit, error) {
	for _, m := range w.Transitions {
		if !m.From.MayBecome(m.To.State) {
			return nil, fmt.Errorf("transaction %s: %w", m.To.ID, txmanager.IllegalTransitionError{From: m.From, To: m.To.State})
		}
	}
	return &fencedCommit{Commit: w}, nil
}

// Commit implements [txmanager.Store]. Commits of different submitters that are made at the same time share
// one round trip and one transaction of the database: see [Store.commitTogether].
func (s *Store) Commit(ctx context.Context, w txmanager.Commit) (txmanager.CommitResult, error) {
	c, err := newFencedCommit(w)
	if err != nil {
		return txmanager.CommitResult{}, err
	}
	if c.isShareable() {
		return s.commits.Do(ctx, c)
	}
	return s.commitAlone(ctx, c)
}

// commitAlone commits c in one batch, one transaction, one round trip. If it releases the lease, the same
// round trip also queries the queue after the commit. The first statement is the fence. It keeps the lease
// row locked to the end, so that a takeover cannot happen between the check and the commit.
func (s *Store) commitAlone(ctx context.Context, c *fencedCommit) (txmanager.CommitResult, error) {
	c.result = txmanager.CommitResult{} // which a batch that was rolled back may have set
	b, all := new(pgx.Batch), fencedCommits{c}
	if c.LeaseEnd == txmanager.ReleaseUnlessRerun {
		b.Queue("begin")
	}
	b.Queue(requireLease, c.Lease.Submitter, c.Lease.Owner, c.Lease.Token)
	if leave := c.Cursor.CloseIncident; leave != nil {
		b.Queue(holdIdentity)
		b.Queue(sameIdentity, leave.Change)
		if !leave.Untouched {
			queueCarryOut(ctx, b)
		}
	}
	s.queueWrites(b, all)
	if c.LeaseEnd == txmanager.ReleaseUnlessRerun {
		b.Queue("commit")
		s.queueRecheck(b, all)
	}
	if err := s.send(ctx, b); err != nil {
		if results.Refusal(err).ConstraintName == "retired_takes_no_work" { // the submitter is retired, and the transaction new
			err = ErrRetired
		}
		return txmanager.CommitResult{}, err
	}
	return c.result, nil
}

// queueWrites adds what the commits write after the fence.
func (s *Store) queueWrites(b *pgx.Batch, all fencedCommits) {
	queueTransitions(b, all)
	queueAllocations(b, all)
	for _, c := range all {
		queueReservations(b, c.Lease, c.Reservations)
		queueMark(b, c.Lease, c.Mark, &c.result)
	}
	queueParts(b, storeVersion, versionColumns, partsOf(all, func(c *fencedCommit) []txmanager.Version { return c.Versions }))
	queueParts(b, countFees, feeColumns, partsOf(all, func(c *fencedCommit) []txmanager.FeeUse { return c.Fees }))
	for _, c := range all {
		if leave := c.Cursor.CloseIncident; leave != nil {
			s.queueCloseIncident(b, c.Lease, *leave)
		}
		if c.Cursor.OpenIncident != nil {
			b.Queue(openIncident, c.Lease.Submitter, c.Cursor.OpenIncident)
		}
	}
	queueParts(b, updateCursor, cursorColumns, partsOf(all, (*fencedCommit).cursorChanges))
	queueRelease(b, all)
}

// requireLease raises FP001 unless the lease is held, and then makes [isHeld] true of its records.
const requireLease = `select require_lease($1, $2, $3), set_config('fencepost.held', jsonb_build_object($1::text, $3::bigint)::text, true)`

// isHeld is true of a record w if this transaction has locked the lease row of its submitter, and found it
// held under the record's token. Without a fence before it, it is an error.
const isHeld = `(select current_setting('fencepost.held')::jsonb) -> w.submitter = to_jsonb(w.token)`

// fenced is a part of a commit, with the commit's lease.
type fenced[Part any] struct {
	lease lease.Lease
	part  *Part
}

// partsOf are the parts of all commits, in their order.
func partsOf[Part any](all fencedCommits, of func(*fencedCommit) []Part) (parts []fenced[Part]) {
	for _, c := range all {
		own := of(c)
		for i := range own {
			parts = append(parts, fenced[Part]{c.Lease, &own[i]})
		}
	}
	return parts
}

// fencedColumns are the columns of parts of commits: those of the lease, and their own.
func fencedColumns[Part any](own ...RecordColumn[fenced[Part]]) []RecordColumn[fenced[Part]] {
	return append([]RecordColumn[fenced[Part]]{
		RecordValue("submitter", "text", func(f *fenced[Part]) string { return f.lease.Submitter }),
		RecordValue("token", "bigint", func(f *fenced[Part]) int64 { return f.lease.Token }),
	}, own...)
}

// partValue is the column with a value of each part.
func partValue[Part, Value any](name, pgType string, value func(*Part) Value) RecordColumn[fenced[Part]] {
	return RecordValue(name, pgType, func(f *fenced[Part]) Value { return value(f.part) })
}

// queueParts adds the statement that writes the parts, unless there are none.
func queueParts[Part any](b *pgx.Batch, statement string, columns []RecordColumn[fenced[Part]], parts []fenced[Part]) {
	if len(parts) > 0 {
		b.Queue(statement, RecordArrays(nil, columns, parts)...)
	}
}

// count keeps in each commit's result the number that a statement returned for its submitter.
func (all fencedCommits) count(kept func(*txmanager.CommitResult) *int) func(pgx.Rows) error {
	var submitter string
	var n int
	return results.Each([]any{&submitter, &n}, func() { *kept(&all.of(submitter).result) = n })
}

// of is the commit of a submitter that a statement returned.
func (all fencedCommits) of(submitter string) *fencedCommit {
	i, _ := slices.BinarySearchFunc(all, submitter, func(c *fencedCommit, s string) int { return strings.Compare(c.Lease.Submitter, s) })
	return all[i]
}

func textOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// waitOver clears why a row waits.
const waitOver = `wait_cause = null, waiting_since = null, `

// storeVersion keeps a signed version for a bound nonce and claims its first broadcast. After
// a gas bump the transaction keeps its first broadcast time. A transaction in another state,
// or with a receipt, fails the whole commit by a division by zero.
var storeVersion = `
with w as (
  select * from ` + RecordSet(versionColumns, 0, "w") + ` where ` + isHeld + `
), signed as (
  update managed_tx m
     set state = 'SUBMITTED', sub_state = null, tx_hash = w.tx_hash,
         submit_attempts = 1, last_submit_at = statement_timestamp(),
         first_submit_at = case when w.extra_wei is null then statement_timestamp() else m.first_submit_at end,
         next_resubmit_at = statement_timestamp(), next_check_at = clock_timestamp(), next_bump_at = w.next_bump_at,
         last_error = null, ` + waitOver + `last_gas_params = w.gas_params::jsonb,
         requested_action = case when m.requested_action is distinct from w.done then m.requested_action end,
         event_sequence = m.event_sequence + 1,
         fencing_token = w.token, updated_at = clock_timestamp()
    from w
   where m.tx_id = w.tx_id and m.submitter is not distinct from w.submitter and m.state = w.from_state and m.receipt is null
  returning m.nonce, 1 + (select count(*) from tx_version v where v.tx_id = m.tx_id) as version, w.*
), kept as (
  insert into tx_version (tx_hash, tx_id, submitter, nonce, version, kind, fencing_token, extra_wei)
  select tx_hash, tx_id, submitter, nonce, version, kind, token, extra_wei from signed
), documented as (
  insert into tx_document (tx_id, name, body, bytes)
  select tx_id, 'version:' || version, gas_params::json, bytes from signed
)
select 1 / (case when (select count(*) from signed) = (select count(*) from w) then 1 else 0 end)`

// versionColumns are what a version gives to [storeVersion].
var versionColumns = fencedColumns(
	partValue("tx_id", "uuid", func(v *txmanager.Version) string { return v.Tx.ID }),
	partValue("from_state", "text", func(v *txmanager.Version) string { return string(v.From) }),
	partValue("done", "text", func(v *txmanager.Version) *string { return textOrNull(string(v.CompletedAction)) }),
	partValue("kind", "text", func(v *txmanager.Version) string { return string(v.Kind) }),
	partValue("tx_hash", "text", func(v *txmanager.Version) string { return v.Signed.Hash.String() }),
	partValue("bytes", "bytea", func(v *txmanager.Version) []byte { return v.Signed.Raw }),
	partValue("gas_params", "text", func(v *txmanager.Version) string { return gasText(v.Tx.Gas) }),
	partValue("extra_wei", "numeric", func(v *txmanager.Version) *string { return decimalOrNull(v.ExtraWei) }),
	partValue("next_bump_at", "timestamptz", func(v *txmanager.Version) *time.Time { return micros(v.Tx.NextBumpAt) }),
)

// countFees adds the fees that this transaction has bound or stored to the day's fees. It finds
// those rows by the fencing token. No other lease holder writes in between.
var countFees = `
insert into submitter_fee (submitter, number, at, tx_id, added_wei, total_wei)
select w.submitter, coalesce(last.number, 0) + row_number() over later, greatest(clock_timestamp(), last.at), w.tx_id, w.added_wei,
       coalesce(last.total_wei, 0) + sum(w.added_wei) over later
  from ` + RecordSet(feeColumns, 0, "w") + `
  join managed_tx m on m.tx_id = w.tx_id and m.fencing_token = w.token and m.nonce is not null
  left join lateral (select * from submitter_fee where submitter = w.submitter order by number desc limit 1) as last on true
 where ` + isHeld + `
window later as (partition by w.submitter order by w.place)`

// feeColumns are what a use of fees gives to [countFees].
var feeColumns = fencedColumns(
	partValue("tx_id", "uuid", func(u *txmanager.FeeUse) string { return u.TxID }),
	partValue("added_wei", "numeric", func(u *txmanager.FeeUse) string { return u.AddedWei.String() }),
)

// updateCursor derives the cursor's columns from the open transactions, and keeps what a chain
// observation showed about the account.
var updateCursor = `
update submitter_nonce_cursor c
   set in_flight_tx_id = low.tx_id, in_flight_nonce = low.nonce,
       in_flight_state = case
         when exists (select from protect_incident p where p.submitter = w.submitter and p.closed_at is null) then 'PROTECT'
         when low.nonce is null then 'IDLE' else 'IN_FLIGHT' end,
       final_block_number = greatest(c.final_block_number, nullif(w.final_head, 0)),
       final_blocks = coalesce(w.final_blocks::jsonb, c.final_blocks), blocked_callers = coalesce(w.blocked::jsonb, c.blocked_callers),
       suspected_violation = case when w.cleared then null else coalesce(w.suspicion::jsonb, c.suspected_violation) end,
       fencing_token = w.token, updated_at = clock_timestamp()
  from ` + RecordSet(cursorColumns, 0, "w") + `
  left join lateral (select nonce, tx_id from managed_tx where submitter = w.submitter and open order by nonce limit 1) as low on true
 where c.submitter = w.submitter and ` + isHeld + ``

// cursorColumns are what a change gives to [updateCursor].
var cursorColumns = fencedColumns(
	partValue("final_head", "bigint", func(c *txmanager.CursorChange) int64 { return Bigint(c.FinalHead) }),
	partValue("final_blocks", "text", func(c *txmanager.CursorChange) *string { return toJSON(c.FinalBlocks, c.FinalBlocks == nil) }),
	partValue("blocked", "text", func(c *txmanager.CursorChange) *string { return toJSON(c.HeldBackSince, c.HeldBackSince == nil) }),
	partValue("suspicion", "text", func(c *txmanager.CursorChange) *string { return toJSON(c.Suspect, c.Suspect == nil) }),
	partValue("cleared", "boolean", func(c *txmanager.CursorChange) bool { return c.ClearSuspected || c.OpenIncident != nil }),
)

// openIncident opens a PROTECT incident with its evidence, unless one is open.
const openIncident = `
insert into protect_incident (submitter, incident, evidence)
select s.submitter, 1 + coalesce((select max(incident) from protect_incident p where p.submitter = s.submitter), 0), $2::jsonb
  from submitter s
 where s.submitter = $1
    on conflict (submitter) where closed_at is null do nothing`

// cursorChanges is the change of the cursor; none if c changes the lease alone.
func (c *fencedCommit) cursorChanges() []txmanager.CursorChange {
	w := c.Commit
	w.LeaseEnd = txmanager.KeepLease
	if w.Empty() {
		return nil
	}
	return []txmanager.CursorChange{c.Cursor}
}

// toJSON is v as JSON, or nil. Commits give it types of plain fields, which cannot fail.
func toJSON(v any, null bool) *string {
	if null {
		return nil
	}
	text, _ := json.Marshal(v)
	return new(string(text))
}

// gasText is what a version may cost, as JSON.
func gasText(gas *txmanager.GasParams) string { return *toJSON(gas, false) }

// PrintableText is text without the characters that Postgres refuses.
func PrintableText(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "�")
}

// releaseLease ends lease sessions, unless the rerun flag is set. A session that ends anyway clears the
// flag and raises the token.
var releaseLease = `
update submitter_lease l
   set owner_node = '', rerun_requested = l.rerun_requested and not w.anyway,
       fencing_token = l.fencing_token + w.anyway::int, updated_at = clock_timestamp()
  from ` + RecordSet(releaseColumns, 0, "w") + `
 where l.submitter = w.submitter and l.fencing_token = w.token and (w.anyway or not l.rerun_requested)
   and ` + isHeld + `
returning l.submitter, l.fencing_token`

// releaseColumns are what the end of a session gives to [releaseLease].
var releaseColumns = fencedColumns(partValue("anyway", "boolean", func(e *txmanager.LeaseEnd) bool { return *e == txmanager.ReleaseAnyway }))

// queueRelease adds the ends of the lease sessions to a fenced batch.
func queueRelease(b *pgx.Batch, all fencedCommits) {
	ends := partsOf(all, func(c *fencedCommit) []txmanager.LeaseEnd {
		if c.LeaseEnd == txmanager.KeepLease {
			return nil
		}
		return []txmanager.LeaseEnd{c.LeaseEnd}
	})
	if len(ends) == 0 {
		return
	}
	var submitter string
	var token int64
	b.Queue(releaseLease, RecordArrays(nil, releaseColumns, ends)...).Query(results.Each([]any{&submitter, &token}, func() {
		done := &all.of(submitter).result
		done.Released, done.Token = true, token
	}))
}

// recheckQueue runs after a release has committed. A create that saw the lease held, or the
// window full, enqueued no task: it relied on this query to find its intent. A query in the
// release's own transaction would not see that intent.
var recheckQueue = `
select w.submitter, q.queued, s.status <> 'ACTIVE'
  from unnest($1::text[]) as w (submitter)
  join submitter s on s.submitter = w.submitter
 cross join lateral (
       with recursive ` + openQueue("w.submitter", "$3", "$2") + `
       select count(*) as queued from (select from open limit $2) as few) as q`

// queueRecheck adds that query after the commit.
func (s *Store) queueRecheck(b *pgx.Batch, all fencedCommits) {
	var submitters []string
	for _, c := range all {
		if c.LeaseEnd == txmanager.ReleaseUnlessRerun {
			submitters = append(submitters, c.Lease.Submitter)
		}
	}
	if len(submitters) == 0 {
		return
	}
	var submitter string
	var queued int
	var suspended bool
	b.Queue(recheckQueue, submitters, txmanager.AdvanceNowQueue, s.opts.MACKeys).Query(results.Each([]any{&submitter, &queued, &suspended}, func() {
		done := &all.of(submitter).result
		done.Queued, done.Suspended = queued, suspended
	}))
}
