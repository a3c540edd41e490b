package conservation_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/store"
	book "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/transfer"
)

// A run continues from the current checkpoint, or from a full run of the last hour. It does not
// continue from an old one, nor in another database.
func TestRunsContinueFromTheCurrentCheckpoint(t *testing.T) {
	t.Parallel()
	const copied = `insert into conservation_checkpoint (generation, epoch, cursors, begun_at, over) overriding system value
		select %s, epoch, cursors, clock_timestamp() - %s, false from conservation_checkpoint where is_current`
	for name, c := range map[string]struct {
		prepare string
		full    bool
		want    string
	}{
		"an incremental run":                          {`select 1`, false, "1 false"},
		"a full one":                                  {`select 1`, true, "2 true"},
		"a full one, after another that stopped":      {fmt.Sprintf(copied, "7", "interval '59 minutes'"), true, "7 true"},
		"a full one, after one that stopped long ago": {fmt.Sprintf(copied, "7", "interval '61 minutes'"), true, "2 true"},
		"a full one, beside one that is over":         {fmt.Sprintf(copied, "0", "interval '1 minute'"), true, "2 true"},
		"an incremental run on what is over":          {`update conservation_checkpoint set over = true`, false, "2 true"},
		"the next, after a full one that stopped":     {`update conservation_checkpoint set over = true; ` + fmt.Sprintf(copied, "7", "interval '1 minute'"), false, "7 true"},
		"a full one, after one that is over":          {fmt.Sprintf(copied, "7", "interval '1 minute'") + `; update conservation_checkpoint set over = true where generation = 7`, true, "2 true"},
		"a full one, after one that a process of before began": {
			`insert into conservation_checkpoint (generation, epoch, cursors) overriding system value select 7, epoch, '{"SPOT": "3"}' from conservation_checkpoint`, true, "2 true"},
		"an incremental run in another database": {`update database_identity set epoch = '00000000'`, false, "2 true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.check(false)
			check.OK(t)(w.main.DB.Exec(t.Context(), c.prepare))
			at, err := w.Book.Begin(t.Context(), c.full)
			if got := fmt.Sprint(at.Generation, at.Full); err != nil || got != c.want {
				t.Errorf("got generation %s, error %v; want %s", got, err, c.want)
			}
		})
	}
}

// A full run deletes the previous generation, and supersedes runs that use it.
func TestFullRunReplacesTheGeneration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.history()
	w.check(false)
	before := check.Value(w.Book.Begin(t.Context(), false))(t)
	w.main.Run(t, newScale+`, 'SPOT', 1, 2`+fromHere)
	w.check(true)
	for table, want := range map[string]int{"conservation_checkpoint": 1, "conservation_sum": 1, "conservation_request": 1, "conservation_scale": 0} {
		check.Equal(t, fmt.Sprintf("generations in %s", table), value[int](t, w.main, `select count(distinct generation) from `+table), want)
	}
	if _, err := w.Book.Store(t.Context(), conservation.Step{From: before}); err == nil {
		t.Error("a step of the generation that is over: got no error")
	}
	if _, err := w.Book.Sums(t.Context(), before, transfer.Funding); err == nil {
		t.Error("sums of the generation that is over: got no error")
	}
}

