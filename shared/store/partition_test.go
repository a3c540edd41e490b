package store_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// idAt is a UUIDv7 of another time.
func idAt(at time.Time) string {
	id := uuid.Must(uuid.NewV7())
	for i, ms := 5, at.UnixMilli(); i >= 0; i, ms = i-1, ms>>8 {
		id[i] = byte(ms)
	}
	return id.String()
}

// An old quarter is taken away. State, hashes and nonces stay and keep their
// force; the documents and the history are gone, and nothing else.
func TestQuarterIsDetached(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	quarter := time.Now().UTC().AddDate(0, -9, 0)
	quarter = time.Date(quarter.Year(), (quarter.Month()-1)/3*3+1, 1, 0, 0, 0, 0, time.UTC)
	begins := quarter.Format(time.DateOnly)
	db.Run(t, `select make_quarter('tx_document', $1::text::date), make_quarter('tx_history', $1::text::date)`, begins)

	in := intent(alice, "old")
	in.TxID = idAt(quarter.AddDate(0, 1, 0))
	check.OK(t)(db.Create(t.Context(), in, 100))
	lies := `select string_agg(distinct d.tableoid::regclass || ' ' || h.tableoid::regclass, ', ') from tx_document d join tx_history h using (tx_id) where tx_id = $1`
	suffix := fmt.Sprintf("%dq%d", quarter.Year(), quarter.Month()/3+1)
	if got, want := value[string](t, db, lies, in.TxID), "tx_document_"+suffix+" tx_history_"+suffix; got != want {
		t.Fatalf("the documents and history of an old transaction: got them in %s, want in %s", got, want)
	}
	detach := func() error {
		_, err := db.DB.Exec(t.Context(), `select detach_quarter($1::text::date)`, begins)
		return err
	}
	if err := detach(); err == nil {
		t.Error("detach with an unfinished transaction in the quarter: got no error, want it refused")
	}
	in7 := txmanager.Header{Number: 7, Hash: txmanager.Hash{7}}
	endAll(t, db, alice, `{"logs": []}`, in7)
	if err := detach(); err == nil {
		t.Error("detach with a transaction that has just ended: got no error, want it refused")
	}
	before := check.Value(store.RecordOf(db.TxWaiting(t.Context(), in.TxID, operator)))(t)
	db.RunUnguarded(t, "managed_tx", `update managed_tx set updated_at = updated_at - interval '31 days'`)
	check.OK(t)(detach())

	after := check.Value(store.RecordOf(db.TxWaiting(t.Context(), in.TxID, operator)))(t)
	const facts = `{"txHash": "%s", "document": %s, "blockHash": "%s", "succeeded": true, "blockNumber": 7}`
	h := storetest.Signed(alice, 0, in.TxID).Hash
	wantBefore, wantAfter := fmt.Sprintf(facts, h, `{"logs": []}`, txmanager.Hash{7}), fmt.Sprintf(facts, h, `null`, txmanager.Hash{7})
	check.Equal(t, "receipt", string(before.Receipt), wantBefore)
	check.Equal(t, "receipt without its document", string(after.Receipt), wantAfter)
	before.Receipt, before.UpdatedAt = after.Receipt, after.UpdatedAt
	check.Same(t, "the rest of it", after, before)
	if again := post(t, db, alice, "old"); again.New || again.TxID != in.TxID {
		t.Errorf("posted again: got %+v, want the stored %s", again, in.TxID)
	}
	check.Equal(t, "documents", value[int](t, db, `select count(*) from tx_document`), 0)
	if _, err := db.FinalTransactions(t.Context(), alice, []txmanager.Hash{{7}}); err == nil {
		t.Error("bytes to send again that are archived: got no error, want one")
	}
	check.Equal(t, "intents that are not compared", check.Value(db.HasMoreIntents(t.Context(), alice))(t), false)
	check.Equal(t, "intents alike", len(check.Value(db.MatchingIntents(t.Context(), alice, txmanager.ConsumingTx{ValueWei: "0"}))(t)), 0)
	db.Run(t, `alter table tx_history attach partition tx_history_`+suffix+` for values from (tx_id_at('`+begins+`')) to (tx_id_at(`+"'"+quarter.AddDate(0, 3, 0).Format(time.DateOnly)+`'))`)
	check.Equal(t, "history, read by the runbook's query", value[string](t, db,
		`select string_agg(distinct submitter || ' ' || tx_hash, ', ') from (`+archiveQuery(t, in.TxID)+`) as h where state = 'CONFIRMED'`), string(alice)+" "+h.String())
	post(t, db, alice, "new")
	endAll(t, db, alice, `{}`, in7)
	check.Equal(t, "with the next", value[string](t, db, `select string_agg(nonce || ' ' || state, ', ' order by nonce) from managed_tx`), "0 CONFIRMED, 1 CONFIRMED")
}

