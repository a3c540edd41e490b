package conservation_test

import (
	"context"
	"errors"
	"fmt"
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/store"
	book "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/transfer"
)

// numberOn advances the cluster's transaction numbers past a given one, as an operator would.
const numberOn = `do $$ begin while pg_current_xact_id() <= '%s'::xid8 loop commit; end loop; end $$`

// loadElsewhere dumps the transfers' database, loads it into a cluster with lower transaction numbers,
// and makes the world use that one.
func (w *world) loadElsewhere() {
	w.t.Helper()
	cluster, err := pgcluster.Start(w.t.Context(), pgcluster.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = cluster.Stop() })
	name, drop, err := cluster.Clone(w.t.Context(), "template1")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(drop)
	url := cluster.URL(name)
	load := osexec.CommandContext(w.t.Context(), "sh", "-c", `pg_dump --no-owner --no-privileges "$0" | psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 "$1"`, w.main.URL, url)
	if out, err := load.CombinedOutput(); err != nil {
		w.t.Fatalf("dump and load: %v\n%s", err, out)
	}
	s, err := store.Open(w.t.Context(), storetest.Options(url, storetest.Rules))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Close)
	db, err := pgxpool.New(w.t.Context(), url)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(db.Close)
	w.main = storetest.Bundle{Store: s, URL: url, DB: db}
	w.funding = funding.New(db)
	w.Book, w.Funding = book.New(db), w.funding.Journal()
}

// A dump in a cluster with lower transaction numbers than the journals' is accepted only once its
// numbers are higher. Then each row is read once.
func TestDumpInAnotherClusterNeedsHigherNumbers(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"pg_dump", "psql"} {
		if _, err := osexec.LookPath(program); err != nil {
			t.Skipf("no %s in the PATH: install Postgres's client", program)
		}
	}
	w := newWorld(t)
	w.history()
	latest := value[string](t, w.main, `select (pg_current_xact_id()::text::bigint + 20000)::text`)
	exec(t, w.main, fmt.Sprintf(numberOn, latest))
	w.committed(transfer.FundingToSpot, alice, gold, 3)
	w.clean()
	w.loadElsewhere()

	err := w.main.AcceptDatabase(t.Context(), "an operator", "loaded")
	var last string
	if _, wrong := fmt.Sscanf(fmt.Sprint(err), "accept the database: rows of transaction %s", &last); wrong != nil || !errors.Is(err, store.ErrNumbersAhead) {
		t.Fatalf("accept: got %v, want it refused, with the number", err)
	}
	if n := value[int](t, w.main, `select count(*) from identity_change`); n != 0 {
		t.Errorf("databases accepted: got %d, want none", n)
	}
	exec(t, w.main, fmt.Sprintf(numberOn, strings.TrimSuffix(last, ":")))
	if err := w.main.AcceptDatabase(t.Context(), "an operator", "loaded"); err != nil {
		t.Fatalf("accept, once the numbers are passed: %v", err)
	}
	for i, full := range []bool{false, false, true, false} {
		r := w.check(full)
		if len(r.Found) > 0 || i == 1 && r.Entries > 0 {
			t.Errorf("check %d (full: %t): got %d entries, %v; want each once, nothing wrong", i, full, r.Entries, r.Found)
		}
	}
	w.steal(alice, gold, 1)
	if r := w.check(false); len(r.Fresh) != 1 || r.Fresh[0].Kind != conservation.BalanceDiffers {
		t.Errorf("a unit is stolen: got %v, want it found", r.Found)
	}
}

// Higher numbers in any journal are detected. Running transactions in other databases of the cluster
// cause no refusal.
func TestHigherNumbersInAnyJournalAreDetected(t *testing.T) {
	t.Parallel()
	const later = `(pg_current_xact_id()::text::bigint + 1000000)::text::xid8`
	for table, change := range map[string]string{
		"transfer_operations": `update transfer_operations set tx = ` + later + ` where id = (select min(id) from transfer_operations)`,
		"transfer_history":    `update transfer_history set tx = ` + later + ` where state = 40`,
		"payout_confirmed": `alter table payout_confirmed drop constraint proof_of_a_transaction;
			insert into payout_confirmed (tx_id, submitter, request_id, tx) select gen_random_uuid(), 'eip155:1:0x' || repeat('0', 40), 'r', ` + later,
		"": `select 1`,
	} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.history()
			holder, err := w.other.DB.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = holder.Rollback(context.Background()) }()
			if _, err := holder.Exec(t.Context(), `select pg_current_xact_id()`); err != nil {
				t.Fatal(err)
			}
			w.committed(transfer.FundingToSpot, alice, gold, 3)
			if table != "" {
				asOwner(t, w.main, table, change)
			}
			exec(t, w.main, `update database_identity set timeline_id = timeline_id + 1`)
			err = w.main.AcceptDatabase(t.Context(), "an operator", "restored")
			if (table == "") != (err == nil) || err != nil && !errors.Is(err, store.ErrNumbersAhead) {
				t.Errorf("accept: got %v, want it refused: %t", err, table != "")
			}
		})
	}
}
