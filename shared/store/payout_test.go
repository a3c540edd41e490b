package store_test

import (
	"fmt"
	"regexp"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const (
	isPayer  = `update submitter set callers = '{transfer}' where submitter = $alice`
	isPaid   = isPayer + `; insert into payout_confirmed (tx_id, submitter, request_id) values ($sent, $alice, 'sent')`
	newProof = `insert into payout_confirmed (tx_id, submitter, request_id) values `
)

// What refuses nonsense about payouts joins what the whole schema is held to.
func init() {
	furtherNonsense["payer_serves_transfers_only"] = []refusal{
		{Then: `update submitter set callers = '{transfer,shop}' where submitter = $alice`},
		{Then: `update submitter set callers = '{*,transfer}' where submitter = $alice`},
	}
	furtherNonsense["one_proof_per_payout"] = []refusal{{isPaid, newProof + `($sent, $alice, 'sent')`}}
	furtherNonsense["proof_of_a_transaction"] = []refusal{{Then: newProof + `(gen_random_uuid(), $alice, 'sent')`}}
	guarded["guard_proofs"] = []duty{
		{"payout_confirmed", isPaid, `delete from payout_confirmed`, byGuard},
		{"payout_confirmed", isPaid, `update payout_confirmed set receipt = '{}'`, byGuard},
	}
	guarded["guard_txs_truncate"][0].First += `; alter table payout_confirmed disable trigger guard_proofs_truncate`
	guarded["guard_proofs_truncate"] = []duty{{"payout_confirmed", "", `truncate payout_confirmed`, byGuard}}
	// It refuses nothing: TestProofsAreKept shows what it records. Here a record that is
	// there already is met by it, and by nothing else.
	guarded["store_payout_proof"] = []duty{{"managed_tx",
		isPaid + `; alter table managed_tx disable trigger guard_tx; update managed_tx set caller = 'transfer' where tx_id = $sent;
		set constraints all immediate`,
		`update managed_tx set state = 'CONFIRMED', receipt = '{}', confirmations = '[]', confirmed_at = now() where tx_id = $sent`, "one_proof_per_payout"}}
}

const (
	aTransfer = `insert into assets_tb (asset_id, asset, precision, min_transfer_amount, max_transfer_amount) values (1, 'USDT', 2, 1, 9);
		insert into transfers_tb (req_id, user_id, asset_id, amount, precision, transfer_type, source_type) values ('01ARZ3NDEKTSV4RRFFQ69G5FAV', 7, 1, 5, 2, 1, 1)`
	newSaid    = `insert into payout_statement (req_id, of_confirmed, paid, tx_hash, refund, nonces_below, other_payments, by, reason) values ('01ARZ3NDEKTSV4RRFFQ69G5FAV', false, `
	saidPaid   = newSaid + `true, '0x' || repeat('ab', 32), null, null, null, 'ann', 'r')`
	isSaid     = aTransfer + `; ` + saidPaid
	newPayment = `insert into payout_proof (chain_id, tx_hash, log_index, req_id, block_number, receipt, statement_id) values `
	aPayment   = newPayment + `(1337, '0x' || repeat('ab', 32), -1, '01ARZ3NDEKTSV4RRFFQ69G5FAV', 1, '{}', null)`
	isPayment  = aTransfer + `; ` + aPayment
)

// What operators say of payouts, and what proves them.
func init() {
	furtherNonsense["one_number_per_statement"] = []refusal{{isSaid + `; drop index one_valid_statement`,
		`insert into payout_statement overriding system value select * from payout_statement`}}
	furtherNonsense["one_valid_statement"] = []refusal{{isSaid, saidPaid}}
	furtherNonsense["statement_of_a_transfer"] = []refusal{{Then: saidPaid}}
	furtherNonsense["stated_by_an_operator"] = []refusal{
		{aTransfer, newSaid + `true, '0x' || repeat('ab', 32), null, null, null, '', 'r')`}, {aTransfer, newSaid + `true, '0x' || repeat('ab', 32), null, null, null, 'ann', '')`}}
	furtherNonsense["statement_is_complete"] = []refusal{
		{aTransfer, newSaid + `true, null, null, null, null, 'ann', 'r')`}, {aTransfer, newSaid + `false, null, null, 1, '{}', 'ann', 'r')`},
		{aTransfer, newSaid + `false, null, true, null, '{}', 'ann', 'r')`}, {aTransfer, newSaid + `false, null, true, 1, null, 'ann', 'r')`}}
	furtherNonsense["statement_names_a_hash"] = []refusal{{aTransfer, newSaid + `true, '0xAB', null, null, null, 'ann', 'r')`}}
	furtherNonsense["withdrawn_by_an_operator"] = []refusal{{isSaid, `update payout_statement set withdrawn_at = now()`}}
	furtherNonsense["acted_or_withdrawn"] = []refusal{{isSaid, `update payout_statement set acted_at = now()`}}
	furtherNonsense["one_payout_per_proof"] = []refusal{{isPayment + `; alter table payout_proof drop constraint one_proof_per_transfer`, aPayment}}
	furtherNonsense["one_proof_per_transfer"] = []refusal{{isPayment,
		newPayment + `(1337, '0x' || repeat('cd', 32), -1, '01ARZ3NDEKTSV4RRFFQ69G5FAV', 1, '{}', null)`}}
	furtherNonsense["proof_of_a_transfer"] = []refusal{{Then: aPayment}}
	furtherNonsense["proof_of_a_statement"] = []refusal{{aTransfer, newPayment + `(1337, '0x' || repeat('ab', 32), -1, '01ARZ3NDEKTSV4RRFFQ69G5FAV', 1, '{}', 99)`}}
	furtherNonsense["proof_names_a_hash"] = []refusal{{aTransfer, newPayment + `(1337, '0xAB', -1, '01ARZ3NDEKTSV4RRFFQ69G5FAV', 1, '{}', null)`}}
	furtherNonsense["proof_is_in_a_block"] = []refusal{
		{aTransfer, newPayment + `(1337, '0x' || repeat('ab', 32), -1, '01ARZ3NDEKTSV4RRFFQ69G5FAV', -1, '{}', null)`},
		{aTransfer, newPayment + `(1337, '0x' || repeat('ab', 32), -3, '01ARZ3NDEKTSV4RRFFQ69G5FAV', 1, '{}', null)`}}
	guarded["guard_statement"] = []duty{
		{"payout_statement", isSaid, `delete from payout_statement`, byGuard},
		{"payout_statement", isSaid, `update payout_statement set reason = 'another'`, byGuard},
		{"payout_statement", isSaid + `; update payout_statement set withdrawn_at = now(), withdrawn_by = 'ann', withdraw_reason = 'r'`,
			`update payout_statement set withdraw_reason = 'another'`, byGuard},
	}
	guarded["guard_statement_change"] = []duty{{"payout_statement", isSaid, `update payout_statement set change = 1`, byGuard}}
	guarded["guard_payout_proofs"] = []duty{{"payout_proof", isPayment, `delete from payout_proof`, byGuard}, {"payout_proof", isPayment, `update payout_proof set receipt = '[]'`, byGuard}}
	guarded["guard_payout_proofs_truncate"] = []duty{{"payout_proof", "", `truncate payout_proof`, byGuard}}
	guarded["guard_statements_truncate"] = []duty{{"payout_statement", `alter table payout_proof disable trigger guard_payout_proofs_truncate`, `truncate payout_statement cascade`, byGuard}}
	guarded["refuse_payout_in_doubt"] = []duty{{"managed_tx",
		aTransfer + `; insert into identity_change (system_identifier, timeline_id, by, reason) values (1, 1, 'ann', 'r')`,
		`insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint) values (gen_random_uuid(), $alice, '01ARZ3NDEKTSV4RRFFQ69G5FAV', 'transfer', ` + emptyPrint + `)`, "payout_in_doubt"},
		{"managed_tx", `insert into identity_change (system_identifier, timeline_id, by, reason) values (1, 1, 'ann', 'r')`,
			`insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint) values (gen_random_uuid(), $alice, 'of a lost transfer', 'transfer', ` + emptyPrint + `)`, "payout_in_doubt"}}
}

func payoutIntent(sub txmanager.Submitter, requestID string) store.Intent {
	in := intent(sub, requestID)
	in.Caller = store.PayoutCaller
	return in
}

// The commit that confirms a payout stores its proof unchanged. A transaction that is no
// payout has none.
func TestProofsAreKept(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1, store.PayoutCaller)
	db.Register(t, bob, 1)
	check.OK(t)(db.Create(t.Context(), payoutIntent(alice, "pay"), 100))
	post(t, db, bob, "shop's")
	check.Err(t, "the coordinator's intent for who is no payer", store.ErrAnyCaller)(db.Create(t.Context(), payoutIntent(bob, "not a payer's"), 100))
	for _, sub := range []txmanager.Submitter{alice, bob} {
		endAll(t, db, sub, `{"z": 1,  "a":"\u0000"}`, block(7, 1))
	}
	got := value[[]string](t, db, `select array(select request_id || ': ' || payload::text || ' ' || receipt::text from payout_confirmed)`)
	want := []string{`pay: {"to":"0x00000000000000000000000000000000000000b0","value":"1"} {"z": 1,  "a":"\u0000"}`}
	check.Same(t, "proofs", got, want)
	found, err := db.Payout(t.Context(), alice, "pay")
	if err != nil || found.State != txmanager.Confirmed || string(found.Receipt) != `{"z": 1,  "a":"\u0000"}` || !found.Pays {
		t.Errorf("payout: got %+v, %v; want it CONFIRMED with its receipt", found, err)
	}
}

