package store_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The database itself refuses every forbidden write, by any role.
func TestDatabaseRefusesNonsense(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	rows := plant(t, db)
	for constraint, statements := range nonsense {
		for _, statement := range statements {
			t.Run(constraint, func(t *testing.T) {
				tx, err := db.DB.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback(t.Context()) }()
				tag, err := tx.Exec(t.Context(), rows.Replace(statement))
				if err == nil && tag.RowsAffected() == 0 {
					t.Fatalf("%s: touches no row: a mistake of the test", statement)
				}
				if got := violated(err); got != constraint {
					t.Errorf("%s: got refused by %s, want by %s", statement, got, constraint)
				}
			})
		}
	}
}

// plant creates the rows that the writes try to break, and returns the words that name them.
// They are alice's $sent (nonce 0), $bound (nonce 1, no bytes), $queued and $next, and bob's
// $theirs (nonce 0, sent).
func plant(t *testing.T, db storetest.Bundle) *strings.Replacer {
	t.Helper()
	db.Register(t, alice, 2)
	db.Register(t, bob, 1)
	for _, request := range []string{"sent", "bound", "queued", "next"} {
		post(t, db, alice, request)
	}
	post(t, db, bob, "theirs")
	w := take(t, db, alice, "a/1")
	all := allocations(w, true)
	all[1].Signed = nil
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: all, LeaseEnd: txmanager.ReleaseUnlessRerun})
	w = take(t, db, bob, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
	run(t, db, openIncident, bob)

	words := []string{"$alice", "'" + string(alice) + "'", "$bob", "'" + string(bob) + "'", "$hash", "'0x" + strings.Repeat("5", 64) + "'"}
	named, err := db.DB.Query(t.Context(), `select request_id, tx_id::text from managed_tx`)
	if err != nil {
		t.Fatal(err)
	}
	var request, id string
	if _, err := pgx.ForEachRow(named, []any{&request, &id}, func() error {
		words = append(words, "$"+request, "'"+id+"'")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(words...)
}

const (
	newVersion  = `insert into tx_version (tx_id, submitter, nonce, version, tx_hash, kind, fencing_token) values `
	newDocument = `insert into tx_document (tx_id, name, body, bytes) values `
	newTx       = `insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint) values `
	newMarked   = `insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, mac, mac_key) values `
	emptyPrint  = `'\x0000000000000000000000000000000000000000000000000000000000000000'`
)

// nonsense is by the name of the constraint that must refuse it.
var nonsense = map[string][]string{
	// MACs of intents, and whether they must have one.
	"mac_has_a_key":                {newMarked + `(gen_random_uuid(), $alice, 'm', 'shop', ` + emptyPrint + `, sha256('x'), null)`, newMarked + `(gen_random_uuid(), $alice, 'm', 'shop', ` + emptyPrint + `, null, 'k')`},
	"mac_is_of_32_bytes":           {newMarked + `(gen_random_uuid(), $alice, 'm', 'shop', ` + emptyPrint + `, '\x00', 'k')`},
	"mac_key_is_an_id":             {newMarked + `(gen_random_uuid(), $alice, 'm', 'shop', ` + emptyPrint + `, sha256('x'), '')`},
	"intent_mac_rule_pkey":         {`insert into intent_mac_rule (id, required, by, reason) overriding system value select id, true, 'o', 'r' from intent_mac_rule`},
	"intent_mac_rule_by_check":     {`insert into intent_mac_rule (required, by, reason) values (true, '', 'r')`},
	"intent_mac_rule_reason_check": {`insert into intent_mac_rule (required, by, reason) values (true, 'o', '')`},

	"trace_is_a_span": {`update managed_tx set trace = '\x00' where tx_id = $sent`},
	// Nonces: no duplicate, no gap, no change.
	"one_tx_per_nonce": {
		`update managed_tx set state = 'IN_FLIGHT', nonce = 1, prev_nonce = 0 where tx_id = $queued`,
		`update managed_tx set state = 'IN_FLIGHT', nonce = 0 where tx_id = $queued`,
	},
	"follows_the_last_nonce": {
		`update managed_tx set state = 'IN_FLIGHT', nonce = 3, prev_nonce = 2 where tx_id = $queued`,
		`update managed_tx set nonce = 2, prev_nonce = 1 where tx_id = $bound`,
	},
	"prev_nonce_is_one_less": {
		`update managed_tx set state = 'IN_FLIGHT', nonce = 3, prev_nonce = 1 where tx_id = $queued`,
		`update managed_tx set nonce = 2 where tx_id = $bound`,
	},
	"prev_nonce_of_a_nonce": {`update managed_tx set prev_nonce = 1 where tx_id = $queued`},
	"first_nonce": {
		`update managed_tx set state = 'IN_FLIGHT', nonce = 2 where tx_id = $queued`,
		`update managed_tx set state = 'IN_FLIGHT', nonce = 7 where tx_id = $queued`,
	},
	"managed_tx_nonce_check": {`update managed_tx set state = 'IN_FLIGHT', nonce = -1, prev_nonce = -2 where tx_id = $queued`},
	"one_tx_per_request":     {newTx + `(gen_random_uuid(), $alice, 'sent', 'shop', ` + emptyPrint + `)`},

	// State against nonce, bytes, times and receipt.
	"state_is_known": {`update managed_tx set state = 'LOST' where tx_id = $bound`},
	"sub_state_fits": {
		`update managed_tx set sub_state = 'PENDING' where tx_id = $queued`,
		`update managed_tx set state = 'TRACKING' where tx_id = $sent`,
		`update managed_tx set state = 'TRACKING', sub_state = 'REVERTED' where tx_id = $sent`,
		`update managed_tx set state = 'FAILED' where tx_id = $bound`,
	},
	"nonce_fits_state": {
		`update managed_tx set state = 'IN_FLIGHT' where tx_id = $queued`,
		`update managed_tx set state = 'STUCK' where tx_id = $queued`,
		`update managed_tx set state = 'QUEUED' where tx_id = $bound`,
		`update managed_tx set nonce = null, prev_nonce = null where tx_id = $bound`,
		`update managed_tx set state = 'FAILED', sub_state = 'CANCELLED' where tx_id = $bound`,
		`update managed_tx set state = 'FAILED', sub_state = 'REJECTED' where tx_id = $sent`,
		`update managed_tx set state = 'FAILED', sub_state = 'PLACEHOLDER', receipt = '{}', confirmed_at = now() where tx_id = $queued`,
	},
	"bytes_fit_state": {
		`update managed_tx set state = 'SUBMITTED', first_submit_at = now(), last_submit_at = now() where tx_id = $bound`,
		`update managed_tx set state = 'IN_FLIGHT' where tx_id = $sent`,
		`update managed_tx set tx_hash = $hash where tx_id = $queued`,
	},
	"sent_fits_state": {
		`update managed_tx set last_submit_at = null where tx_id = $sent`,
		`update managed_tx set first_submit_at = null where tx_id = $sent`,
	},
	"receipt_fits_state": {
		`update managed_tx set state = 'TRACKING', sub_state = 'INCLUDED' where tx_id = $sent`,
		`update managed_tx set state = 'TRACKING', sub_state = 'PENDING', receipt = '{}' where tx_id = $sent`,
		`update managed_tx set state = 'CONFIRMED', confirmed_at = now(), confirmations = '[]' where tx_id = $sent`,
		`update managed_tx set state = 'CONFIRMED', confirmed_at = now(), receipt = '{}' where tx_id = $sent`,
		`update managed_tx set state = 'FAILED', sub_state = 'REVERTED', confirmed_at = now() where tx_id = $sent`,
	},
	"receipt_has_no_document": {`update managed_tx set receipt = '{"document": {}}' where tx_id = $queued`},
	"confirmed_at_fits_state": {
		`update managed_tx set confirmed_at = now() where tx_id = $sent`,
		`update managed_tx set state = 'CONFIRMED', receipt = '{}', confirmations = '[]' where tx_id = $sent`,
		`update managed_tx set state = 'FAILED', sub_state = 'CANCELLED', confirmed_at = now() where tx_id = $queued`,
	},
	"managed_tx_tx_hash_check": {
		`update managed_tx set tx_hash = upper(tx_hash) where tx_id = $sent`,
		`update managed_tx set tx_hash = left(tx_hash, 65) where tx_id = $sent`,
		`update managed_tx set tx_hash = tx_hash || '0' where tx_id = $sent`,
		`update managed_tx set tx_hash = left(tx_hash, 65) || E'\n' where tx_id = $sent`,
	},
	"managed_tx_replaced_by_hash_check": {
		`update managed_tx set replaced_by_hash = left($hash, 65) where tx_id = $sent`,
		`update managed_tx set replaced_by_hash = $hash || '0' where tx_id = $sent`,
		`update managed_tx set replaced_by_hash = right($hash, 64) where tx_id = $sent`,
	},
	"tx_version_tx_hash_check": {
		newVersion + `($sent, $alice, 0, 2, left($hash, 65), 'BUMP', 1)`,
		newVersion + `($sent, $alice, 0, 2, $hash || '0', 'BUMP', 1)`,
		newVersion + `($sent, $alice, 0, 2, upper($hash), 'BUMP', 1)`,
	},
	"managed_tx_request_id_check":  {newTx + `(gen_random_uuid(), $alice, repeat('r', 129), 'shop', ` + emptyPrint + `)`, newTx + `(gen_random_uuid(), $alice, '', 'shop', ` + emptyPrint + `)`},
	"managed_tx_fingerprint_check": {newTx + `(gen_random_uuid(), $alice, 'r', 'shop', '\x00')`},

	// Versions: each hash bound for ever to one nonce of one transaction.
	"tx_version_pkey":     {newVersion + `($theirs, $bob, 0, 2, (select tx_hash from managed_tx where tx_id = $sent), 'BUMP', 1)`},
	"one_of_each_version": {newVersion + `($sent, $alice, 0, 1, $hash, 'BUMP', 1)`},
	"bound_for_ever": {
		newVersion + `($sent, $alice, 1, 2, $hash, 'BUMP', 1)`,
		newVersion + `($sent, $bob, 0, 2, $hash, 'BUMP', 1)`,
		newVersion + `($queued, $alice, 2, 1, $hash, 'ORIGINAL', 1)`,
		`update managed_tx set nonce = 5 where tx_id = $theirs`,
	},

	// Stored values do not change.
	"binding_never_changes": {
		`update managed_tx set state = 'FAILED', sub_state = 'DISPLACED', nonce = null, prev_nonce = null where tx_id = $bound`,
		`update managed_tx set request_id = 'another' where tx_id = $queued`,
		`update managed_tx set fingerprint = sha256('another') where tx_id = $queued`,
		`update managed_tx set submitter = $bob where tx_id = $queued`,
	},
	"history_never_changes": {
		`update tx_version set tx_id = $bound where tx_id = $sent`,
		`delete from tx_version where tx_id = $sent`,
		`delete from managed_tx where tx_id = $theirs`,
		`update tx_history set state = 'CONFIRMED' where tx_id = $sent`,
		`delete from tx_history where tx_id = $sent`,
		`update tx_document set body = '{"to": "0x"}' where tx_id = $queued`,
		`delete from tx_document where tx_id = $sent`,
	},
	"tx_version_kind_check": {newVersion + `($sent, $alice, 0, 2, $hash, 'COPY', 1)`},

	// Documents: known ones, whole, each once.
	"document_is_known": {
		newDocument + `($queued, 'note', '{}', null)`,
		newDocument + `($queued, 'version:0', '{}', '\x00')`,
		newDocument + `($queued, 'receipt:0x00', '{}', null)`,
		newDocument + `($queued, 'receipt:' || $hash || '0', '{}', null)`,
	},
	"document_has_a_body": {newDocument + `($sent, 'receipt:' || $hash, null, null)`},
	"versions_have_bytes": {
		newDocument + `($sent, 'version:2', '{}', null)`,
		newDocument + `($sent, 'version:2', '{}', '')`,
		newDocument + `($sent, 'receipt:' || $hash, '{}', '\x00')`,
	},

	// The cursor, PROTECT, leases and submitters.
	"in_flight_is_complete":   {`update submitter_nonce_cursor set in_flight_tx_id = null where submitter = $alice`},
	"idle_has_no_nonce":       {`update submitter_nonce_cursor set in_flight_state = 'IDLE' where submitter = $alice`},
	"in_flight_is_below_next": {`update submitter_nonce_cursor set in_flight_nonce = 2 where submitter = $alice`},
	"one_open_incident":       {`insert into protect_incident (submitter, incident, evidence) values ($bob, 2, '{}')`},
	"closed_by_an_operator":   {`update protect_incident set closed_at = now()`, `update protect_incident set closed_at = now(), closed_by = 'o', mode = 'resume'`},
	"submitter_lease_pkey":    {`insert into submitter_lease (submitter, owner_node, fencing_token, expires_at, updated_at) values ($alice, '', 9, now(), now())`},
	"submitter_lease_fencing_token_check": {`insert into submitter_lease (submitter, owner_node, fencing_token, expires_at, updated_at)
		values ('eip155:1:0x00000000000000000000000000000000000000ff', 'a', 0, now(), now())`},
	"managed_tx_submitter_fkey": {newTx + `(gen_random_uuid(), 'eip155:1:0x0000000000000000000000000000000000000001', 'r', 'shop', ` + emptyPrint + `)`},
}

// A fresh submitter's first nonce is its start_nonce, and nothing else.
func TestDatabaseRefusesAnotherFirstNonce(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	post(t, db, alice, "r")
	if _, err := db.DB.Exec(t.Context(), `update managed_tx set state = 'IN_FLIGHT', nonce = 7`); err == nil {
		t.Error("first nonce 7 with start_nonce 0: got no error, want it refused")
	}
}

// A registration with a nonce in the middle of an account's sequence must state why.
func TestStartNonceNeedsAReason(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	r := store.Registration{Submitter: alice, Signer: "local", StartNonce: 7, MaxInFlight: 1, Callers: []string{"*"}, CreatedBy: "test"}
	if isNew, err := db.Store.Register(t.Context(), r); violated(err) != "start_nonce_has_a_reason" {
		t.Errorf("start_nonce 7 without a reason: got %v, %v; want it refused by start_nonce_has_a_reason", isNew, err)
	}
}

// With a reason, the sequence begins where it is said to begin.
func TestSequenceBeginsAtStartNonce(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	r := store.Registration{Submitter: alice, Signer: "local", StartNonce: 7, StartReason: "used before", MaxInFlight: 2, Callers: []string{"shop"}, CreatedBy: "test"}
	if isNew, err := db.Store.Register(t.Context(), r); err != nil || !isNew {
		t.Fatalf("register: got %v, %v; want it new", isNew, err)
	}
	post(t, db, alice, "one")
	post(t, db, alice, "two")
	w := take(t, db, alice, "a/1")
	if done := write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)}); w.NextNonce != 7 || done.Allocated != 2 {
		t.Errorf("allocate: got %d from %d, want 2 from 7", done.Allocated, w.NextNonce)
	}
	if got := value[string](t, db, `select string_agg(nonce::text, ' ' order by seq) from managed_tx`); got != "7 8" {
		t.Errorf("nonces: got %s, want 7 8", got)
	}
}
