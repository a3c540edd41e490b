package moves

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/checkers"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
)

// migrates runs the migration job's program on the database that is in use.
func (d *deployment) migrates(arguments ...string) (string, error) {
	d.t.Helper()
	run := exec.CommandContext(d.ctx, migrate.Path, arguments...)
	run.Env = append(os.Environ(), "FENCEPOST_DATABASE_URL="+d.Database)
	for _, name := range []string{"FENCEPOST_MARK_BUCKET", "FENCEPOST_MARK_ENDPOINT"} {
		run.Env = append(run.Env, name+"="+d.Setting(name))
	}
	out, err := run.CombinedOutput()
	return string(out), err
}

// decides runs a command of a move, which must succeed.
func (d *deployment) decides(command string) {
	d.t.Helper()
	if out, err := d.migrates(command, "--by", "ada@example.com", "--reason", "the rehearsal"); err != nil {
		d.t.Fatalf("migrate %s: %v\n%s", command, err, out)
	}
}

// releaseUntouched asks once.
func (d *deployment) releaseUntouched() (status int, text string, u client.UntouchedReport) {
	d.t.Helper()
	status, text = d.operate("/admin/v1/database/release-untouched", map[string]any{"reason": "the rehearsal"})
	if status == http.StatusOK {
		check(d.t, json.Unmarshal([]byte(text), &u), "release-untouched:", text)
	}
	return status, text, u
}

// notCheap requires that no submitter is released in bulk, as the database can lack commits.
func (d *deployment) notCheap() {
	d.t.Helper()
	if status, text, _ := d.releaseUntouched(); status != http.StatusConflict || !strings.Contains(text, "NOT_A_PLANNED_MOVE") {
		d.t.Errorf("release-untouched: got %d %s, want 409 NOT_A_PLANNED_MOVE", status, text)
	}
	wantValue(d, "submitters in PROTECT", len(d.everyone()), `select count(*) from protect_incident where closed_at is null`)
}

// movesAsPlanned announces a move under load, makes it, confirms it and releases every
// submitter at once. Nothing is lost, nothing is in doubt, and everything goes on.
func (d *deployment) movesAsPlanned(move func()) {
	d.t.Helper()
	l := d.run()
	l.more(60)
	before := d.identity()
	d.decides("expect-move")
	stopped := d.committed()
	if status, text := l.post(d.Submitters()[0]); status != http.StatusServiceUnavailable || !strings.Contains(text, "MOVE_EXPECTED") {
		d.t.Errorf("a post while the move is expected: got %d %s, want 503 MOVE_EXPECTED", status, text)
	}
	if status, text := l.pay(); status != http.StatusServiceUnavailable {
		d.t.Errorf("a payout while the move is expected: got %d %s, want 503", status, text)
	}
	if out, err := d.migrates("confirm-move", "--by", "ada@example.com", "--reason", "too early"); err == nil {
		d.t.Errorf("confirm-move on the server that is to be left: got %s, want it refused", out)
	}
	if got := d.committed(); got != stopped {
		d.t.Errorf("rows while the move is expected: got %s, want %s as before", got, stopped)
	}
	last := d.marked()
	move()
	if after := d.identity(); after == before {
		d.t.Fatalf("system and timeline: got %s, want others: the move is none", after)
	}
	if got := d.committed(); got != stopped {
		d.t.Errorf("rows on the new server: got %s, want %s as on the old", got, stopped)
	}
	d.decides("confirm-move")
	if now := d.marked(); now.Generation <= last.Generation {
		d.t.Errorf("the mark after the confirmation: got generation %d, want one above %d", now.Generation, last.Generation)
	}
	d.releasesAll()
	d.nothingInDoubt()
	l.more(40)
	l.stop()
	l.all()
	d.nothingInDoubt()
	d.once()
	d.check()
}

// releasesAll releases every submitter in bulk, and singly those that stay. Transactions that had a
// nonce and were unsent at the announcement of the move are sent only after the release. So the
// account never has as many transactions as the database knows.
func (d *deployment) releasesAll() {
	d.t.Helper()
	bulk, same := 0, map[string]int{}
	d.poll("every submitter is released", func() bool { // those in flight first have to be mined
		_, text, u := d.releaseUntouched()
		bulk += len(u.Released)
		d.t.Logf("release-untouched: %s", text)
		for _, one := range u.Left {
			if !strings.HasSuffix(one.Why, "release it by a separate call") {
				continue
			}
			if same[one.Submitter+one.Why]++; same[one.Submitter+one.Why] == 20 {
				d.resumes(one.Submitter)
			}
		}
		return u.Released != nil && u.Remaining == 0
	})
	if bulk == 0 {
		d.t.Error("released in bulk: got no submitter")
	}
}

// resumes releases one submitter, of which nothing was lost.
func (d *deployment) resumes(submitter string) {
	d.t.Helper()
	incident := value[int](d, `select coalesce(max(incident), 0) from protect_incident where submitter = $1 and closed_at is null`, submitter)
	status, text := d.operate("/admin/v1/submitters/"+submitter+"/release", map[string]any{"incident": incident, "mode": "resume", "reason": "the rehearsal"})
	if status != http.StatusOK && status != http.StatusConflict { // it was released in bulk meanwhile
		d.t.Fatalf("release of %s: got %d %s, want 200", submitter, status, text)
	}
}

// committed is what must be the same before and after a planned move.
func (d *deployment) committed() string {
	d.t.Helper()
	return value[string](d, `
select concat_ws(' ', (select count(*) from managed_tx), (select max(seq) from managed_tx), (select count(*) from tx_version),
       (select count(*) from managed_tx where open), (select string_agg(next_nonce::text, ',' order by submitter) from submitter_nonce_cursor),
       (select count(*) from transfers_tb), (select max(id) from transfer_operations))`)
}