// The stored state of a request, and the cases in which a missing row proves nothing.
func TestPayoutOnRecord(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1, store.PayoutCaller)
	db.Register(t, bob, 1)
	wants := func(sub txmanager.Submitter, want store.Payout) {
		t.Helper()
		check.Same(t, "payout of "+string(sub), check.Value(db.Payout(t.Context(), sub, "pay"))(t), want)
	}
	wants(numbered(1), store.Payout{})
	wants(bob, store.Payout{})
	wants(alice, store.Payout{Pays: true})
	// the same request of the next submitter is another
	other := intent(bob, "pay")
	check.OK(t)(db.Create(t.Context(), other, 100))
	wants(alice, store.Payout{Pays: true})
	wants(bob, store.Payout{TxID: other.TxID, Caller: "shop", State: txmanager.Queued, Unbound: true})
	db.Run(t, openIncident, alice)
	wants(alice, store.Payout{Pays: true, Protected: true})
	db.Run(t, `update protect_incident set closed_at = now(), closed_by = 'o', mode = 'resync', reason = 'r', released = '{"requests": {"0": "pay", "1": "pa"}}'`)
	wants(alice, store.Payout{Pays: true, Taken: true, TakenAt: new(uint64(0))})
	db.Run(t, `update database_identity set timeline_id = timeline_id + 1`)
	wants(alice, store.Payout{Pays: true, Taken: true, TakenAt: new(uint64(0)), Foreign: true})
}