// archiveQuery is the query by which docs/runbooks/archive.md reads the history of a transaction.
func archiveQuery(t *testing.T, txID string) string {
	t.Helper()
	page := string(check.Value(os.ReadFile("../../docs/runbooks/archive.md"))(t))
	query := regexp.MustCompile(`select h\.\* from tx_history_full h [^;]*`).FindString(page)
	example := regexp.MustCompile(`'[0-9a-f-]{36}'`)
	if !example.MatchString(query) {
		t.Fatalf("the page's query: got %q, want one with an example id", query)
	}
	return example.ReplaceAllString(query, "'"+txID+"'")
}

// A transaction to be sent whose documents are missing is not touched: no load takes it for
// another.
func TestLoadWithoutDocumentsIsRefused(t *testing.T) {
	t.Parallel()
	for what, name := range map[string]string{"queued, its payload": "payload", "sent, its bytes": "version:1"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 1, alice)
			post(t, db, alice, "r")
			if name != "payload" {
				sendAll(t, db, alice)
			}
			db.Run(t, `alter table tx_document disable trigger user`)
			db.Run(t, `delete from tx_document where name = $1`, name)
			if taken, err := db.Acquire(t.Context(), alice, "a/1", true); err == nil {
				t.Errorf("take: got %+v, want an error", taken.State)
			}
		})
	}
}

// A transaction that a node has, and that is not due, is loaded without payload and bytes,
// unless it is the lowest or a PROTECT incident is open.
func TestQuietTransactionsAreLoadedWithoutDocuments(t *testing.T) {
	t.Parallel()
	const five = 5
	later := func(w txmanager.SubmitterState, i int, change func(*txmanager.Tx)) txmanager.Transition {
		tx := w.Open[i]
		at := w.Now.Add(time.Hour)
		tx.State, tx.Sub, tx.NextResubmitAt = txmanager.Tracking, txmanager.Pending, &at
		change(&tx)
		return txmanager.Transition{From: txmanager.Submitted, To: tx}
	}
	arrange := func(t *testing.T, stuckAfter time.Duration) (storetest.Bundle, *store.Store) {
		db := registered(t, five, alice)
		postMany(t, db, alice, five)
		sendAll(t, db, alice)
		w := take(t, db, alice, "a/1")
		soon, longAgo := w.Now.Add(20*time.Second), w.Now.Add(-40*time.Minute)
		write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun, Transitions: []txmanager.Transition{
			later(w, 0, func(*txmanager.Tx) {}), later(w, 1, func(*txmanager.Tx) {}),
			later(w, 2, func(x *txmanager.Tx) { x.NextResubmitAt = &soon }), later(w, 3, func(x *txmanager.Tx) { x.FirstSubmitAt = &longAgo }),
		}})
		return db, reopened(t, db, func(o *store.Options) { o.StuckAfter = stuckAfter }).Store
	}
	for what, test := range map[string]struct {
		stuckAfter time.Duration
		first      string
		want       [five]bool // whose documents come
	}{
		"with a node":        {30 * time.Minute, `select 1`, [five]bool{true, false, true, true, true}},
		"no age is young":    {0, `select 1`, [five]bool{true, true, true, true, true}},
		"STUCK soon":         {20 * time.Second, `select 1`, [five]bool{true, true, true, true, true}},
		"in PROTECT":         {30 * time.Minute, openAlices, [five]bool{true, true, true, true, true}},
		"ordered":            {30 * time.Minute, `update managed_tx set requested_action = 'CANCEL' where nonce = 1`, [five]bool{true, true, true, true, true}},
		"with a receipt":     {30 * time.Minute, `update managed_tx set sub_state = 'INCLUDED', receipt = '{}' where nonce = 1`, [five]bool{true, true, true, true, true}},
		"another is ordered": {30 * time.Minute, `update managed_tx set requested_action = 'CANCEL' where nonce = 4`, [five]bool{true, false, true, true, true}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			db, s := arrange(t, test.stuckAfter)
			db.Run(t, test.first)
			taken, err := s.Acquire(t.Context(), alice, "a/2", true)
			if err != nil || !taken.Held {
				t.Fatalf("take: got %+v, %v", taken, err)
			}
			for i, tx := range taken.State.Open {
				if payload, raw := tx.Payload != nil, tx.Raw != nil; payload != test.want[i] || raw != test.want[i] {
					t.Errorf("nonce %d: got payload %t, bytes %t; want both %t", i, payload, raw, test.want[i])
				}
			}
		})
	}
}

const openAlices = `insert into protect_incident (submitter, incident, evidence) values ('` + string(alice) + `', 1, '{}')`

