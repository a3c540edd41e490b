package pgcluster

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
)

// identity holds the values that identify a server.
type identity struct {
	system   string
	timeline string
}

func identityOf(t *testing.T, c *Cluster) (i identity) {
	t.Helper()
	conn := connect(t, c.URL("postgres"))
	err := conn.QueryRow(t.Context(), `
select (select system_identifier::text from pg_control_system()), left(pg_walfile_name(pg_current_wal_lsn()), 8)`).Scan(&i.system, &i.timeline)
	check.OK(t)(err)
	return i
}

// rowsIn adds so many rows to a table.
func rowsIn(t *testing.T, c *Cluster, n int) {
	t.Helper()
	conn := connect(t, c.URL("postgres"))
	execute(t, conn, "create table if not exists written (n int)")
	check.OK(t)(conn.Exec(t.Context(), "insert into written select generate_series(1, $1)", n))
}

func wantRows(t *testing.T, c *Cluster, want int) {
	t.Helper()
	check.Equal(t, "rows", scan[int](t, connect(t, c.URL("postgres")), "select count(*) from written"), want)
}

// tools is the folder of a server that can be copied and upgraded.
func tools(t *testing.T) string {
	t.Helper()
	folder, err := FindTools()
	if errors.Is(err, ErrNoVersion) {
		t.Skip("Left out: ", err)
	}
	check.OK(t)(err)
	return folder
}

// The version into which a dump is loaded can be started here, if it could be fetched.
func TestFindVersionOfThisMachine(t *testing.T) {
	t.Parallel()
	const major = 17
	folder, err := FindVersion(major)
	if errors.Is(err, ErrNoVersion) {
		t.Skip("Left out: ", err)
	}
	check.OK(t)(err)
	c := launch(t, Options{Binaries: folder, SharedBuffersMB: 16})
	check.Equal(t, "version", scan[int](t, connect(t, c.URL("postgres")), "select current_setting('server_version_num')::int / 10000"), major)
	check.Err(t, "a version that is nowhere", ErrNoVersion)(FindVersion(1))
}

// A restored backup has its rows and the unchanged identity.
func TestABackupThatIsPutBackKeepsTheIdentity(t *testing.T) {
	t.Parallel()
	c := launch(t, Options{Binaries: tools(t), SharedBuffersMB: 16})
	rowsIn(t, c, 10)
	before := identityOf(t, c)
	check.OK(t)(c.Backup(t.Context()))
	rowsIn(t, c, 5)
	check.OK(t)(c.PutBack(t.Context()))
	wantRows(t, c, 10)
	check.Equal(t, "identity", identityOf(t, c), before)
}

// pg_upgrade accepts a cluster with templates, loses nothing and makes a new system identifier.
func TestUpgradeMakesAnotherSystem(t *testing.T) {
	t.Parallel()
	c := launch(t, Options{Binaries: tools(t), SharedBuffersMB: 16})
	rowsIn(t, c, 10)
	check.OK(t)(c.Template(t.Context(), "closed", oneRow))
	before := identityOf(t, c)
	check.OK(t)(c.Upgrade(t.Context()))
	wantRows(t, c, 10)
	if after := identityOf(t, c); after.system == before.system {
		t.Errorf("identity: got %+v, want another system than before", after)
	}
}

// A replica has all commits before the normal stop of its primary, and its promotion begins a new
// timeline.
func TestPromotionBeginsATimeline(t *testing.T) {
	t.Parallel()
	c := launch(t, Options{Binaries: tools(t), SharedBuffersMB: 16})
	before := identityOf(t, c)
	r := check.Value(c.Replica(t.Context()))(t)
	t.Cleanup(func() { check.Err(t, "stop", nil)(r.Stop()) })
	rowsIn(t, c, 10)
	check.OK(t)(c.Halt(t.Context(), false))
	check.OK(t)(r.Promote(t.Context()))
	wantRows(t, r, 10)
	if after := identityOf(t, r); after.system != before.system || after.timeline == before.timeline {
		t.Errorf("identity: got %+v, want the same system on another timeline than %+v", after, before)
	}
	if _, err := pgx.Connect(t.Context(), c.URL("postgres")); err == nil {
		t.Error("the stopped primary takes connections")
	}
}
