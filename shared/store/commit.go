package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Commit implements [txmanager.Store]: one batch, one transaction, one round trip. If it
// releases the lease, the same round trip also queries the queue after the commit. The first
// statement is the fence. It keeps the lease row locked to the end, so that a takeover cannot
// happen between the check and the commit.
func (s *Store) Commit(ctx context.Context, w txmanager.Commit) (txmanager.CommitResult, error) {
	var done txmanager.CommitResult
	b := new(pgx.Batch)
	if w.LeaseEnd == txmanager.ReleaseUnlessRerun {
		b.Queue("begin")
	}
	b.Queue(`select require_lease($1, $2, $3)`, w.Lease.Submitter, w.Lease.Owner, w.Lease.Token)
	queueIdentity(b, w.Cursor.CloseIncident)
	if w.Cursor.CloseIncident != nil && !w.Cursor.CloseIncident.Untouched {
		queueCarryOut(ctx, b)
	}
	if err := queueTransitions(b, w.Lease, w.Transitions, &done); err != nil {
		return done, err
	}
	queueAllocations(b, w.Lease, w.Allocations, &done)
	queueReservations(b, w.Lease, w.Reservations)
	queueMark(b, w.Lease, w.Mark, &done)
	queueVersions(b, w.Lease, w.Versions)
	queueFees(b, w.Lease, w.Fees)
	if len(w.Transitions)+len(w.Allocations)+len(w.Reservations)+len(w.Versions) > 0 || w.Mark != nil || !w.Cursor.Empty() {
		queueCursor(b, w.Lease, w.Cursor)
	}
	s.queueNameEpoch(b, w)
	queueRelease(b, w.Lease, w.LeaseEnd, &done)
	if w.LeaseEnd == txmanager.ReleaseUnlessRerun {
		b.Queue("commit")
		s.queueRecheck(b, w.Lease, &done)
	}
	return done, s.send(ctx, b)
}

// handlerFailed is the reason why m's handler got a placeholder, if there is one.
const handlerFailed = `select d.reason from tx_decision d where d.tx_id = m.tx_id and d.by = 'handler' order by d.id desc limit 1`

// transitionEvents is the number of events that the transition from m to w makes, as make_events
// counts them. There is one for its receipt, one for the list of blocks on top of it, and one
// for its failure.
const transitionEvents = `(w.receipt::jsonb ->> 'blockHash' is distinct from m.receipt ->> 'blockHash')::int
         + (coalesce(w.confirmations::jsonb, '[]') <> coalesce(m.confirmations, '[]') or w.state = 'CONFIRMED')::int
         + (w.state = 'FAILED')::int`

// applyTransitions finds each transaction by its key. It compares the submitter in a form that no index
// serves: an index on the submitter would read all of its transactions.
var applyTransitions = `
update managed_tx m
   set state = w.state, sub_state = nullif(w.sub_state, ''), deferred_until_nonce = w.deferred_until_nonce,
       last_submit_at = w.last_submit_at, next_resubmit_at = w.next_resubmit_at,
       submit_attempts = w.submit_attempts, last_receipt_check_at = w.last_check_at,
       next_check_at = w.next_check_at,
       last_error = case when w.sub_state = 'PLACEHOLDER' then w.last_error || coalesce(': ' || (` + handlerFailed + `), '')
                         else nullif(w.last_error, '') end,
       receipt = w.receipt::jsonb, confirmations = w.confirmations::jsonb,
       last_gas_params = case when w.state not in ('CONFIRMED', 'FAILED') then m.last_gas_params end,
       first_submit_at = w.first_submit_at, next_bump_at = w.next_bump_at,
       last_mempool_diag = coalesce(w.diagnosis::jsonb, m.last_mempool_diag),
       recorded_nonce = coalesce(w.recorded, m.recorded_nonce),
       blocked_since = w.blocked_since, deferred_at = w.deferred_at,
       requested_action = case when w.state in ('CONFIRMED', 'FAILED') or m.requested_action = w.served then null
                      when m.recorded_nonce is null and w.recorded is not null then w.decided
                      else coalesce(m.requested_action, w.decided) end,
       tx_hash = coalesce(w.mined, m.tx_hash), replaced_by_hash = w.replaced_by,
       confirmed_at = case when w.state in ('CONFIRMED', 'FAILED') and w.receipt is not null then clock_timestamp() end,
       event_sequence = m.event_sequence + ` + transitionEvents + `,
       fencing_token = $1, updated_at = clock_timestamp()
  from ` + recordSet(transitionColumns, 2, "w") + `
 where m.tx_id = w.tx_id and m.state = w.from_state and not (m.queued and m.held) and m.submitter is not distinct from $2`

