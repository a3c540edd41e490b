package acceptance

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/telemetry/export/exporttest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// observed returns a stack with a collector and one process for each function.
func observed(t *testing.T, settings map[string]string) (bench, *exporttest.Collector) {
	t.Helper()
	c := exporttest.Start(t)
	all := map[string]string{
		"FENCEPOST_TELEMETRY_OTLP_ENDPOINT": c.Addr, "FENCEPOST_TELEMETRY_FLUSH_EVERY": "100ms", "FENCEPOST_TELEMETRY_TRACE_ONE_IN": "1",
	}
	maps.Copy(all, settings)
	return setup(t, stack.Options{Split: true, Processes: 1, Settings: all}), c
}

// flushed makes every process export until the condition holds.
func (b bench) flushed(t *testing.T, c *exporttest.Collector, what string, holds func() bool) {
	t.Helper()
	err := poll(b.ctx, func() bool {
		for _, p := range b.Processes() {
			if response, err := http.Get("http://" + p.Addr() + "/healthz"); err == nil {
				_ = response.Body.Close()
			}
		}
		return holds()
	})
	if err != nil {
		t.Fatalf("%s: %v; series %v", what, err, c.Received().Series)
	}
}

// page sums the metrics pages of all processes, by series.
func (b bench) page(t *testing.T) (sums map[string]float64, text string) {
	t.Helper()
	sums = map[string]float64{}
	for _, page := range pagesOf(t, b.Stack) {
		for series, n := range valuesOn(page) {
			sums[series] += n
		}
		text += page
	}
	return sums, text
}

// pagesOf returns the metrics page of each process.
func pagesOf(t *testing.T, s *stack.Stack) (pages []string) {
	t.Helper()
	for _, p := range s.Processes() {
		response := must(http.Get("http://" + p.Addr() + "/metrics"))(t)
		page, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("page of metrics: got %d, %v", response.StatusCode, err)
		}
		pages = append(pages, string(page))
	}
	return pages
}

// valuesOn returns the values on a page, by series.
func valuesOn(page string) map[string]float64 {
	values := map[string]float64{}
	for line := range strings.Lines(page) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseFloat(value, 64); ok && err == nil {
			values[name] = n
		}
	}
	return values
}

// showsOneReading runs sweeps, which processes take in turn. After each, one page shows the gauges of the deployment:
// those of that sweep.
func (b bench) showsOneReading(t *testing.T) {
	t.Helper()
	last, showed := 0.0, map[int]bool{}
	for sweep := range 9 {
		check(t, b.RunSweep(b.ctx))
		var times []float64
		for i, page := range pagesOf(t, b.Stack) {
			values := valuesOn(page)
			at, shows := values["fencepost_sweep_timestamp_seconds"]
			if _, gauges := values["fencepost_queue_depth"]; gauges != shows {
				t.Errorf("sweep %d, process %d: got its time %t, a gauge %t; want both or none", sweep, i, shows, gauges)
			}
			if shows {
				times, showed[i] = append(times, at), true
			}
		}
		if len(times) != 1 || times[0] <= last {
			t.Fatalf("sweep %d: got the times %v on the pages, want one, after %v", sweep, times, last)
		}
		last = times[0]
	}
	if len(showed) < 2 {
		t.Errorf("processes that swept: got %v, want several", showed)
	}
}

// Of three intents one is posted twice, one is refused, and one is cancelled. Every count is right at
// the collector and on the pages, and so are the sweep's gauges.
func TestMetricsOfRealIntents(t *testing.T) {
	t.Parallel()
	b, c := observed(t, nil)
	s, other := b.Submitters()[0], b.Submitters()[1]
	b.post(t, transfer(s, "a"))
	b.post(t, transfer(s, "a"))
	b.post(t, transfer(other, "b"))
	b.post(t, map[string]any{"submitter": s, "requestId": "refused", "payload": map[string]any{"to": "nobody"}})
	conflict := transfer(s, "a")
	conflict["payload"] = map[string]any{"to": "0x00000000000000000000000000000000000cafe0", "value": "2"}
	b.post(t, conflict)
	b.await(t, s, txmanager.Confirmed, 1)
	b.await(t, other, txmanager.Confirmed, 1)
	check(t, b.RunSweep(b.ctx))
	want := map[string]float64{
		`fencepost_tx_create_total{result="accepted"}`: 2, `fencepost_tx_create_total{result="known"}`: 1, `fencepost_tx_create_total{result="refused"}`: 2,
		`fencepost_tx_submit_total{result="accepted"}`: 2, `fencepost_receipt_check_total{result="found"}`: 0, `fencepost_finality_total{result="confirmed"}`: 2,
		`fencepost_lease_acquire_total{result="inserted"}`: 2,
		`fencepost_queue_depth`:                            0, `fencepost_held_intents`: 0, `fencepost_held_age_seconds`: 0, `fencepost_queue_fullness_ratio`: 0, `fencepost_in_flight_age_seconds`: 0, `fencepost_protect_submitters`: 0, `fencepost_stuck_transactions`: 0, `fencepost_receipt_backlog`: 0,
	}
	began := time.Now()
	b.flushed(t, c, "what was counted came", func() bool {
		come := slices.Contains(c.Received().Series, "fencepost_receipt_backlog{}")
		for series, n := range want {
			come = come && c.Value(otlp(series)) >= n
		}
		return come || time.Since(began) > 2*time.Minute
	})
	shown, _ := b.page(t)
	for series, n := range want {
		value, ok := shown[series]
		delivered := c.Value(otlp(series))
		switch {
		case !ok:
			t.Errorf("%s is not on the page", series)
		case series == `fencepost_receipt_check_total{result="found"}`: // once for each poll of each; time decides their number
			if value < 2 || delivered < 2 {
				t.Errorf("%s: got %v on the pages and %v delivered, want 2 at least", series, value, delivered)
			}
		case value != n || delivered != n:
			t.Errorf("%s: got %v on the pages and %v delivered, want %v", series, value, delivered, n)
		}
	}
}

