package store

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
)

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
//
// $1 gives [saidByNodes] to the trigger that writes the history.
var applyTransitions = `
with said as materialized (select set_config('fencepost.answers', $1, true)),
moved as (
update managed_tx m
   set state = w.state, sub_state = nullif(w.sub_state, ''), deferred_until_nonce = w.deferred_until_nonce,
       last_submit_at = w.last_submit_at, next_resubmit_at = w.next_resubmit_at,
       submit_attempts = w.submit_attempts, last_receipt_check_at = w.last_check_at,
       next_check_at = w.next_check_at,
       last_error = case when w.sub_state = 'PLACEHOLDER' then w.last_error || coalesce(': ' || (` + handlerFailed + `), '')
                         else nullif(w.last_error, '') end,
       wait_cause = w.wait_cause,
       waiting_since = case when w.wait_cause = m.wait_cause then m.waiting_since when w.wait_cause is not null then clock_timestamp() end,
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
       fencing_token = w.token, updated_at = clock_timestamp()
  from ` + recordSet(transitionColumns, 1, "w") + `
 where m.tx_id = w.tx_id and m.state = w.from_state and not (m.queued and m.held) and m.submitter is not distinct from w.submitter
   and ` + isHeld + ` and (select true from said)
returning m.submitter
)
select submitter, count(*) from moved group by submitter`

// queueTransitions adds the transitions as one statement. Each is a compare-and-set on the
// state that it was decided in.
func queueTransitions(b *pgx.Batch, all fencedCommits) {
	records := collect(all, func(c *fencedCommit) []transitionRecord { return c.transitions })
	if len(records) == 0 {
		return
	}
	b.Queue(applyTransitions, arrays([]any{saidByNodes(records)}, transitionColumns, records)...).
		Query(all.count(func(r *txmanager.CommitResult) *int { return &r.Transitioned }))
	receipts := slices.DeleteFunc(slices.Clone(records), func(r transitionRecord) bool { return r.To.Receipt == nil || len(r.To.Receipt.Document) == 0 })
	if len(receipts) > 0 {
		b.Queue(insertReceipts, arrays(nil, receiptColumns, receipts)...)
	}
	for _, m := range records {
		if d := m.Decision; d != nil {
			b.Queue(`insert into tx_decision (tx_id, action, by, reason) values ($1, $2, $3, $4)`, m.To.ID, d.Action, d.By, PrintableText(d.Reason))
		}
	}
}

// transitionRecord is a transition with the columns that are made from more than one of its fields.
type transitionRecord struct {
	lease.Lease
	txmanager.Transition
	receipt, confirmations, diagnosis *string // JSON
	decided, mined, replacedBy        *string
	recorded                          *int64
}

func recordOf(l lease.Lease, m txmanager.Transition) (r transitionRecord, err error) {
	r.Lease, r.Transition = l, m
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
var transitionColumns = append(fencedColumns(func(r *transitionRecord) lease.Lease { return r.Lease }), []recordColumn[transitionRecord]{
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
	valueOf("wait_cause", "text", func(r *transitionRecord) *string { return textOrNull(string(r.To.Cause)) }),
	valueOf("receipt", "text", func(r *transitionRecord) *string { return r.receipt }),
	valueOf("confirmations", "text", func(r *transitionRecord) *string { return r.confirmations }),
	valueOf("diagnosis", "text", func(r *transitionRecord) *string { return r.diagnosis }),
	valueOf("served", "text", func(r *transitionRecord) *string { return textOrNull(string(r.CompletedAction)) }),
	valueOf("decided", "text", func(r *transitionRecord) *string { return r.decided }),
	valueOf("mined", "text", func(r *transitionRecord) *string { return r.mined }),
	valueOf("replaced_by", "text", func(r *transitionRecord) *string { return r.replacedBy }),
	valueOf("recorded", "bigint", func(r *transitionRecord) *int64 { return r.recorded }),
}...)

// insertReceipts keeps the nodes' receipts. A receipt that is already stored stays. It reads those that are
// stored, as [insertPayloads].
var insertReceipts = `
insert into tx_document (tx_id, name, body)
select w.tx_id, w.name, w.body::json
  from ` + recordSet(receiptColumns, 0, "w") + `
 where ` + isHeld + `
   and (select d.tx_id from tx_document d where d.tx_id = w.tx_id and d.name = w.name) is null`

// receiptColumns are what a transition gives to [insertReceipts].
var receiptColumns = append(fencedColumns(func(r *transitionRecord) lease.Lease { return r.Lease }), []recordColumn[transitionRecord]{
	valueOf("tx_id", "uuid", func(r *transitionRecord) string { return r.To.ID }),
	valueOf("name", "text", func(r *transitionRecord) string { return "receipt:" + r.To.Receipt.BlockHash.String() }),
	valueOf("body", "text", func(r *transitionRecord) string { return string(r.To.Receipt.Document) }),
}...)

// receiptFacts are what a transaction keeps of its receipt.
type receiptFacts struct {
	TxHash      txmanager.Hash `json:"txHash"`
	BlockNumber uint64         `json:"blockNumber"`
	BlockHash   txmanager.Hash `json:"blockHash"`
	Succeeded   bool           `json:"succeeded"`
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