// queueTransitions adds the transitions as one statement. Each is a compare-and-set on the
// state that it was decided in. An illegal transition is refused here.
func queueTransitions(b *pgx.Batch, l lease.Lease, moves []txmanager.Transition, done *txmanager.CommitResult) error {
	if len(moves) == 0 {
		return nil
	}
	var receipts receiptDocuments
	records := make([]transitionRecord, len(moves))
	for i, m := range moves {
		if !m.From.MayBecome(m.To.State) {
			return fmt.Errorf("transaction %s: %w", m.To.ID, txmanager.IllegalTransitionError{From: m.From, To: m.To.State})
		}
		var err error
		if records[i], err = recordOf(m); err != nil {
			return err
		}
		receipts.add(m.To)
	}
	b.Queue(applyTransitions, arrays([]any{l.Token, l.Submitter}, transitionColumns, records)...).Exec(func(tag pgconn.CommandTag) error {
		done.Transitioned = int(tag.RowsAffected())
		return nil
	})
	if len(receipts.id) > 0 {
		b.Queue(insertReceipts, receipts.id, receipts.name, receipts.body)
	}
	for _, m := range moves {
		if d := m.Decision; d != nil {
			b.Queue(`insert into tx_decision (tx_id, action, by, reason) values ($1, $2, $3, $4)`, m.To.ID, d.Action, d.By, PrintableText(d.Reason))
		}
	}
	return nil
}

// transitionRecord is a transition with the columns that are made from more than one of its fields.
type transitionRecord struct {
	txmanager.Transition
	receipt, confirmations, diagnosis *string // JSON
	decided, mined, replacedBy        *string
	recorded                          *int64
}

func recordOf(m txmanager.Transition) (r transitionRecord, err error) {
	r.Transition = m
	if got := m.To.Receipt; got != nil {
		r.receipt, err = toJSON(receiptFacts{got.TxHash, got.BlockNumber, got.BlockHash, got.Succeeded}, false)
		if err != nil {
			return r, err
		}
	}
	if r.confirmations, err = toJSON(m.To.Confirmations, m.To.Confirmations == nil); err != nil {
		return r, err
	}
	if r.diagnosis, err = toJSON(m.To.Diagnosis, m.To.Diagnosis == nil); err != nil {
		return r, err
	}
	r.mined, r.replacedBy = minedHashes(m.To)
	if m.Decision != nil {
		r.decided = textOrNull(string(m.Decision.Action))
	}
	if m.To.Recorded != nil {
		r.recorded = optional(&m.To.Recorded.Nonce)
	}
	return r, nil
}

// transitionColumns are what a transition gives to [applyTransitions].
var transitionColumns = []recordColumn[transitionRecord]{
	valueOf("tx_id", "uuid", func(r *transitionRecord) string { return r.To.ID }),
	valueOf("from_state", "text", func(r *transitionRecord) string { return string(r.From) }),
	valueOf("state", "text", func(r *transitionRecord) string { return string(r.To.State) }),
	valueOf("sub_state", "text", func(r *transitionRecord) string { return string(r.To.Sub) }),
	valueOf("deferred_until_nonce", "bigint", func(r *transitionRecord) *int64 { return optional(r.To.DeferredUntilNonce) }),
	valueOf("first_submit_at", "timestamptz", func(r *transitionRecord) *time.Time { return micros(r.To.FirstSubmitAt) }),
	valueOf("last_submit_at", "timestamptz", func(r *transitionRecord) *time.Time { return micros(r.To.LastSubmitAt) }),
	valueOf("next_resubmit_at", "timestamptz", func(r *transitionRecord) *time.Time { return micros(r.To.NextResubmitAt) }),
	valueOf("submit_attempts", "int", func(r *transitionRecord) int { return r.To.SubmitAttempts }),
	valueOf("last_check_at", "timestamptz", func(r *transitionRecord) *time.Time { return micros(r.To.LastCheckAt) }),
	valueOf("next_check_at", "timestamptz", func(r *transitionRecord) *time.Time { return micros(r.To.NextCheckAt) }),
	valueOf("next_bump_at", "timestamptz", func(r *transitionRecord) *time.Time { return micros(r.To.NextBumpAt) }),
	valueOf("blocked_since", "timestamptz", func(r *transitionRecord) *time.Time { return micros(r.To.HeldBackSince) }),
	valueOf("deferred_at", "timestamptz", func(r *transitionRecord) *time.Time { return micros(r.To.DeferredAt) }),
	valueOf("last_error", "text", func(r *transitionRecord) string { return PrintableText(r.To.LastError) }),
	valueOf("receipt", "text", func(r *transitionRecord) *string { return r.receipt }),
	valueOf("confirmations", "text", func(r *transitionRecord) *string { return r.confirmations }),
	valueOf("diagnosis", "text", func(r *transitionRecord) *string { return r.diagnosis }),
	valueOf("served", "text", func(r *transitionRecord) *string { return textOrNull(string(r.CompletedAction)) }),
	valueOf("decided", "text", func(r *transitionRecord) *string { return r.decided }),
	valueOf("mined", "text", func(r *transitionRecord) *string { return r.mined }),
	valueOf("replaced_by", "text", func(r *transitionRecord) *string { return r.replacedBy }),
	valueOf("recorded", "bigint", func(r *transitionRecord) *int64 { return r.recorded }),
}