// otlp returns the collector's name of a page's series.
func otlp(series string) string {
	if !strings.Contains(series, "{") {
		return series + "{}"
	}
	return strings.ReplaceAll(series, `"`, "")
}

// The sweep's gauges show waiting work: queued intents, the fullest queue as a share of its bound, an
// intent with a nonce and no receipt, and PROTECT.
func TestGaugesOfWhatWaits(t *testing.T) {
	t.Parallel()
	b, c := observed(t, map[string]string{"FENCEPOST_QUEUE_MAX_PER_SUBMITTER": "10"})
	s, other := b.Submitters()[0], b.Submitters()[1]
	b.useTheKey(t, 0, 1)
	check(t, b.Chain.WaitBlock(b.ctx, b.Chain.Head()+2))
	b.post(t, transfer(s, "foreign"))
	b.inProtect(t, s)
	b.Chain.StopMining()
	for _, request := range []string{"1", "2", "3"} {
		b.post(t, transfer(other, request))
	}
	b.await(t, other, txmanager.Tracking, 1)
	b.flushed(t, c, "the gauges came", func() bool {
		check(t, b.RunSweep(b.ctx))
		return c.Value("fencepost_in_flight_age_seconds{}") >= 1
	})
	want := map[string]float64{"fencepost_queue_depth{}": 3, "fencepost_queue_fullness_ratio{}": 0.2, "fencepost_protect_submitters{}": 1, "fencepost_receipt_backlog{}": 1, "fencepost_stuck_transactions{}": 0}
	got := map[string]float64{}
	for series := range want {
		got[series] = c.Value(series)
	}
	same(t, "gauges", got, want)
	b.Chain.StartMining()
}

// One intent has one trace, from its request, through tasks in other processes, to the calls to the
// chain and the final state. Log lines have its id. No exported or shown data contain a secret.
func TestOneTracePerIntent(t *testing.T) {
	t.Parallel()
	b, c := observed(t, nil)
	s := b.Submitters()[0]
	_, first := b.post(t, transfer(s, "first"))
	_, second := b.post(t, transfer(s, "second"))
	b.await(t, s, txmanager.Confirmed, 2)
	for _, txID := range []string{first, second} {
		var spans []exporttest.Span
		began := time.Now()
		b.flushed(t, c, "the trace of "+txID+" came", func() bool {
			spans = traceOf(c, txID)
			return names(spans)["CONFIRMED"] > 0 && len(orphans(spans)) == 0 || time.Since(began) > 2*time.Minute
		})
		b.checkTrace(t, txID, spans)
	}
	one, two := traceOf(c, first), traceOf(c, second)
	if len(one) == 0 || len(two) == 0 || one[0].TraceID == two[0].TraceID {
		t.Fatalf("traces of two intents: got %d and %d spans, or one trace; want two traces", len(one), len(two))
	}
	tasks := names(one)
	for _, name := range []string{"create", "CreateTask advance", "advance", "chain", "postgres"} {
		if tasks[name] == 0 {
			t.Errorf("trace of an intent that was alone: got %v, want %s in it", tasks, name)
		}
	}
	b.keepsSecrets(t, c)
}

// traceOf returns the spans of the trace in which the intent was sent.
func traceOf(c *exporttest.Collector, txID string) (spans []exporttest.Span) {
	all := c.Received().Spans
	i := slices.IndexFunc(all, func(x exporttest.Span) bool { return x.Name == "send" && x.Attributes["txId"] == txID })
	for _, x := range all {
		if i >= 0 && x.TraceID == all[i].TraceID {
			spans = append(spans, x)
		}
	}
	return spans
}

func names(spans []exporttest.Span) map[string]int {
	all := map[string]int{}
	for _, x := range spans {
		all[x.Name]++
	}
	return all
}