// Partitions are created ahead, once, by concurrent callers, while others write. Rows in the
// default partition stay there.
func TestPartitionsAreKept(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	check.Equal(t, "after migration", check.Value(db.KeepPartitions(t.Context()))(t), 0)
	all := func() int {
		return value[int](t, db, `select count(*) from pg_inherits where inhparent in ('tx_document'::regclass, 'tx_history'::regclass)`)
	}
	before := all()
	last := value[[]string](t, db, `select array(select max(inhrelid::regclass::text) from pg_inherits
		where inhparent in ('tx_document'::regclass, 'tx_history'::regclass) and inhrelid::regclass::text ~ 'q\d$' group by inhparent order by 1)`)
	for _, part := range last {
		db.Run(t, `drop table `+part)
	}
	const callers = 4
	var calls [callers]<-chan storetest.Outcome[int]
	for i := range calls {
		calls[i] = storetest.Start(func() (int, error) { return db.KeepPartitions(t.Context()) })
	}
	made := 0
	for _, c := range calls {
		got := <-c
		if got.Err != nil {
			t.Errorf("keep: %v", got.Err)
		}
		made += got.Got
	}
	if made != len(last) || all() != before {
		t.Errorf("made by %d at once: got %d, and %d in all; want %d, and %d", callers, made, all(), len(last), before)
	}
	db.Run(t, `drop table `+last[0])
	db.Run(t, `insert into tx_document (tx_id, name, body) values (tx_id_at(clock_timestamp() + interval '6 months'), 'payload', '{}')`)
	check.Equal(t, "with rows of the quarter in the default partition", check.Value(db.KeepPartitions(t.Context()))(t), 0)
	for _, part := range value[[]string](t, db, `select array(select inhrelid::regclass::text from pg_inherits
		where inhparent in ('tx_document'::regclass, 'tx_history'::regclass))`) {
		check.Equal(t, fmt.Sprintf("truncate %s", part), storetest.Violated(db.DB.Exec(t.Context(), `truncate `+part)), "history_never_changes")
	}
}

// A role that may only write rows may have partitions made.
func TestPartitionsAreMadeByARoleWithoutTables(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	last := value[string](t, db, `select max(inhrelid::regclass::text) from pg_inherits where inhparent = 'tx_history'::regclass and inhrelid::regclass::text ~ 'q\d$'`)
	db.Run(t, `drop table `+last)
	conn := db.Connect(t)
	role := "poor_" + value[string](t, db, `select current_database()`)
	conn.Do(`create role ` + role)
	t.Cleanup(func() { _, _ = db.DB.Exec(context.Background(), `drop role `+role) })
	conn.Do(`set role ` + role)
	var made int
	if err := conn.QueryRow(t.Context(), `select ensure_partitions()`).Scan(&made); err != nil || made != 1 {
		t.Errorf("keep partitions: got %d, %v; want 1 made", made, err)
	}
	if _, err := conn.Exec(t.Context(), `select make_quarter('tx_history', '2020-01-01')`); err == nil {
		t.Error("make a quarter of its own choice: got no error, want it refused")
	}
	if _, err := conn.Exec(t.Context(), `select detach_quarter('2020-01-01')`); err == nil {
		t.Error("detach a quarter: got no error, want it refused")
	}
	conn.Do(`reset role`)
}

// An open transaction does not commit without its payload, whichever statement stores that. A
// row that is final at the commit needs none. An operator may archive the payload later.
func TestNoTransactionWithoutAPayload(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	const payload = `insert into tx_document (tx_id, name, body) select tx_id, 'payload', '{}' from managed_tx where request_id = 'r'`
	commit := func(statements ...string) error {
		return pgx.BeginFunc(t.Context(), db.DB, func(tx pgx.Tx) error {
			for _, s := range statements {
				if _, err := tx.Exec(t.Context(), s); err != nil {
					return err
				}
			}
			return nil
		})
	}
	row := func(request, state string) string {
		return `insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, state, sub_state, nonce, prev_nonce)
			values (gen_random_uuid(), '` + string(alice) + `', '` + request + `', 'shop', sha256(''), ` + state + `)`
	}
	for _, state := range []string{`'QUEUED', null, null, null`, `'IN_FLIGHT', null, 0, null`} {
		check.Equal(t, fmt.Sprintf("%s without a payload", state), storetest.Violated(commit(row("r", state))), "transactions_have_payloads")
	}
	check.Err(t, "with its payload in a later statement", nil)(commit(row("r", `'QUEUED', null, null, null`), payload))
	check.Err(t, "a nonce that was lost", nil)(commit(row("lost", `'FAILED', 'DISPLACED', 0, null`)))
	ended := `update managed_tx set state = 'CONFIRMED', sub_state = 'RECORDED', recorded_nonce = 0, event_sequence = 1 where request_id = 'named'`
	check.Err(t, "a lost request that a release names", nil)(commit(row("named", `'QUEUED', null, null, null`), ended))
	db.Run(t, `do $$ declare part regclass; begin
		for part in select inhrelid::regclass from pg_inherits where inhparent = 'tx_document'::regclass loop
			execute format('alter table tx_document detach partition %s', part);
		end loop; end $$`)
	db.Run(t, `update managed_tx set state = $2, sub_state = 'CANCELLED' where submitter = $1 and state = 'QUEUED'`, alice, txmanager.Failed)
}