// insertReceipts keeps the nodes' receipts. A receipt that is already stored stays.
const insertReceipts = `
insert into tx_document (tx_id, name, body)
select d.tx_id, d.name, d.body::json
  from unnest($1::uuid[], $2::text[], $3::text[]) as d (tx_id, name, body)
    on conflict do nothing`

// receiptFacts are what a transaction keeps of its receipt.
type receiptFacts struct {
	TxHash      txmanager.Hash `json:"txHash"`
	BlockNumber uint64         `json:"blockNumber"`
	BlockHash   txmanager.Hash `json:"blockHash"`
	Succeeded   bool           `json:"succeeded"`
}

// receiptDocuments are receipts as their nodes gave them.
type receiptDocuments struct{ id, name, body []string }

// add keeps the document of t's receipt, if there is one.
func (d *receiptDocuments) add(t txmanager.Tx) {
	if r := t.Receipt; r != nil && len(r.Document) > 0 {
		d.id, d.name, d.body = append(d.id, t.ID), append(d.name, "receipt:"+r.BlockHash.String()), append(d.body, string(r.Document))
	}
}

// minedHashes is the hash of the version that ended t, and the same hash again if it is not
// the first version's. Both are nil while t is open.
func minedHashes(t txmanager.Tx) (hash, replacedBy *string) {
	if !t.State.Terminal() || t.Receipt == nil {
		return nil, nil
	}
	hash = textOrNull(t.Receipt.TxHash.String())
	if len(t.Versions) > 0 && t.Versions[0] != t.Receipt.TxHash && t.Recorded == nil {
		replacedBy = hash
	}
	return hash, replacedBy
}

func textOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// allocateTxs binds the next nonces to queued transactions, named by id. Two facts keep a nonce from
// being given twice or skipped:
//
//   - The rows are locked before they are numbered. Of the rows still queued, it binds only the
//     unbroken run from the first on. A row whose validUntil has passed once it is locked ends it.
//   - A row gets its nonce only if that is the cursor's plus its number. The same statement advances
//     the cursor, whose row the lease's holder alone writes, by the number of bound rows.
//
// As in [applyTransitions], rows are found by their keys alone.
var allocateTxs = `
with want as (
  select * from unnest($3::uuid[], $4::bigint[], $5::text[], $6::bytea[], $7::text[]) with ordinality
      as w (tx_id, nonce, tx_hash, bytes, gas_params, place)
), locked as (
  select m.tx_id, w.nonce, w.tx_hash, w.bytes, w.gas_params, w.place, m.valid_until
    from managed_tx m
    join want w using (tx_id)
   where m.submitter is not distinct from $1 and m.state = 'QUEUED' and not m.held
   order by w.place
     for update of m
), numbered as (
  select *, row_number() over (order by place) as number
    from locked
   where valid_until is null or valid_until > clock_timestamp()
), bound as (
  update managed_tx m
     set nonce = n.nonce, prev_nonce = nullif(n.nonce, s.start_nonce) - 1,
         ` + setBound("n.tx_hash", "n.tx_hash", "n.gas_params::jsonb") + `
         fencing_token = $2, updated_at = clock_timestamp()
    from numbered n, submitter s, submitter_nonce_cursor c
   where m.tx_id = n.tx_id and s.submitter = $1 and c.submitter = $1
     and n.number = n.place and n.nonce = c.next_nonce + n.number - 1
     and not exists (select from protect_incident p where p.submitter = $1 and p.closed_at is null)
  returning m.tx_id, m.submitter, m.nonce, n.tx_hash, n.bytes, n.gas_params
), moved as (
  update submitter_nonce_cursor
     set next_nonce = next_nonce + (select count(*) from bound)
   where submitter = $1
), ` + keepFirst(firstVersion{"bound", "tx_hash", "bytes", "gas_params", "$2", " where tx_hash is not null"}) + `
select count(*) from bound`

