package attacks

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// forgeries are statements that an attacker in one function tries with its database role. $1 is a
// submitter. Each statement would make a signature without a request, move money, or hide its author.
var forgeries = map[string]string{
	"an intent that nobody posted":         `insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, state) values (gen_random_uuid(), $1, 'forged', 'email:shop@fencepost.example', '\x00', 'QUEUED')`,
	"another payload":                      `update tx_document set bytes = '\x00' where tx_id in (select tx_id from managed_tx where submitter = $1)`,
	"a held intent that goes on":           `update managed_tx set held = false, held_for = null where held and $1 <> ''`,
	"a nonce for it":                       `update managed_tx set nonce = 0 where submitter = $1`,
	"signed bytes of its own":              `insert into tx_version (tx_id, version, kind) select tx_id, 9, 'BUMP' from managed_tx where submitter = $1`,
	"the next nonce":                       `update submitter_nonce_cursor set next_nonce = 7 where submitter = $1`,
	"itself among the callers":             `update submitter set callers = array['*'] where submitter = $1`,
	"a signer of its own":                  `update submitter set signer = 'remote:mine' where submitter = $1`,
	"a submitter that was suspended":       `update submitter set status = 'ACTIVE' where submitter = $1`,
	"no policy any more":                   `update submitter_policy set max_value_wei = null, targets = null where submitter = $1`,
	"a change that no operator made":       `insert into submitter_change (submitter, action, by, reason) values ($1, 'RESUME', 'ada@fencepost.example', 'forged')`,
	"a database that nobody accepted":      `update database_identity set accepted_by = $1`,
	"the end of PROTECT":                   `update protect_incident set closed_at = clock_timestamp() where submitter = $1`,
	"money in Funding":                     `update balances_tb set available = available + 1 where $1 <> ''`,
	"a payment that is already made":       `insert into payout_proof (req_id, tx_hash) values ('r', $1)`,
	"transfers that go on after a halt":    `update transfer_halt set resumed_at = clock_timestamp() where $1 <> ''`,
	"a transfer's state":                   `update transfers_tb set state = 40 where $1 <> ''`,
	"a mark of the database":               `insert into database_mark (id, written_over, reason) values ('forged', 0, $1)`,
	"books that hide what is missing":      `delete from conservation_sum where $1 <> ''`,
	"an operator's word about a payout":    `insert into payout_statement (req_id, paid, by, reason) values ('r', true, 'ada@fencepost.example', $1)`,
	"a decision that no operator made":     `update tx_decision set by = 'ada@fencepost.example' where reason = $1`,
	"a decision of another day":            `insert into tx_decision (tx_id, action, by, reason, at) select tx_id, 'WAIT', 'ada@fencepost.example', 'forged', 'yesterday' from managed_tx where submitter = $1`,
	"a change of another day":              `insert into submitter_change (submitter, action, by, reason, at) values ($1, 'RESUME', 'ada@fencepost.example', 'forged', 'yesterday')`,
	"a link of the audit chain":            `insert into audit_link (submitter, number, change_id, at, hash) values ($1, 1000, 1000, now(), '')`,
	"a link in another's name":             `select link_audit($1, null, 1, 'admin')`,
	"an end of the audit chain":            `update audit_head set number = 0 where submitter = $1`,
	"a seal of its own":                    `insert into audit_seal (number, heads, hash) values (1000, '{}', '') on conflict (number) do update set heads = to_jsonb($1::text)`,
	"an approval that nobody gave":         `update proposal set status = 'APPROVED' where $1 <> ''`,
	"a proposal that nobody made":          `insert into proposal (kind, act, subject) values ('policy', 'policy', to_jsonb($1::text))`,
	"a second name for a change":           `insert into submitter_change (submitter, action, by, reason, approved_by) values ($1, 'RESUME', 'ada@fencepost.example', 'forged', 'ben@fencepost.example')`,
	"an approval by the database":          `select approve_proposal(gen_random_uuid(), $1, '{}', 'forged')`,
	"an answer in the trading core's name": `update transfer_resolution set verdict = 'SUCCESS' where $1 <> ''`,
}

// may lists the statements that belong to a function's own work.
var may = map[string][]string{
	"create":       {"an intent that nobody posted", "a held intent that goes on"},
	"advance":      {"a nonce for it", "signed bytes of its own", "the next nonce"},
	"transfer":     {"an intent that nobody posted", "a held intent that goes on", "money in Funding", "a payment that is already made", "a transfer's state", "an answer in the trading core's name"},
	"conservation": {"books that hide what is missing"},
	"sweep":        {"a mark of the database"},
	"admin": {
		"an approval by the database", "an intent that nobody posted", "a held intent that goes on", "a nonce for it", "the next nonce", "itself among the callers", "a signer of its own", "a submitter that was suspended",
		"no policy any more", "a change that no operator made", "a database that nobody accepted", "the end of PROTECT", "money in Funding",
		"a payment that is already made", "transfers that go on after a halt", "a transfer's state", "a mark of the database",
		"books that hide what is missing", "an operator's word about a payout", "an answer in the trading core's name",
	},
}