// A tombstone is one row, FAILED from its first moment, with its decision and payload.
// None is made where nothing on record proves nothing.
func TestCancelPayout(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1, store.PayoutCaller)
	db.Register(t, bob, 1)
	for range 2 {
		got, err := db.CancelPayout(t.Context(), payoutIntent(alice, "never"), "because")
		if err != nil || got.State != txmanager.Failed || got.SubState != txmanager.Cancelled {
			t.Errorf("cancel of nothing: got %+v, %v; want FAILED/CANCELLED", got, err)
		}
	}
	for query, want := range map[string]string{
		`select string_agg(coalesce(from_state, 'new') || ' ' || state || '/' || sub_state, ', ') from tx_history`: "new FAILED/CANCELLED",
		`select string_agg(action || ' by ' || by || ': ' || reason, ', ') from tx_decision`:                       "CANCEL by transfer: because",
		`select string_agg(body::text, ', ') from tx_document`:                                                     `{"to":"0x00000000000000000000000000000000000000b0","value":"1"}`,
		`select string_agg(coalesce(nonce::text, 'none') || queued || open, ', ') from managed_tx`:                 "nonefalsefalse",
	} {
		check.Equal(t, query, value[string](t, db, query), want)
	}
	none := func(sub txmanager.Submitter, why string) {
		t.Helper()
		got := check.Value(db.CancelPayout(t.Context(), payoutIntent(sub, "pay"), "because"))(t)
		check.Equal(t, fmt.Sprintf("txId after a cancel, %s", why), got.TxID, "")
	}
	none(numbered(1), "an unknown submitter")
	none(bob, "a submitter that others use")
	db.Run(t, openIncident, alice)
	none(alice, "in PROTECT")
	db.Run(t, `update protect_incident set closed_at = now(), closed_by = 'o', mode = 'resync', reason = 'r', released = '{"requests": {"0": "pay"}}'`)
	none(alice, "recorded as lost")
	check.Equal(t, "cancel of another", check.Value(db.CancelPayout(t.Context(), payoutIntent(alice, "other"), "because"))(t).State, txmanager.Failed)
	db.Run(t, `update database_identity set timeline_id = timeline_id + 1`)
	got, err := db.CancelPayout(t.Context(), payoutIntent(alice, "restored"), "because")
	if err != nil || got.TxID != "" || !got.Foreign {
		t.Errorf("cancel in a restored database: got %+v, %v; want nothing on record", got, err)
	}
}

