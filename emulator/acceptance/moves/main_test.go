// Package moves rehearses moves of a deployment's database: a restored backup, a promoted replica,
// pg_upgrade, and a dump that is loaded into another version. Clusters, function processes, chain and
// trading core are real. The mark is kept in a storage that Google's client reaches.
package moves

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	checks "github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/mark/gcs"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// migrate is the migration program.
var migrate = acceptancetest.NewProgram("migrations/migrate")

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the URL map's
	acceptancetest.Main(m, "emulator/acceptance/moves", func(bool) error { return nil }, acceptancetest.Server, acceptancetest.Core, migrate)
}

var (
	check    = acceptancetest.Check
	parallel = acceptancetest.Parallel
)

func must[T any](v T, err error) func(testing.TB) T { return acceptancetest.Must(v, err) }

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	checks.Equal(t, what, got, want)
}

// quick are settings under which a lost lease is taken over within seconds.
var quick = acceptancetest.Settings(acceptancetest.Quick, acceptancetest.QuickTransfers, map[string]string{"FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "1s"})

// deployment is a running stack on a separate cluster.
type deployment struct {
	*acceptancetest.Deployment
	cluster *pgcluster.Cluster
	object  *gcs.Object // nil: no mark is kept
	ctx     context.Context
	t       *testing.T
}

// room bounds how many deployments run at once. Each has separate clusters and a separate load, and
// two cores do not keep up with more.
var room = make(chan struct{}, 2)

// deploy starts a deployment with four submitters and payouts. It is swept each second,
// unless o says otherwise: sweeps write a mark in each minute, where one is kept.
func deploy(t *testing.T, marked bool, o stack.Options) *deployment {
	t.Helper()
	binaries, err := pgcluster.FindTools()
	if errors.Is(err, pgcluster.ErrNoVersion) {
		t.Skip("Left out: ", err)
	}
	check(t, err)
	room <- struct{}{}
	t.Cleanup(func() { <-room })
	ctx, cancel := context.WithTimeout(t.Context(), acceptancetest.Within)
	t.Cleanup(cancel)
	d := &deployment{ctx: ctx, t: t, cluster: must(pgcluster.Start(ctx, pgcluster.Options{Binaries: binaries, SharedBuffersMB: 32}))(t)}
	d.ends("stop Postgres", d.cluster.Stop)
	o.Cluster, o.Payouts = d.cluster, true
	o.Submitters, o.Processes, o.Window, o.BlockTime = 4, 2, 4, 200*time.Millisecond
	o.CheckEvery = -1
	o.SweepEvery = cmp.Or(o.SweepEvery, time.Second)
	o.Settings, o.Mark = maps.Clone(quick), marked
	d.Deployment = acceptancetest.StartFor(ctx, t, o)
	if marked {
		d.openMark()
	}
	return d
}

// ends calls f when the test is over.
func (d *deployment) ends(what string, f func() error) {
	d.t.Cleanup(func() {
		if err := f(); err != nil {
			d.t.Errorf("%s: %v", what, err)
		}
	})
}

// openMark lets the test read the mark.
func (d *deployment) openMark() {
	d.t.Helper()
	d.object = must(gcs.Open(d.ctx, d.Storage.Bucket(), mark.ObjectName, d.Storage.Endpoint()))(d.t)
	d.ends("close the storage's client", d.object.Close)
}

// use reads the database at that URL from now on.
func (d *deployment) use(url string) {
	d.t.Helper()
	d.DB.Close()
	d.DB, d.Database = must(pgxpool.New(d.ctx, url))(d.t), url
}

// marked is the mark as it is now.
func (d *deployment) marked() mark.Observed {
	d.t.Helper()
	return must(d.object.Read(d.ctx))(d.t)
}

// minuteLater makes the next sweep write a mark: it writes one in a minute.
func (d *deployment) minuteLater() {
	d.t.Helper()
	must(d.DB.Exec(d.ctx, `update database_mark set at = at - interval '1 minute'`))(d.t)
}

func (d *deployment) sweep() {
	d.t.Helper()
	d.poll("a sweep succeeds", func() bool { return d.RunSweep(d.ctx) == nil })
}

// everyone is every submitter, the payer too.
func (d *deployment) everyone() []txmanager.Submitter { return append(d.Submitters(), d.Payer) }

// value is one value of the database; the test fails where it cannot be read.
func value[T any](d *deployment, query string, arguments ...any) (v T) {
	d.t.Helper()
	var err error
	d.poll("the database answers", func() bool { // after a restart the pool has connections that were cut
		err = d.DB.QueryRow(d.ctx, query, arguments...).Scan(&v)
		return err == nil || !strings.Contains(err.Error(), "57P0") && !strings.Contains(err.Error(), "connect") && !strings.Contains(err.Error(), "EOF") && !strings.Contains(err.Error(), "reset")
	})
	check(d.t, err, query)
	return v
}

func wantValue[T comparable](d *deployment, what string, want T, query string, arguments ...any) {
	d.t.Helper()
	equal(d.t, what, value[T](d, query, arguments...), want)
}

// operate posts an operator's call until it is answered.
func (d *deployment) operate(path string, body any) (status int, text string) {
	d.t.Helper()
	d.poll("an answer to "+path, func() bool {
		code, answer, err := d.Call(d.ctx, stack.OperatorAccount, http.MethodPost, path, body)
		status, text = code, string(answer)
		return err == nil && status < 500 && !strings.Contains(text, "NOT_LEADER")
	})
	return status, text
}

func (d *deployment) poll(what string, met func() bool) {
	d.t.Helper()
	check(d.t, acceptancetest.Wait(d.ctx, met), "still not so:", what)
}