// Before a generation is deleted, runs that read it are superseded: half of its sums would look like
// violations.
func TestReadersOfADeletedGenerationAreSuperseded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.history()
	w.check(false)
	before := check.Value(w.Book.Begin(t.Context(), false))(t)
	holder := w.main.Holding(t, `select from conservation_sum for update`)
	done := storetest.Start(func() (conservation.Report, error) { return w.Check(t.Context(), true) })
	storetest.Await(t, "the check waits for the lock", func() bool {
		return value[bool](t, w.main, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`)
	})
	check.Err(t, "sums that are being thrown away", conservation.ErrSuperseded)(w.Book.Sums(t.Context(), before, transfer.Funding))
	holder.Do("rollback")
	check.OK(t)((<-done).Err)
}

// The functions' database role, which alters no table, has all necessary rights.
func TestFunctionsRoleHasAllRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	role, password := "function_"+rand.Text()[:8], rand.Text()
	for _, statement := range []string{`create role "%s" login password '` + password + `'`,
		`grant select, insert, update, delete on all tables in schema public to "%s"`, `grant usage on all sequences in schema public to "%s"`} {
		check.OK(t)(w.main.DB.Exec(t.Context(), fmt.Sprintf(statement, role)))
	}
	t.Cleanup(func() {
		check.Err(t, "drop the role", nil)(w.main.DB.Exec(context.Background(), fmt.Sprintf(`drop owned by "%[1]s"; drop role "%[1]s"`, role)))
	})
	u := check.Value(url.Parse(w.main.URL))(t)
	u.User = url.UserPassword(role, password)
	db := check.Value(pgxpool.New(t.Context(), u.String()))(t)
	t.Cleanup(db.Close)
	w.funding = funding.New(db)
	w.Book, w.Funding = book.New(db), w.funding
	w.history()
	w.clean()
	w.steal(alice, gold, 1)
	if r := w.check(false); len(r.Fresh) != 1 || w.halts() != 1 {
		t.Errorf("got %v and %d halts, want one of each", r.Found, w.halts())
	}
}

// numberOn advances the cluster's transaction numbers past a given one, as an operator would.
const numberOn = `do $$ begin while pg_current_xact_id() <= '%s'::xid8 loop commit; end loop; end $$`

// loadElsewhere dumps the transfers' database, loads it into a cluster with lower transaction numbers,
// and makes the world use that one.
func (w *world) loadElsewhere() {
	w.t.Helper()
	cluster := check.Value(pgcluster.Start(w.t.Context(), pgcluster.Options{}))(w.t)
	w.t.Cleanup(func() { _ = cluster.Stop() })
	name, drop, err := cluster.Clone(w.t.Context(), "template1")
	check.OK(w.t)(err)
	w.t.Cleanup(drop)
	url := cluster.URL(name)
	load := osexec.CommandContext(w.t.Context(), "sh", "-c", `pg_dump --no-owner --no-privileges "$0" | psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 "$1"`, w.main.URL, url)
	if out, err := load.CombinedOutput(); err != nil {
		w.t.Fatalf("dump and load: %v\n%s", err, out)
	}
	s := storetest.Open(w.t, storetest.Options(url, storetest.Rules))
	db := check.Value(pgxpool.New(w.t.Context(), url))(w.t)
	w.t.Cleanup(db.Close)
	w.main = storetest.Bundle{Store: s, URL: url, DB: db}
	w.funding = funding.New(db)
	w.Book, w.Funding = book.New(db), w.funding
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
	tools, err := pgcluster.FindTools() // pg_dump refuses a server that is newer than itself
	if errors.Is(err, pgcluster.ErrNoVersion) {
		t.Skip("Left out: ", err)
	}
	check.OK(t)(err)
	cluster := check.Value(pgcluster.Start(t.Context(), pgcluster.Options{Binaries: tools}))(t)
	t.Cleanup(func() { _ = cluster.Stop() })
	w := newWorldOf(t, storetest.NewIn(t, cluster), storetest.NewIn(t, cluster))
	w.history()
	latest := value[string](t, w.main, `select (pg_current_xact_id()::text::bigint + 20000)::text`)
	w.main.Run(t, fmt.Sprintf(numberOn, latest))
	w.committed(transfer.FundingToSpot, alice, gold, 3)
	w.clean()
	w.loadElsewhere()

	err = w.main.AcceptDatabase(t.Context(), "an operator", "loaded")
	var last string
	if _, wrong := fmt.Sscanf(fmt.Sprint(err), "accept the database: rows of transaction %s", &last); wrong != nil || !errors.Is(err, store.ErrNumbersAhead) {
		t.Fatalf("accept: got %v, want it refused, with the number", err)
	}
	check.Equal(t, "databases accepted", value[int](t, w.main, `select count(*) from identity_change`), 0)
	w.main.Run(t, fmt.Sprintf(numberOn, strings.TrimSuffix(last, ":")))
	check.OK(t)(w.main.AcceptDatabase(t.Context(), "an operator", "loaded"))
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
			w.other.Holding(t, `select pg_current_xact_id()`)
			w.committed(transfer.FundingToSpot, alice, gold, 3)
			if table != "" {
				w.main.RunUnguarded(t, table, change)
			}
			w.main.Run(t, `update database_identity set timeline_id = timeline_id + 1`)
			err := w.main.AcceptDatabase(t.Context(), "an operator", "restored")
			if (table == "") != (err == nil) || err != nil && !errors.Is(err, store.ErrNumbersAhead) {
				t.Errorf("accept: got %v, want it refused: %t", err, table != "")
			}
		})
	}
}