// A cancel waits for an uncommitted create and then cancels it in the queue. In the reverse
// order the create finds the tombstone.
func TestTombstoneWaitsForACreate(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"commit", "rollback"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			db.Register(t, alice, 1, store.PayoutCaller)
			other := db.Holding(t, withPayload(newTx+`($1, $2, 'pay', 'transfer', `+emptyPrint+`)`), payoutIntent(alice, "pay").TxID, alice)
			cancelling := storetest.Blocked(t, db, "stone", func() (store.Payout, error) {
				return db.CancelPayout(t.Context(), payoutIntent(alice, "pay"), "because")
			})
			other.Do(end)
			check.OK(t)((<-cancelling).Err)
			want := map[string]string{"commit": "cancelled: because", "rollback": "cancelled before it was made: because"}[end]
			check.Equal(t, "state", value[string](t, db, `select state || '/' || sub_state || ' ' || last_error from managed_tx`), "FAILED/CANCELLED "+want)
		})
	}
}

// Confirmed payouts come in the order of the transactions that wrote them, each once,
// however many readers and writers there are; those of one transaction together.
func TestConfirmedPayoutsInPages(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1, store.PayoutCaller)
	db.Run(t, `insert into submitter_change (submitter, action, by, reason, from_max_in_flight, to_max_in_flight) values ($1, 'UPDATE', 'ann', 'r', 3, 1)`, alice)
	db.Run(t, `update submitter set max_in_flight = 3 where submitter = $1`, alice)
	for _, batch := range [][]string{{"a", "b", "c"}, {"d"}} {
		for _, r := range batch {
			check.OK(t)(db.Create(t.Context(), payoutIntent(alice, r), 100))
		}
		endAll(t, db, alice, `{}`, block(7, 1))
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			all, next, more, err := db.ConfirmedPayouts(t.Context(), "1:1:", 1)
			if got := requests(all); err != nil || got != "a b c " || !more {
				t.Errorf("first page: got %s, more %v, %v; want all that one transaction wrote: a b c, and more", got, more, err)
			}
			if rest, _, _, err := db.ConfirmedPayouts(t.Context(), next, 10); err != nil || requests(rest) != "d " {
				t.Errorf("second page: got %s, %v; want d", requests(rest), err)
			}
		})
	}
	both.Wait()
	all, now, _, err := db.ConfirmedPayouts(t.Context(), "1:1:", 10)
	if got := requests(all); err != nil || got != "a b c d " || !regexp.MustCompile(`^\d+:\d+:`).MatchString(string(now)) {
		t.Errorf("all: got %s, %s, %v; want a b c d", got, now, err)
	}
	if rest, _, _, err := db.ConfirmedPayouts(t.Context(), now, 10); err != nil || len(rest) != 0 {
		t.Errorf("what a reader of all has not seen: got %v, %v; want nothing", rest, err)
	}
}

func requests(all []store.ConfirmedPayout) (text string) {
	for _, c := range all {
		text += c.ReqID + " "
	}
	return text
}

// Payout queries use the key, with millions of rows and with none, whatever the planner
// assumes of an empty table.
func TestPlansOfPayouts(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{false, true} {
		db := map[bool]func(testing.TB) storetest.Bundle{false: storetest.New, true: grown}[full](t)
		conn := check.Value(db.Raw(t.Context()))(t)
		for name, statement := range store.PayoutStatements {
			plan := storetest.Explain(t, conn, name, statement)
			check.Equal(t, fmt.Sprintf("%s, full %t", name, full), regexp.MustCompile(`Seq Scan on (managed_tx|tx_\w+|payout_confirmed|transfers_tb|submitter|protect_incident)[ \n]`).FindString(plan), "")
		}
		if plan := storetest.Explain(t, conn, "find", store.PayoutStatements["findPayout"]); !regexp.MustCompile(`Index Cond: .*request_id`).MatchString(plan) {
			t.Errorf("findPayout, full %t: got no plan by the request:\n%s", full, plan)
		}
		conn.Release()
	}
}