func (b bench) checkTrace(t *testing.T, txID string, spans []exporttest.Span) {
	t.Helper()
	got := names(spans)
	for _, name := range []string{"create", "send", "SUBMITTED", "CONFIRMED"} {
		if got[name] == 0 {
			t.Errorf("trace of %s: got %v, want %s in it", txID, got, name)
		}
	}
	if lost := orphans(spans); len(lost) > 0 {
		t.Errorf("trace of %s: the spans %v are under some that are not in it", txID, names(lost))
	}
	if len(spans) == 0 {
		return
	}
	line := fmt.Sprintf(`"message":"intent accepted","logging.googleapis.com/trace":"projects/%s/traces/%s"`, b.Setting("FENCEPOST_TASKS_PROJECT"), spans[0].TraceID)
	b.logged(t, line)
}

// orphans returns the spans whose parent is missing.
func orphans(spans []exporttest.Span) (lost []exporttest.Span) {
	there := map[string]bool{"": true}
	for _, x := range spans {
		there[x.SpanID] = true
	}
	for _, x := range spans {
		if !there[x.Parent] {
			lost = append(lost, x)
		}
	}
	return lost
}

// keepsSecrets searches for keys, passwords and tokens in all exported data.
func (b bench) keepsSecrets(t *testing.T, c *exporttest.Collector) {
	t.Helper()
	info := must(b.Info(b.ctx))(t)
	_, page := b.page(t)
	secrets := []string{"Bearer", "eyJ"}
	if password := regexp.MustCompile(`:([^:@/]+)@`).FindStringSubmatch(b.Setting("FENCEPOST_DATABASE_URL")); password != nil {
		secrets = append(secrets, password[1])
	}
	for _, s := range info.Submitters {
		secrets = append(secrets, strings.TrimPrefix(s.PrivateKey, "0x"))
	}
	for _, secret := range secrets {
		for where, text := range map[string]string{"what was delivered": c.Received().Text, "the pages": page} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: got a secret in it: %.8s…", where, secret)
			}
		}
		if b.Log.Has(secret) {
			t.Errorf("the log: got a secret in it: %.8s…", secret)
		}
	}
}

// The commands on the telemetry page do what the page says, and three processes show one reading of the deployment.
func TestTelemetryPage(t *testing.T) {
	t.Parallel()
	text := must(os.ReadFile("../../docs/telemetry.md"))(t)
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 2 {
		t.Fatalf("commands on the page: got %d, want two: one to start, and one to look", len(blocks))
	}
	b := setup(t, stack.Options{Processes: 3})
	b.post(t, transfer(b.Submitters()[0], "r"))
	b.await(t, b.Submitters()[0], txmanager.Confirmed, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, err := b.Info(r.Context()); err == nil && r.URL.Path == "/info" {
			_ = json.NewEncoder(w).Encode(info)
		}
	}))
	defer server.Close()
	command := strings.ReplaceAll(blocks[1][1], "http://127.0.0.1:7070", server.URL)
	out, err := exec.CommandContext(b.ctx, "bash", "-euo", "pipefail", "-c", command).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `fencepost_finality_total{result="confirmed"} 1`) {
		t.Errorf("%s\ngot %v and\n%s\nwant the intent counted", command, err, out)
	}
	b.showsOneReading(t)
}

// The metrics also count a transaction removed by a reorg, its repeated send, a cancel in the queue,
// and an operator's decision.
func TestMetricsOfTrouble(t *testing.T) {
	t.Parallel()
	b, c := observed(t, withSettings(quick, map[string]string{
		"FENCEPOST_CONFIRMATIONS_REQUIRED": "3", "FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "1s",
	}))
	s := b.Submitters()[0]
	txID := b.inFlight(t, transfer(s, "a"))
	_, waits := b.post(t, transfer(s, "b"))
	for range 2 { // the repetition is no second end
		b.cancel(t, waits)
	}
	b.decide(t, txID, "wait")
	included := func(want int) {
		t.Helper()
		b.awaitCount(t, fmt.Sprintf("transactions with a receipt: want %d", want), want, `select count(*) from managed_tx where receipt is not null`)
	}
	check(t, b.Chain.MineExactly(b.raw(t, txID, "ORIGINAL")))
	included(1)
	check(t, b.Chain.Reorg(1, nil, nil))
	b.Chain.DropPool()
	included(0)
	b.Chain.StartMining()
	b.await(t, s, txmanager.Confirmed, 1)
	least := []string{"fencepost_confirmations_new_fork_total{}", "fencepost_tx_resubmit_total{result=accepted}", "fencepost_finality_total{result=confirmed}",
		"fencepost_finality_total{result=cancelled}", "fencepost_stuck_decision_total{action=wait}"}
	began := time.Now()
	b.flushed(t, c, "what was counted came", func() bool {
		return !slices.ContainsFunc(least, func(series string) bool { return c.Value(series) < 1 }) || time.Since(began) > 2*time.Minute
	})
	for _, series := range least {
		if got := c.Value(series); got < 1 || got > 1 && !strings.HasPrefix(series, "fencepost_tx_resubmit") {
			t.Errorf("%s: got %v, want 1", series, got)
		}
	}
}