// never lists statements that no function's role may run: each changes a final row, removes the
// database's guards, or leaves the database. $1 is a submitter.
var never = map[string]string{
	"a transaction less":            `delete from managed_tx where submitter = $1`,
	"all transactions less":         `truncate managed_tx cascade`,
	"its history less":              `delete from tx_history where $1 <> ''`,
	"all history less":              `truncate tx_history`,
	"another history":               `update tx_history set reason = 'forged' where $1 <> ''`,
	"a decision less":               `delete from tx_decision where $1 <> ''`,
	"a version less":                `delete from tx_version where $1 <> ''`,
	"a document less":               `delete from tx_document where $1 <> ''`,
	"a submitter less":              `delete from submitter where submitter = $1`,
	"a policy less":                 `delete from submitter_policy where submitter = $1`,
	"a lease less":                  `delete from submitter_lease where submitter = $1`,
	"what is final, once more":      `update managed_tx set state = 'QUEUED' where submitter = $1`,
	"what is final, otherwise":      `update managed_tx set last_error = 'forged' where submitter = $1`,
	"another nonce of what has one": `update managed_tx set nonce = 7 where submitter = $1`,
	"another caller":                `update managed_tx set caller = 'email:mallory@evil.example' where submitter = $1`,
	"another request":               `update managed_tx set request_id = 'forged' where submitter = $1`,
	"another fingerprint":           `update managed_tx set fingerprint = sha256('x') where submitter = $1`,
	"another handler":               `update managed_tx set handler = 'evil' where submitter = $1`,
	"another MAC":                   `update managed_tx set mac = sha256('x') where submitter = $1`,
	"a fencing token of before":     `update submitter_lease set fencing_token = fencing_token - 1 where submitter = $1`,
	"a nonce once more":             `update submitter_nonce_cursor set next_nonce = 0 where submitter = $1`,
	"another first nonce":           `update submitter set start_nonce = 7 where submitter = $1`,
	"no MACs any more":              `insert into intent_mac_rule (required, by, reason) values (false, $1, 'forged')`,
	"a link less":                   `delete from audit_link where $1 <> ''`,
	"triggers off":                  `alter table managed_tx disable trigger all`,
	"a trigger less":                `drop trigger guard_mac on managed_tx`,
	"all triggers off":              `set session_replication_role = replica`,
	"a temporary table in front":    `create temporary table tx_document (tx_id uuid, name text, bytes bytea)`,
	"a table of its own":            `create table mine (x int)`,
	"a schema of its own":           `create schema mine`,
	"another function":              `create or replace function require_mac() returns trigger language plpgsql as 'begin return new; end'`,
	"another role":                  `set role pg_write_all_data`,
	"a superuser":                   `create role mallory superuser`,
	"a program":                     `copy managed_tx to program 'id'`,
	"a file":                        `select pg_read_file('/etc/passwd')`,
	"another server's setting":      `alter system set fsync = off`,
}

// undone is the code by which the database refused the statement, or "" if it did not.
func undone(t *testing.T, d deployment, db *pgx.Conn, statement string, s txmanager.Submitter) string {
	t.Helper()
	tx := must(db.Begin(d.ctx))(t)
	defer tx.Rollback(d.ctx)
	var args []any
	if strings.Contains(statement, "$1") {
		args = []any{string(s)}
	}
	_, err := tx.Exec(d.ctx, statement, args...)
	pg, _ := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
		return ""
	case pg == nil || strings.HasPrefix(pg.Code, "42") && pg.Code != insufficientPrivilege:
		t.Fatalf("%s: got %v: it says nothing of rights", statement, err)
	}
	return pg.Code
}

// An attacker in one function has only that function's database role. Each forging statement is
// refused unless it is the function's own work.
func TestAFunctionsRoleIsItsOwn(t *testing.T) {
	t.Parallel()
	d := setup(t, stack.Options{Split: true, Processes: 1, Transfers: true, Submitters: 2})
	s := d.Submitters()[0]
	honest := d.post(t, d.token(t, stack.CallerAccount), s, "an honest one")
	d.await(t, honest.TxID, "CONFIRMED") // each function with its own role does its own work
	d.held(t, d.Submitters()[1])
	for _, function := range []string{"create", "query", "cancel", "admin", "advance", "receipt", "confirm", "resubmit", "sweep", "publish", "transfer", "conservation"} {
		db := must(pgx.Connect(d.ctx, d.DatabaseURLOf(function)))(t)
		defer db.Close(d.ctx)
		own := make(map[string]bool)
		for _, name := range may[function] {
			own[name] = true
		}
		for name, statement := range forgeries {
			if refused := undone(t, d, db, statement, s) == insufficientPrivilege; refused == own[name] {
				t.Errorf("%s as %s: got refused %t, want %t", name, function, refused, !own[name])
			}
		}
		for name, statement := range never {
			if undone(t, d, db, statement, s) == "" {
				t.Errorf("%s as %s: got it done, want it refused to every role", name, function)
			}
		}
	}
}

// held leaves an intent that waits for a decision, as after a restore.
func (d deployment) held(t *testing.T, s txmanager.Submitter) {
	t.Helper()
	d.Chain.StopMining()
	shop := d.token(t, stack.CallerAccount)
	d.await(t, d.post(t, shop, s, "has its nonce").TxID, "TRACKING")
	waits := d.post(t, shop, s, "is held")
	if tag, err := d.DB.Exec(d.ctx, `update managed_tx set held = true where tx_id = $1 and state = 'QUEUED'`, waits.TxID); err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("hold an intent: got %v, %v; want one", tag, err)
	}
}

// insufficientPrivilege is what Postgres answers who has no right to a statement.
const insufficientPrivilege = "42501"