// nothingInDoubt wants what a restore leaves, and a planned move does not.
func (d *deployment) nothingInDoubt() {
	d.t.Helper()
	for what, query := range map[string]string{
		"acceptances, after which payouts are in doubt": `select count(*) from identity_change`,
		"held intents":            `select count(*) from managed_tx where held`,
		"halts of transfers":      `select count(*) from transfer_halt`,
		"statements of operators": `select count(*) from payout_statement`,
	} {
		wantValue(d, what, 0, query)
	}
}

// check holds chain, history and ledgers to their promises, once everything has ended.
func (d *deployment) check() {
	d.t.Helper()
	var found string
	var err error
	d.poll("everything has ended", func() bool {
		var violations []checkers.Violation
		violations, err = checkers.Check(d.ctx, checkers.Run{Database: d.Database, RPC: d.Chain.URL(), Submitters: d.everyone(), Settled: true})
		if found = ""; len(violations) > 0 {
			found = checkers.Report(violations)
		}
		unsettled := slices.ContainsFunc(violations, func(v checkers.Violation) bool { return v.Checker == "settled" })
		if err != nil || unsettled {
			return err != nil
		}
		lost, wrong := money.Check(d.ctx, money.Run{Database: d.Database, Core: d.Core.Ledger(), Settled: true})
		if err = wrong; len(lost) > 0 {
			found += money.Report(lost)
		}
		return len(violations) > 0 || len(lost) == 0 || wrong != nil
	})
	if err != nil || found != "" {
		d.t.Errorf("the checkers: got %s, %v; want nothing found", found, err)
	}
}

// pg_upgrade makes another system of the same rows. The version is the same: what the
// rehearsal is about is the new system identifier.
func TestPlannedUpgrade(t *testing.T) {
	t.Parallel()
	d := deploy(t, true, stack.Options{})
	d.movesAsPlanned(func() {
		check(t, d.cluster.Upgrade(d.ctx))
	})
}

// A planned switch to a replica: the primary is stopped in order, so that the replica
// has everything, and then it is promoted.
func TestPlannedSwitchToAReplica(t *testing.T) {
	t.Parallel()
	d := deploy(t, true, stack.Options{WireProxy: true})
	replica := d.replicate()
	d.movesAsPlanned(func() {
		check(t, d.cluster.Halt(d.ctx, false))
		check(t, replica.Promote(d.ctx))
		d.moveTo(replica)
	})
}

// numberedOn is the statement of docs/runbooks/postgres-upgrade.md.
var numberedOn = regexp.MustCompile(`(?m)^do \$\$ begin while pg_current_xact_id\(\) <= '20928'::xid8 loop commit; end loop; end \$\$;$`)

// A dump of this machine's version is loaded into Postgres 17. A load is confirmed only
// once the new cluster has numbered as many transactions as the journals know.
func TestPlannedDumpIntoPostgres17(t *testing.T) {
	t.Parallel()
	binaries, err := pgcluster.FindVersion(17)
	if errors.Is(err, pgcluster.ErrNoVersion) {
		t.Skip("Left out: ", err)
	}
	check(t, err)
	d := deploy(t, true, stack.Options{WireProxy: true})
	next := must(pgcluster.Start(d.ctx, pgcluster.Options{Binaries: binaries, SharedBuffersMB: 32}))(t)
	d.ends("stop Postgres 17", next.Stop)
	d.numberOn(value[string](d, `select (pg_current_xact_id()::text::bigint + 30000)::text`)) // more than a load takes
	d.movesAsPlanned(func() {
		d.load17(next)
		check(t, d.cluster.Halt(d.ctx, false))
		d.moveTo(next)
		out, err := d.migrates("confirm-move", "--by", "ada@example.com", "--reason", "the numbers are not there yet")
		found := regexp.MustCompile(`rows of transaction (\d+)`).FindStringSubmatch(out)
		if err == nil || found == nil {
			t.Fatalf("confirm-move before the numbers are passed: got %v %s, want it refused with the number", err, out)
		}
		d.numberOn(found[1])
	})
	if got := value[string](d, `show server_version_num`); !strings.HasPrefix(got, "17") {
		t.Errorf("version: got %s, want 17", got)
	}
}

// numberOn lets the cluster number its transactions on to that one, as the runbook does.
func (d *deployment) numberOn(to string) {
	d.t.Helper()
	page := must(os.ReadFile("../../../docs/runbooks/postgres-upgrade.md"))(d.t)
	statement := numberedOn.FindString(string(page))
	if statement == "" {
		d.t.Fatal("docs/runbooks/postgres-upgrade.md: got no statement that numbers on, want one")
	}
	conn := must(pgx.Connect(d.ctx, d.Database))(d.t)
	defer conn.Close(d.ctx)
	must(conn.Exec(d.ctx, strings.ReplaceAll(statement, "20928", to)))(d.t)
}

// load17 loads the deployment's database, and the roles, into another cluster.
func (d *deployment) load17(to *pgcluster.Cluster) {
	d.t.Helper()
	name := value[string](d, `select current_database()`)
	for _, command := range []string{
		`pg_dumpall --roles-only --dbname="$0" | grep -v 'ROLE postgres[ ;]' | psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 "$1"`,
		`pg_dump --create "$0" | psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 "$1"`,
	} {
		run := exec.CommandContext(d.ctx, "bash", "-c", "set -o pipefail; "+command, d.cluster.URL(name), to.URL("postgres"))
		if out, err := run.CombinedOutput(); err != nil {
			d.t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
}
