package pgcluster

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
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
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// rowsIn adds so many rows to a table.
func rowsIn(t *testing.T, c *Cluster, n int) {
	t.Helper()
	conn := connect(t, c.URL("postgres"))
	execute(t, conn, "create table if not exists written (n int)")
	if _, err := conn.Exec(t.Context(), "insert into written select generate_series(1, $1)", n); err != nil {
		t.Fatal(err)
	}
}

func wantRows(t *testing.T, c *Cluster, want int) {
	t.Helper()
	if got := scan[int](t, connect(t, c.URL("postgres")), "select count(*) from written"); got != want {
		t.Errorf("rows: got %d, want %d", got, want)
	}
}

// The version into which a dump is loaded can be started here, if it could be fetched.
func TestFindVersionOfThisMachine(t *testing.T) {
	t.Parallel()
	const major = 17
	folder, err := FindVersion(major)
	if errors.Is(err, ErrNoVersion) {
		t.Skip("Left out: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := launch(t, Options{Binaries: folder, SharedBuffersMB: 16}, randomPort)
	if got := scan[int](t, connect(t, c.URL("postgres")), "select current_setting('server_version_num')::int / 10000"); got != major {
		t.Errorf("version: got %d, want %d", got, major)
	}
	if _, err := FindVersion(1); !errors.Is(err, ErrNoVersion) {
		t.Errorf("a version that is nowhere: got %v, want %v", err, ErrNoVersion)
	}
}

// A restored backup has its rows and the unchanged identity.
func TestABackupThatIsPutBackKeepsTheIdentity(t *testing.T) {
	t.Parallel()
	c := launch(t, Options{SharedBuffersMB: 16}, randomPort)
	rowsIn(t, c, 10)
	before := identityOf(t, c)
	if err := c.Backup(t.Context()); err != nil {
		t.Fatal(err)
	}
	rowsIn(t, c, 5)
	if err := c.PutBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRows(t, c, 10)
	if after := identityOf(t, c); after != before {
		t.Errorf("identity: got %+v, want %+v as before", after, before)
	}
}

// pg_upgrade loses nothing and makes a new system identifier.
func TestUpgradeMakesAnotherSystem(t *testing.T) {
	t.Parallel()
	c := launch(t, Options{SharedBuffersMB: 16}, randomPort)
	rowsIn(t, c, 10)
	before := identityOf(t, c)
	if err := c.Upgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRows(t, c, 10)
	if after := identityOf(t, c); after.system == before.system {
		t.Errorf("identity: got %+v, want another system than before", after)
	}
}

// A replica has all commits before the normal stop of its primary, and its promotion begins a new
// timeline.
func TestPromotionBeginsATimeline(t *testing.T) {
	t.Parallel()
	c := launch(t, Options{SharedBuffersMB: 16}, randomPort)
	before := identityOf(t, c)
	r, err := c.Replica(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	rowsIn(t, c, 10)
	if err := c.Halt(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := r.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRows(t, r, 10)
	if after := identityOf(t, r); after.system != before.system || after.timeline == before.timeline {
		t.Errorf("identity: got %+v, want the same system on another timeline than %+v", after, before)
	}
	if _, err := pgx.Connect(t.Context(), c.URL("postgres")); err == nil {
		t.Error("the stopped primary takes connections")
	}
}
