package store

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// allocateTxs binds the next nonces of each submitter to queued transactions, named by id. Two facts keep
// a nonce from being given twice or skipped:
//
//   - The rows are locked before they are numbered. Of a submitter's rows still queued, it binds only the
//     unbroken run from the first on. A row whose validUntil has passed once it is locked ends it.
//   - A row gets its nonce only if that is its submitter's cursor plus its number. The same statement
//     advances the cursor, whose row the lease's holder alone writes, by the number of bound rows.
//
// As in [applyTransitions], rows are found by their keys alone.
var allocateTxs = `
with want as (
  select *, row_number() over (partition by submitter order by place) as wanted
    from ` + RecordSet(allocationColumns, 0, "w") + `
   where ` + isHeld + `
), locked as (
  select w.*, m.valid_until
    from want w
    join managed_tx m using (tx_id)
   where m.submitter is not distinct from w.submitter and m.state = 'QUEUED' and not m.held
   order by w.place
     for update of m
), numbered as (
  select *, row_number() over (partition by submitter order by place) as number
    from locked
   where valid_until is null or valid_until > clock_timestamp()
), bound as (
  update managed_tx m
     set nonce = n.nonce, prev_nonce = nullif(n.nonce, s.start_nonce) - 1,
         ` + setBound("n.tx_hash", "n.tx_hash", "n.gas_params::jsonb") + `
         fencing_token = n.token, updated_at = clock_timestamp()
    from numbered n
    join submitter s on s.submitter = n.submitter
    join submitter_nonce_cursor c on c.submitter = n.submitter
   where m.tx_id = n.tx_id and n.number = n.wanted and n.nonce = c.next_nonce + n.number - 1
     and (select p.incident from protect_incident p where p.submitter = n.submitter and p.closed_at is null) is null
  returning m.tx_id, m.submitter, m.nonce, n.tx_hash, n.bytes, n.gas_params, n.token
), counted as (
  select submitter, count(*) as bound from bound group by submitter
), moved as (
  update submitter_nonce_cursor c
     set next_nonce = c.next_nonce + n.bound
    from counted n
   where c.submitter = n.submitter
), ` + keepFirst(firstVersion{"bound", "tx_hash", "bytes", "gas_params", "token", " where tx_hash is not null"}) + `
select submitter, bound from counted`

// allocationColumns are what an allocation gives to [allocateTxs].
var allocationColumns = fencedColumns(
	partValue("tx_id", "uuid", func(a *txmanager.Allocation) string { return a.Tx.ID }),
	partValue("nonce", "bigint", func(a *txmanager.Allocation) int64 { return Bigint(a.Nonce) }),
	partValue("tx_hash", "text", func(a *txmanager.Allocation) *string { hash, _ := signedOf(a); return hash }),
	partValue("bytes", "bytea", func(a *txmanager.Allocation) []byte { _, raw := signedOf(a); return raw }),
	partValue("gas_params", "text", func(a *txmanager.Allocation) string { return gasText(a.Tx.Gas) }),
)

// signedOf is the signed version of an allocation; nil: it has none.
func signedOf(a *txmanager.Allocation) (hash *string, raw []byte) {
	if a.Signed == nil {
		return nil, nil
	}
	return new(a.Signed.Hash.String()), a.Signed.Raw
}

func queueAllocations(b *pgx.Batch, all fencedCommits) {
	fromReservation := func(a txmanager.Allocation) bool { return a.FromReservation != "" }
	next := partsOf(all, func(c *fencedCommit) []txmanager.Allocation {
		for _, a := range c.Allocations {
			if fromReservation(a) {
				queueReuse(b, c.Lease, a, &c.result)
			}
		}
		return slices.DeleteFunc(slices.Clone(c.Allocations), fromReservation)
	})
	if len(next) > 0 {
		b.Queue(allocateTxs, RecordArrays(nil, allocationColumns, next)...).
			Query(all.count(func(r *txmanager.CommitResult) *int { return &r.Allocated }))
	}
}

// setBound sets what a row has once its nonce is bound. With a signed version, whose hash is not
// null, it claims the first broadcast.
func setBound(typedHash, hash, gas string) string {
	sent := `case when ` + hash + ` is not null then statement_timestamp() end` // the same in each column
	return `state = case when ` + typedHash + ` is null then 'IN_FLIGHT' else 'SUBMITTED' end,
         tx_hash = ` + hash + `, last_gas_params = ` + gas + `,
         submit_attempts = case when ` + hash + ` is null then 0 else 1 end,
         first_submit_at = ` + sent + `, last_submit_at = ` + sent + `, next_resubmit_at = ` + sent + `,
         next_check_at = clock_timestamp(), last_error = null, ` + waitOver + `deferred_until_nonce = null, blocked_since = null, deferred_at = null,
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
