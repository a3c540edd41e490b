package acceptance

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/processes"
)

const (
	databaseAway  = 30 * time.Second
	startPatience = 45 * time.Second // functions.startPatience
	probePeriod   = time.Second      // of terraform/modules/function/main.tf, as its timeout
)

// On Cloud Run the network of a new instance takes up to a minute. The startup probe fails while the
// database is away, passes soon after it is there, and passes after 45 s without one. The process
// answers meanwhile.
func TestStartupProbeWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Processes: 1})
	database := must(url.Parse(b.Setting("FENCEPOST_DATABASE_URL")))(t)
	target := database.Host
	reserved := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	database.Host = reserved.Addr().String()
	check(t, reserved.Close(), "free the port of the database")
	nowhere := *database
	nowhere.Host = "127.0.0.1:1"

	late, never := b.startAside(t, database.String()), b.startAside(t, nowhere.String())
	began := time.Now()
	appeared := make(chan *pgproxy.Proxy, 1)
	time.AfterFunc(databaseAway, func() {
		proxy, err := pgproxy.Start(context.WithoutCancel(b.ctx), pgproxy.Options{Addr: database.Host, Target: target})
		if err != nil {
			t.Errorf("the database's port: %v", err)
		}
		appeared <- proxy
	})
	started := make(chan time.Duration, 1)
	go func() { started <- passes(never, began) }()
	if after := passes(late, began); after < databaseAway || after > databaseAway+10*time.Second {
		t.Errorf("the database appeared after %s: got the probe passing after %s, want it soon then, and not before", databaseAway, after)
	}
	if status := get(late, "/api/v1/tx/none", 2*time.Second); status != http.StatusUnauthorized {
		t.Errorf("a query of the started process: got %d, want 401, as it has no token", status)
	}
	if after := <-started; after < startPatience-time.Second || after > startPatience+10*time.Second {
		t.Errorf("a process without a database: got the probe passing after %s, want %s", after, startPatience)
	}
	if proxy := <-appeared; proxy != nil {
		proxy.Close()
	}
}

func (b bench) startAside(t *testing.T, databaseURL string) *processes.Process {
	t.Helper()
	p := must(b.StartAside(b.ctx, map[string]string{"FENCEPOST_DATABASE_URL": databaseURL}))(t)
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

// passes probes the process as Cloud Run does and returns the time since began at which a probe passed,
// or two minutes if none did.
func passes(p *processes.Process, began time.Time) time.Duration {
	for range time.Tick(probePeriod) {
		if get(p, "/startupz", probePeriod) == http.StatusOK || time.Since(began) > 2*time.Minute {
			break
		}
	}
	return time.Since(began)
}

// get returns the status of an answer, or 0 if there is none.
func get(p *processes.Process, path string, timeout time.Duration) int {
	client := &http.Client{Timeout: timeout}
	defer client.CloseIdleConnections()
	response, err := client.Get("http://" + p.Addr() + path)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}