// setBound sets what a row has once its nonce is bound. With a signed version, whose hash is not
// null, it claims the first broadcast.
func setBound(typedHash, hash, gas string) string {
	sent := `case when ` + hash + ` is not null then clock_timestamp() end`
	return `state = case when ` + typedHash + ` is null then 'IN_FLIGHT' else 'SUBMITTED' end,
         tx_hash = ` + hash + `, last_gas_params = ` + gas + `,
         submit_attempts = case when ` + hash + ` is null then 0 else 1 end,
         first_submit_at = ` + sent + `, last_submit_at = ` + sent + `, next_resubmit_at = ` + sent + `,
         next_check_at = clock_timestamp(), last_error = null, deferred_until_nonce = null, blocked_since = null, deferred_at = null,
         event_sequence = m.event_sequence + (` + typedHash + ` is not null)::int,`
}

// firstVersion has the expressions of the first signed version of rows.
type firstVersion struct{ from, hash, bytes, gas, token, where string }

// keepFirst stores the first signed version of rows before anything of it is sent.
func keepFirst(v firstVersion) string {
	return `kept as (
  insert into tx_version (tx_hash, tx_id, submitter, nonce, version, kind, fencing_token)
  select ` + v.hash + `, tx_id, submitter, nonce, 1, 'ORIGINAL', ` + v.token + `
    from ` + v.from + v.where + `
), documented as (
  insert into tx_document (tx_id, name, body, bytes)
  select tx_id, 'version:1', ` + v.gas + `::json, ` + v.bytes + `
    from ` + v.from + v.where + `
)`
}

func queueAllocations(b *pgx.Batch, l lease.Lease, all []txmanager.Allocation, done *txmanager.CommitResult) {
	if len(all) == 0 {
		return
	}
	if all[0].FromReservation != "" {
		queueReuse(b, l, all[0], done)
		return
	}
	var ids, gas []string
	var nonces []int64
	var hashes []*string
	var raws [][]byte
	for _, a := range all {
		params, _ := json.Marshal(a.Tx.Gas) // its own type: cannot fail
		ids, gas, nonces = append(ids, a.Tx.ID), append(gas, string(params)), append(nonces, Bigint(a.Nonce))
		var hash *string
		var raw []byte
		if a.Signed != nil {
			hash, raw = new(a.Signed.Hash.String()), a.Signed.Raw
		}
		hashes, raws = append(hashes, hash), append(raws, raw)
	}
	b.Queue(allocateTxs, l.Submitter, l.Token, ids, nonces, hashes, raws, gas).QueryRow(func(row pgx.Row) error {
		return row.Scan(&done.Allocated)
	})
}

// storeVersion keeps a signed version for a bound nonce and claims its first broadcast. After
// a gas bump the transaction keeps its first broadcast time. A transaction in another state,
// or with a receipt, yields no tx_id to insert. That fails the whole batch.
const storeVersion = `
with signed as (
  update managed_tx
     set state = 'SUBMITTED', sub_state = null, tx_hash = @tx_hash,
         submit_attempts = 1, last_submit_at = clock_timestamp(),
         first_submit_at = case when @extra_wei::text is null then clock_timestamp() else first_submit_at end,
         next_resubmit_at = clock_timestamp(), next_check_at = clock_timestamp(), next_bump_at = @next_bump_at,
         last_error = null, last_gas_params = @gas_params::text::jsonb,
         requested_action = case when requested_action is distinct from @done then requested_action end,
         event_sequence = event_sequence + 1,
         fencing_token = @token, updated_at = clock_timestamp()
   where tx_id = @tx_id and submitter = @submitter and state = @from and receipt is null
  returning tx_id, nonce
), kept as (
  insert into tx_version (tx_hash, tx_id, submitter, nonce, version, kind, fencing_token, extra_wei)
  values (@tx_hash, (select tx_id from signed), @submitter, (select nonce from signed),
          1 + (select count(*) from tx_version where tx_id = @tx_id), @kind, @token, @extra_wei::text::numeric)
  returning tx_id, version
)
insert into tx_document (tx_id, name, body, bytes)
select tx_id, 'version:' || version, @gas_params::text::json, @bytes from kept`

