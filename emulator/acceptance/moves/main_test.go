// Package moves rehearses moves of a deployment's database: a restored backup, a promoted replica,
// pg_upgrade, and a dump that is loaded into another version. Clusters, function processes, chain and
// trading core are real. The mark is kept in a storage that Google's client reaches.
package moves

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/mark/gcs"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web/webtest"
)

// server, core and migrate are the programs, built once for all tests.
var server, core, migrate string

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the URL map's
	folder, err := os.MkdirTemp("", "fencepost-moves-")
	ctx := context.Background()
	if err == nil {
		server, err = stack.Build(ctx, folder, raceFlags...)
	}
	if err == nil {
		core, err = ubscore.Build(ctx, folder, raceFlags...)
	}
	if err == nil {
		migrate, err = stack.BuildProgram(ctx, folder+"/migrate", "migrations/migrate", raceFlags...)
	}
	code := 1
	if err == nil {
		code = m.Run()
		err = processes.Races()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.RemoveAll(folder)
	os.Exit(code)
}

// within bounds everything that a test waits for.
const within = 8 * time.Minute

// quick are settings under which a lost lease is taken over within seconds.
var quick = map[string]string{
	"FENCEPOST_LEASE_DURATION": "2s", "FENCEPOST_LEASE_RENEW_INTERVAL": "900ms", "FENCEPOST_CLOCK_SKEW_ALLOWANCE": "100ms",
	"FENCEPOST_DATABASE_LOCK_TIMEOUT": "1500ms", "FENCEPOST_DATABASE_IDLE_IN_TRANSACTION_TIMEOUT": "500ms",
	"FENCEPOST_DATABASE_STATEMENT_TIMEOUT": "1800ms", "FENCEPOST_RPC_TIMEOUT": "2s", "FENCEPOST_RESUBMIT_INTERVAL": "1s",
	"FENCEPOST_SWEEP_GRACE": "2s", "FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "1s",
	"FENCEPOST_TRANSFER_CALL_TIMEOUT": "2s", "FENCEPOST_TRANSFER_RESCUE_AFTER": "3s",
	"FENCEPOST_TRANSFER_RETRY_FIRST": "200ms", "FENCEPOST_TRANSFER_RETRY_MOST": "1s", "FENCEPOST_DATABASE_MAX_CONNS": "8",
}

// deployment is a running stack on a separate cluster.
type deployment struct {
	*stack.Stack
	DB      *pgxpool.Pool // of the database that is in use
	cluster *pgcluster.Cluster
	object  *gcs.Object // nil: no mark is kept
	ctx     context.Context
	t       *testing.T
	log     *keptLog
}

// room bounds how many deployments run at once. Each has separate clusters and a separate load, and
// two cores do not keep up with more.
var room = make(chan struct{}, 2)

// deploy starts a deployment with four submitters and payouts. It is swept each second,
// unless o says otherwise: sweeps write a mark in each minute, where one is kept.
func deploy(t *testing.T, marked bool, o stack.Options) *deployment {
	t.Helper()
	room <- struct{}{}
	t.Cleanup(func() { <-room })
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	d := &deployment{ctx: ctx, t: t, log: new(keptLog)}
	var err error
	if d.cluster, err = pgcluster.Start(ctx, pgcluster.Options{SharedBuffersMB: 32}); err != nil {
		t.Fatal(err)
	}
	d.ends("stop Postgres", d.cluster.Stop)
	watch, err := webtest.NewWatch("../../../functions/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o.Cluster, o.Around, o.Output = d.cluster, watch.Around, d.log
	o.Binary, o.Core.Binary, o.Payouts = server, core, true
	o.Submitters, o.Processes, o.Window, o.BlockTime = 4, 2, 4, 200*time.Millisecond
	o.CheckEvery = -1
	if o.SweepEvery == 0 {
		o.SweepEvery = time.Second
	}
	o.Settings = maps.Clone(quick)
	o.Mark = marked
	if d.Stack, err = stack.Start(ctx, o); err != nil {
		t.Fatal(err)
	}
	d.ends("stop the stack", func() error { return errors.Join(d.Stack.Close(), watch.Err()) })
	d.use(d.Database)
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
		if what == "stop the stack" && d.t.Failed() {
			d.log.show(d.t)
		}
	})
}

// openMark lets the test read the mark.
func (d *deployment) openMark() {
	d.t.Helper()
	var err error
	if d.object, err = gcs.Open(d.ctx, d.Storage.Bucket(), mark.ObjectName, d.Storage.Endpoint()); err != nil {
		d.t.Fatal(err)
	}
	d.ends("close the storage's client", d.object.Close)
}

// use reads the database at that URL from now on.
func (d *deployment) use(url string) {
	d.t.Helper()
	db, err := pgxpool.New(d.ctx, url)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(db.Close)
	d.DB, d.Database = db, url
}

// marked is the mark as it is now.
func (d *deployment) marked() mark.Observed {
	d.t.Helper()
	seen, err := d.object.Read(d.ctx)
	if err != nil {
		d.t.Fatalf("read the mark: %v", err)
	}
	return seen
}

// minuteLater makes the next sweep write a mark: it writes one in a minute.
func (d *deployment) minuteLater() {
	d.t.Helper()
	if _, err := d.DB.Exec(d.ctx, `update database_mark set at = at - interval '1 minute'`); err != nil {
		d.t.Fatal(err)
	}
}

// sweep runs one sweep to its end.
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
	if err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
	return v
}

// operate posts what an operator asks, again while another invocation has the lease or
// a connection was cut, and returns the answer.
func (d *deployment) operate(path string, body any) (status int, text string) {
	d.t.Helper()
	d.poll("an answer to "+path, func() bool {
		code, answer, err := d.Call(d.ctx, stack.OperatorAccount, http.MethodPost, path, body)
		status, text = code, string(answer)
		return err == nil && status < 500 && !strings.Contains(text, "NOT_LEADER")
	})
	return status, text
}

// poll waits for a condition.
func (d *deployment) poll(what string, met func() bool) {
	d.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !met() {
		select {
		case <-d.ctx.Done():
			d.t.Fatalf("still not so after %s: %s", within, what)
		case <-tick.C:
		}
	}
}

// keptLog keeps the processes' log.
type keptLog struct {
	mu   sync.Mutex
	text []byte
}

// Write implements [io.Writer].
func (l *keptLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

func (l *keptLog) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.text, []byte(text))
}

func (l *keptLog) show(t *testing.T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 40_000
	t.Logf("the processes' log, its end:\n%s", l.text[max(0, len(l.text)-most):])
}
