package store

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

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
  from ` + RecordSet(transitionColumns, 1, "w") + `
 where m.tx_id = w.tx_id and m.state = w.from_state and not (m.queued and m.held) and m.submitter is not distinct from w.submitter
   and ` + isHeld + ` and (select true from said)
returning m.submitter
)
select submitter, count(*) from moved group by submitter`

// queueTransitions adds the transitions as one statement. Each is a compare-and-set on the
// state that it was decided in.
func queueTransitions(b *pgx.Batch, all fencedCommits) {
	moves := partsOf(all, func(c *fencedCommit) []txmanager.Transition { return c.Transitions })
	if len(moves) == 0 {
		return
	}
	b.Queue(applyTransitions, RecordArrays([]any{saidByNodes(moves)}, transitionColumns, moves)...).
		Query(all.count(func(r *txmanager.CommitResult) *int { return &r.Transitioned }))
	queueParts(b, insertReceipts, receiptColumns, slices.DeleteFunc(slices.Clone(moves), func(m fenced[txmanager.Transition]) bool {
		return m.part.To.Receipt == nil || len(m.part.To.Receipt.Document) == 0
	}))
	for _, m := range moves {
		if d := m.part.Decision; d != nil {
			b.Queue(`insert into tx_decision (tx_id, action, by, reason) values ($1, $2, $3, $4)`, m.part.To.ID, d.Action, d.By, PrintableText(d.Reason))
		}
	}
}

// transitionColumns are what a transition gives to [applyTransitions].
var transitionColumns = fencedColumns(
	partValue("tx_id", "uuid", func(m *txmanager.Transition) string { return m.To.ID }),
	partValue("from_state", "text", func(m *txmanager.Transition) string { return string(m.From) }),
	partValue("state", "text", func(m *txmanager.Transition) string { return string(m.To.State) }),
	partValue("sub_state", "text", func(m *txmanager.Transition) string { return string(m.To.Sub) }),
	partValue("deferred_until_nonce", "bigint", func(m *txmanager.Transition) *int64 { return bigintOrNull(m.To.DeferredUntilNonce) }),
	partValue("first_submit_at", "timestamptz", func(m *txmanager.Transition) *time.Time { return micros(m.To.FirstSubmitAt) }),
	partValue("last_submit_at", "timestamptz", func(m *txmanager.Transition) *time.Time { return micros(m.To.LastSubmitAt) }),
	partValue("next_resubmit_at", "timestamptz", func(m *txmanager.Transition) *time.Time { return micros(m.To.NextResubmitAt) }),
	partValue("submit_attempts", "int", func(m *txmanager.Transition) int { return m.To.SubmitAttempts }),
	partValue("last_check_at", "timestamptz", func(m *txmanager.Transition) *time.Time { return micros(m.To.LastCheckAt) }),
	partValue("next_check_at", "timestamptz", func(m *txmanager.Transition) *time.Time { return micros(m.To.NextCheckAt) }),
	partValue("next_bump_at", "timestamptz", func(m *txmanager.Transition) *time.Time { return micros(m.To.NextBumpAt) }),
	partValue("blocked_since", "timestamptz", func(m *txmanager.Transition) *time.Time { return micros(m.To.HeldBackSince) }),
	partValue("deferred_at", "timestamptz", func(m *txmanager.Transition) *time.Time { return micros(m.To.DeferredAt) }),
	partValue("last_error", "text", func(m *txmanager.Transition) string { return PrintableText(m.To.LastError) }),
	partValue("wait_cause", "text", func(m *txmanager.Transition) *string { return textOrNull(string(m.To.Cause)) }),
	partValue("receipt", "text", keptReceipt),
	partValue("confirmations", "text", func(m *txmanager.Transition) *string { return toJSON(m.To.Confirmations, m.To.Confirmations == nil) }),
	partValue("diagnosis", "text", func(m *txmanager.Transition) *string { return toJSON(m.To.Diagnosis, m.To.Diagnosis == nil) }),
	partValue("served", "text", func(m *txmanager.Transition) *string { return textOrNull(string(m.CompletedAction)) }),
	partValue("decided", "text", func(m *txmanager.Transition) *string {
		if m.Decision == nil {
			return nil
		}
		return textOrNull(string(m.Decision.Action))
	}),
	partValue("mined", "text", minedHash),
	partValue("replaced_by", "text", replacingHash),
	partValue("recorded", "bigint", func(m *txmanager.Transition) *int64 {
		return orNull(m.To.Recorded, func(r *txmanager.Recorded) int64 { return Bigint(r.Nonce) })
	}),
)

// insertReceipts keeps the nodes' receipts. A receipt that is already stored stays. It reads those that are
// stored, as [insertPayloads].
var insertReceipts = `
insert into tx_document (tx_id, name, body)
select w.tx_id, w.name, w.body::json
  from ` + RecordSet(receiptColumns, 0, "w") + `
 where ` + isHeld + `
   and (select d.tx_id from tx_document d where d.tx_id = w.tx_id and d.name = w.name) is null`

// receiptColumns are what a transition gives to [insertReceipts].
var receiptColumns = fencedColumns(
	partValue("tx_id", "uuid", func(m *txmanager.Transition) string { return m.To.ID }),
	partValue("name", "text", func(m *txmanager.Transition) string { return "receipt:" + m.To.Receipt.BlockHash.String() }),
	partValue("body", "text", func(m *txmanager.Transition) string { return string(m.To.Receipt.Document) }),
)

// keptReceipt is what a transaction keeps of its receipt, as JSON.
func keptReceipt(m *txmanager.Transition) *string {
	r := m.To.Receipt
	if r == nil {
		return nil
	}
	return toJSON(struct {
		TxHash      txmanager.Hash `json:"txHash"`
		BlockNumber uint64         `json:"blockNumber"`
		BlockHash   txmanager.Hash `json:"blockHash"`
		Succeeded   bool           `json:"succeeded"`
	}{r.TxHash, r.BlockNumber, r.BlockHash, r.Succeeded}, false)
}

// minedHash is the hash of the version that ended the transaction; nil while it is open.
func minedHash(m *txmanager.Transition) *string {
	if !m.To.State.Terminal() || m.To.Receipt == nil {
		return nil
	}
	return textOrNull(m.To.Receipt.TxHash.String())
}

// replacingHash is [minedHash] if that is not the first version's; otherwise nil.
func replacingHash(m *txmanager.Transition) *string {
	if t := m.To; len(t.Versions) == 0 || t.Receipt == nil || t.Versions[0] == t.Receipt.TxHash || t.Recorded != nil {
		return nil
	}
	return minedHash(m)
}