func queueVersions(b *pgx.Batch, l lease.Lease, all []txmanager.Version) {
	for _, v := range all {
		params, _ := json.Marshal(v.Tx.Gas) // its own type: cannot fail
		var extra *string
		if v.ExtraWei != nil {
			extra = new(v.ExtraWei.String())
		}
		b.Queue(storeVersion, NamedArgs{
			"submitter": l.Submitter, "token": l.Token, "tx_id": v.Tx.ID, "from": v.From, "done": textOrNull(string(v.CompletedAction)),
			"tx_hash": v.Signed.Hash.String(), "bytes": v.Signed.Raw, "gas_params": string(params), "kind": v.Kind,
			"extra_wei": extra, "next_bump_at": micros(v.Tx.NextBumpAt),
		})
	}
}

// countFees adds the fees that this commit has bound or stored to the day's fees. It finds
// those rows by the fencing token. No other lease holder writes in between.
const countFees = `
with last as (
  select coalesce(max(f.number), 0) as number, coalesce(max(f.total_wei), 0) as total_wei, greatest(clock_timestamp(), max(f.at)) as at
    from (select * from submitter_fee where submitter = $1 order by number desc limit 1) as f
)
insert into submitter_fee (submitter, number, at, tx_id, added_wei, total_wei)
select $1, l.number + row_number() over (order by u.place), l.at, u.tx_id, u.added_wei,
       l.total_wei + sum(u.added_wei) over (order by u.place)
  from unnest($3::uuid[], $4::numeric[]) with ordinality as u (tx_id, added_wei, place)
  join managed_tx m on m.tx_id = u.tx_id and m.fencing_token = $2 and m.nonce is not null
 cross join last l`

func queueFees(b *pgx.Batch, l lease.Lease, all []txmanager.FeeUse) {
	if len(all) == 0 {
		return
	}
	var ids, added []string
	for _, u := range all {
		ids, added = append(ids, u.TxID), append(added, u.AddedWei.String())
	}
	b.Queue(countFees, l.Submitter, l.Token, ids, added)
}

// updateCursor derives the cursor's columns from the open transactions, and keeps what a chain
// observation showed about the account.
const updateCursor = `
update submitter_nonce_cursor c
   set in_flight_tx_id = low.tx_id, in_flight_nonce = low.nonce,
       in_flight_state = case
         when exists (select from protect_incident p where p.submitter = $1 and p.closed_at is null) then 'PROTECT'
         when low.nonce is null then 'IDLE' else 'IN_FLIGHT' end,
       final_block_number = greatest(c.final_block_number, nullif($3::bigint, 0)),
       final_blocks = coalesce($6::jsonb, c.final_blocks), blocked_callers = coalesce($7::jsonb, c.blocked_callers),
       suspected_violation = case when $5 then null else coalesce($4::jsonb, c.suspected_violation) end,
       fencing_token = $2, updated_at = clock_timestamp()
  from (select min(nonce) as nonce, (array_agg(tx_id order by nonce))[1] as tx_id
          from (select nonce, tx_id from managed_tx
                 where submitter = $1 and open
                 order by nonce limit 1) as first) as low
 where c.submitter = $1`

// openIncident opens a PROTECT incident with its evidence, unless one is open.
const openIncident = `
insert into protect_incident (submitter, incident, evidence)
select s.submitter, 1 + coalesce((select max(incident) from protect_incident p where p.submitter = s.submitter), 0), $2::jsonb
  from submitter s
 where s.submitter = $1
    on conflict (submitter) where closed_at is null do nothing`

func queueCursor(b *pgx.Batch, l lease.Lease, c txmanager.CursorChange) {
	var suspicion, final, heldBack []byte // plain fields: marshalling them cannot fail
	if c.Suspect != nil {
		suspicion, _ = json.Marshal(c.Suspect)
	}
	if c.FinalBlocks != nil {
		final, _ = json.Marshal(c.FinalBlocks)
	}
	if c.HeldBackSince != nil {
		heldBack, _ = json.Marshal(c.HeldBackSince)
	}
	if c.CloseIncident != nil {
		queueCloseIncident(b, l, *c.CloseIncident)
	}
	if c.OpenIncident != nil {
		evidence, _ := json.Marshal(c.OpenIncident)
		b.Queue(openIncident, l.Submitter, evidence)
	}
	b.Queue(updateCursor, l.Submitter, l.Token, Bigint(c.FinalHead), suspicion, c.ClearSuspected || c.OpenIncident != nil, final, heldBack)
}

func toJSON(v any, null bool) (*string, error) {
	if null {
		return nil, nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write as JSON: %w", err)
	}
	s := string(text)
	return &s, nil
}

func toHex(b []byte) string { return "0x" + hex.EncodeToString(b) }

// PrintableText is text without the characters that Postgres refuses.
func PrintableText(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "�")
}

func optional(n *uint64) *int64 {
	if n == nil {
		return nil
	}
	v := Bigint(*n)
	return &v
}
