package acceptance

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
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

	late, never := b.Aside(t, map[string]string{"FENCEPOST_DATABASE_URL": database.String()}), b.Aside(t, map[string]string{"FENCEPOST_DATABASE_URL": nowhere.String()})
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
	equal(t, "a query of the started process (401, as it has no token)", get(late, "/api/v1/tx/none", 2*time.Second), http.StatusUnauthorized)
	if after := <-started; after < startPatience-time.Second || after > startPatience+10*time.Second {
		t.Errorf("a process without a database: got the probe passing after %s, want %s", after, startPatience)
	}
	if proxy := <-appeared; proxy != nil {
		proxy.Close()
	}
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

// BenchmarkColdStart measures the time from exec to the first answer of a query, which verifies a token and reads the
// database. Until the process listens it is polled each 10 ms. docs/costs.md has the figures.
func BenchmarkColdStart(t *testing.B) {
	b := setup(t, stack.Options{Processes: 1})
	for _, target := range []string{"all", "query"} {
		t.Run(target, func(t *testing.B) {
			var times []time.Duration
			for t.Loop() {
				times = append(times, b.coldStart(t, target))
			}
			slices.Sort(times)
			t.ReportMetric(0, "ns/op") // it has the end of the process too
			t.ReportMetric(float64(times[len(times)/2].Milliseconds()), "ms-median")
			t.ReportMetric(float64(times[len(times)-1].Milliseconds()), "ms-worst")
		})
	}
}

func (b bench) coldStart(t testing.TB, target string) time.Duration {
	t.Helper()
	token := must(b.Issuer.Token(b.ctx, stack.CallerAccount, stack.PublicAudience))(t)
	began := time.Now()
	p := b.Aside(t, map[string]string{"FUNCTION_TARGET": target})
	status, answer, err := stack.CallWith(b.ctx, token, http.MethodGet, "http://"+p.Addr()+"/api/v1/tx/00000000-0000-7000-8000-000000000000", nil)
	took := time.Since(began)
	if err != nil || status != http.StatusNotFound {
		t.Fatalf("the first answer of %s: got %d %s, %v; want 404", target, status, answer, err)
	}
	check(t, p.Stop(b.ctx), "stop", target)
	return took
}
