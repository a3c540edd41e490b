package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/mark"
)

// The variables by which the test binary acts as gcloud or terraform.
const (
	fakeVariable  = "CLOUDCHECK_FAKE"
	worldVariable = "CLOUDCHECK_WORLD"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(fakeVariable); name != "" {
		os.Exit(fake(name + " " + strings.Join(os.Args[1:], " ")))
	}
	os.Exit(m.Run())
}

// said is what a fake program answers to a call that contains every word.
type said struct {
	Words  []string
	Output string
	Fails  bool
}

// fake answers a call as the world's file says, the first that fits, and adds it to the list of calls.
func fake(call string) int {
	var world []said
	text, err := os.ReadFile(os.Getenv(worldVariable))
	if err == nil {
		err = json.Unmarshal(text, &world)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	calls, err := os.OpenFile(os.Getenv(worldVariable)+".calls", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		fmt.Fprintln(calls, call)
		_ = calls.Close()
	}
	for _, s := range world {
		if !containsAll(call, s.Words) {
			continue
		}
		if s.Fails {
			fmt.Fprintln(os.Stderr, s.Output)
			return 1
		}
		fmt.Print(s.Output)
		return 0
	}
	fmt.Fprintln(os.Stderr, "ERROR: unexpected call:", call)
	return 1
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// deployed is a deployment behind its balancer, with faults.
type deployed struct {
	environment string
	api         string // its address in the outputs; "": the server's
	audience    string // of callers' tokens
	metrics     bool
	preview     bool           // Cloud Armor's
	answers     map[string]int // the status of a path's prefix, or of METHOD and it, in place of the usual one
	refuses     *regexp.Regexp // what Cloud Armor takes for an injection, in a path or body
	points      bool
	foreign     bool   // the database is not the accepted one
	unrouted    bool   // the load balancer knows no path
	lost        bool   // the database does not come back from a failover
	calls       string // the file of the calls of programs
	state       string // of a posted transaction
	posted      []string
	traced      []string // the headers traceparent
	says        []said   // first, of gcloud and terraform
}

func whole() *deployed {
	return &deployed{environment: "dev", audience: "https://api.example.com", metrics: true, preview: true, points: true, state: "CONFIRMED", answers: map[string]int{}}
}

func (d *deployed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if d.refuses != nil && d.refuses.MatchString(r.URL.String()+string(body)) {
		http.Error(w, "Forbidden", http.StatusForbidden)
		return
	}
	if header := r.Header.Get("Traceparent"); header != "" {
		d.traced = append(d.traced, header)
	}
	for path, status := range d.answers {
		if strings.HasPrefix(r.Method+" "+r.URL.Path, path) || strings.HasPrefix(r.URL.Path, path) {
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"code":"SOMETHING"}`)
			return
		}
	}
	switch token := r.Header.Get("Authorization"); {
	case strings.Contains(r.URL.Path, "/prometheus/"):
		result := map[bool]string{true: `[{"value":[1,"1"]}]`, false: `[]`}[d.points]
		fmt.Fprintf(w, `{"status":"success","data":{"result":%s}}`, result)
	case d.unrouted, !strings.HasPrefix(r.URL.Path, "/api/v1/") && !strings.HasPrefix(r.URL.Path, "/admin/v1/"):
		http.Error(w, "fault filter abort", http.StatusNotFound)
	case token == "":
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"code":"UNAUTHORIZED"}`)
	case r.Method == http.MethodPost:
		d.posted = append(d.posted, string(body))
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"txId":"1"}`)
	case r.URL.Path == "/admin/v1/overview" && d.lost && d.failedOver():
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"code":"UNAVAILABLE"}`)
	case r.URL.Path == "/admin/v1/overview":
		attention := map[bool]string{true: `[{"kind":"DATABASE","count":1}]`, false: `[]`}[d.foreign]
		fmt.Fprintf(w, `{"at":"2026-11-27T10:00:00Z","attention":%s}`, attention)
	default:
		fmt.Fprintf(w, `{"state":%q}`, d.state)
	}
}

func (d *deployed) failedOver() bool {
	made, _ := os.ReadFile(d.calls)
	return strings.Contains(string(made), "failover")
}

// log is a gcloud answer to a query of the log.
func log(words string, lines string) said {
	return said{Words: append([]string{"gcloud logging read"}, strings.Fields(words)...), Output: lines}
}

const none = `[]`

// line is a line of a function's log.
type line = map[string]any

// answers are lines of answers of a revision at an age.
func answers(revision string, age time.Duration, statuses ...int) (lines []line) {
	for _, status := range statuses {
		lines = append(lines, line{
			"timestamp": time.Now().Add(-age), "httpRequest": line{"status": status},
			"resource": line{"labels": line{"revision_name": revision}},
		})
	}
	return lines
}

func good() []line { return answers("r2", time.Minute, 200, 202) }

// answered is the log of a function, the newest lines first.
func answered(service string, lines ...[]line) said {
	return log(service, string(encoded(slices.Concat(lines...))))
}

// marked is the mark of an age, the sequence'th of its database.
func marked(sequence int64, age time.Duration) said {
	return said{Words: []string{"gcloud storage cat gs://p-mark/database-mark "}, Output: string(encoded(mark.Mark{ID: "1", Sequence: sequence, At: time.Now().Add(-age)}))}
}

// scheduled is a job of the scheduler: whether it was tried, and after which time it is due next.
func scheduled(job string, tried bool, due time.Duration) said {
	answer := line{"name": job, "scheduleTime": time.Now().Add(due)}
	if tried {
		answer["lastAttemptTime"] = time.Now().Add(-time.Minute)
	}
	return said{Words: []string{"gcloud scheduler jobs describe " + job + " ", "--location r"}, Output: string(encoded(answer))}
}

// services are the functions of the deployment, as in the outputs.
const services = `{"create":{"name":"fencepost-create","public":true},"advance":{"name":"fencepost-advance"},
	"conservation-full":{"name":"fencepost-conservation-full","scheduled":true},"sweep":{"name":"fencepost-sweep","scheduled":true}}`

// allChecks returns the names of the checks of the deployment.
func allChecks(t *testing.T) (names []string) {
	t.Helper()
	c := new(checker)
	check.OK(t)(json.Unmarshal([]byte(services), &c.Services))
	for _, row := range c.checks() {
		names = append(names, row.name)
	}
	return names
}

// outcomes returns the status of each check that was printed.
func outcomes(out string) map[string]status {
	found := make(map[string]status)
	for line := range strings.Lines(out) {
		if s, rest, cut := strings.Cut(line, "  "); cut {
			name, _, _ := strings.Cut(strings.TrimSpace(rest), "  ")
			found[name] = status(s)
		}
	}
	return found
}

// run runs the command against the deployment, and returns its exit code, its output and the calls of
// programs.
func (d *deployed) run(t *testing.T, args ...string) (code int, out, calls string) {
	t.Helper()
	server := httptest.NewServer(d)
	defer server.Close()
	outputs := fmt.Sprintf(`{"api":{"value":%q},"deployment":{"value":{"project":"p","region":"r","environment":%q,"instance":"fencepost","migration_job":"fencepost-migrate",
		"audience":%q,"armor_preview":%t,"logged_share":0.1,"mark_bucket":"p-mark","metrics":%t,"services":%s}}}`, cmp.Or(d.api, server.URL), d.environment, d.audience, d.preview, d.metrics, services)
	world := append(d.says, said{Words: []string{"terraform", "output -json"}, Output: outputs},
		log("previewSecurityPolicy", none), log("could not be compared", none), log("/traces/ invocation", "[{}]"), log("cloud_run_job fencepost-migrate", `[{"textPayload":"migrations applied: 3"}]`), answered("cloud_run_revision", good()), marked(7, time.Minute),
		said{Words: []string{"gcloud auth print-identity-token"}, Output: "token\n"}, said{Words: []string{"gcloud auth print-access-token"}, Output: "access\n"},
		said{Words: []string{"gcloud sql instances failover fencepost"}})
	folder := t.TempDir()
	self := check.Value(os.Executable())(t)
	for _, name := range []string{"gcloud", "terraform"} {
		script := fmt.Sprintf("#!/bin/sh\n%s=%s exec %q \"$@\"\n", fakeVariable, name, self)
		check.OK(t)(os.WriteFile(filepath.Join(folder, name), []byte(script), 0o755))
	}
	file := filepath.Join(folder, "world.json")
	check.OK(t)(os.WriteFile(file, encoded(world), 0o600))
	d.calls = file + ".calls"
	t.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv(worldVariable, file)
	var text strings.Builder
	code = realMain(t.Context(), append([]string{"--openapi", "../../../functions/openapi.yaml", "--monitoring", server.URL, "--pause", "1ms", "--within", "1s"}, args...), &text, &text)
	made, _ := os.ReadFile(d.calls)
	return code, text.String(), string(made)
}

const mine = "eip155:11155111:0x00000000000000000000000000000000000a11ce"

var everything = []string{"--operator", "op@p", "--caller", "shop@p", "--submitter", mine, "--failover"}

// wantLine reports a check that has another status, or no line.
func wantLine(t *testing.T, out string, want status, name, text string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, string(want)) && strings.Contains(line, name) && strings.Contains(line, text) {
			return
		}
	}
	t.Errorf("got no line %q of %s with %q, in:\n%s", want, name, text, out)
}

// With every flag every check is made and passes.
func TestEveryCheckPasses(t *testing.T) {
	d := whole()
	code, out, calls := d.run(t, everything...)
	check.Equal(t, "code", code, exitOK)
	all, made := allChecks(t), outcomes(out)
	for _, name := range all {
		check.Equal(t, name, made[name], ok)
	}
	if !strings.Contains(calls, "--audiences=https://api.example.com ") {
		t.Errorf("calls: got %s, want tokens for the audience that the functions take", calls)
	}
	if len(d.traced) != 1 || len(d.traced[0]) != len("00-")+32+len("-")+16+len("-00") || !strings.Contains(calls, "/traces/"+d.traced[0][3:35]+`"`) {
		t.Errorf("traced: got %q and the calls %s, want one request, and its trace in the log", d.traced, calls)
	}
	if len(d.posted) != 1 || !strings.Contains(d.posted[0], mine) || !strings.Contains(d.posted[0], `"value":"0"`) {
		t.Errorf("posted: got %q, want one intent of no value", d.posted)
	}
	if !strings.Contains(out, fmt.Sprintf("\n%d ok, 0 failed, 0 not tried\n", len(all))) {
		t.Errorf("summary: got none of %d checks, in:\n%s", len(all), out)
	}
}

// finds is the fault that programs answer so.
func finds(says ...said) func(*deployed) {
	return func(d *deployed) { d.says = says }
}

// failing is the answer of a program that fails.
func failing(output string, words ...string) said {
	return said{Words: words, Output: output, Fails: true}
}

// Each check fails by its own fault, and says what to do.
func TestEachCheckFails(t *testing.T) {
	unseen := make(map[string]bool) // checks that no fault has failed
	for _, name := range allChecks(t) {
		unseen[name] = true
	}
	for name, test := range map[string]struct {
		fault      func(*deployed)
		row, says  string
		stillFails int // rows that fail beside
	}{
		"no function behind the balancer": {func(d *deployed) { d.answers["/api/v1/tx/none"] = 404 }, "address, certificate", "unreachable.md", 0},
		"readyz is public":                {func(d *deployed) { d.answers["/readyz"] = 200 }, "unlisted paths", "default route", 0},
		"query serves cancels":            {func(d *deployed) { d.answers["POST /api/v1/tx/0"] = 405 }, "path template", "path template", 1},
		"Cloud Armor refuses addresses":   {func(d *deployed) { d.refuses = regexp.MustCompile(`0x[0-9a-f]{40}`) }, "Cloud Armor passes", "createTx", 1},
		"preview would refuse":            {finds(log("previewSecurityPolicy", `[{"httpRequest":{"status":401}}]`)), "Cloud Armor's preview", "armor_preview", 0},
		"a right was not granted": {finds(log("cloud_run_job", `[{"textPayload":"migrate: warning: TEMPORARY"},{"textPayload":"migrations applied: 3"}]`)),
			"migration", "TEMPORARY", 0},
		"rights were not given": {finds(log("cloud_run_job", `[{"textPayload":"migrate: grant: no such role"},{"textPayload":"migrations applied: 3"}]`)),
			"migration", "no such role", 0},
		"the log cannot be read":             {finds(failing("PERMISSION_DENIED", "logging read", "cloud_run_job")), "migration", "PERMISSION_DENIED", 0},
		"no metrics arrive":                  {func(d *deployed) { d.points = false }, "fencepost_sweep_timestamp_seconds", "metrics-absent.md", 3},
		"metrics cannot be read":             {func(d *deployed) { d.answers["/v1/projects/p/"] = 403 }, "fencepost_build_info", "403", 3},
		"the balancer drops the traceparent": {finds(log("/traces/", none)), "traceparent", "no function logged", 0},
		"the log of traces cannot be read":   {finds(failing("PERMISSION_DENIED", "logging read", "/traces/")), "traceparent", "PERMISSION_DENIED", 0},
		"the mark cannot be read": {finds(failing("WARNING: old\nERROR: (gcloud.storage.cat) The following URLs matched no objects:\n-gs://p-mark/database-mark", "storage cat")),
			"the mark", "matched no objects", 0},
		"something else is the mark": {finds(said{Words: []string{"storage cat"}, Output: "{}"}), "the mark", "want a mark", 0},
		"a function may not read the mark": {func(d *deployed) {
			lines := answers("r2", time.Minute, 200)
			lines[0]["resource"] = line{"labels": line{"service_name": "fencepost-create"}}
			d.says = []said{log("could not be compared", string(encoded(lines)))}
		}, "the mark", "fencepost-create", 0},
		"the log of the mark cannot be read": {finds(failing("PERMISSION_DENIED", "logging read", "could not be compared")),
			"the mark", "PERMISSION_DENIED", 0},
		"nobody writes over the mark": {finds(marked(1, time.Hour)), "the mark", "mark-uncompared.md", 0},
		"another database":            {func(d *deployed) { d.foreign = true }, "database's identity", "restored-database.md", 1},
		"no operator":                 {func(d *deployed) { d.answers["GET /admin/v1/overview"] = 403 }, "database's identity", "admin_ranges", 2},
		"the intent is refused":       {func(d *deployed) { d.answers["POST /api/v1/tx"] = 503 }, "one transaction", "want 202", 2},
		"the transaction fails":       {func(d *deployed) { d.state = "FAILED" }, "one transaction", "FAILED", 0},
		"the transaction never ends":  {func(d *deployed) { d.state = "QUEUED" }, "one transaction", "not CONFIRMED", 0},
		"nobody may impersonate":      {finds(failing("denied", "print-identity-token", "shop@p")), "one transaction", "denied", 0},
		"the failover is refused":     {finds(failing("no standby", "failover")), "failover", "no standby", 0},
		"the scheduler never calls": {finds(log("fencepost-sweep", none), scheduled("fencepost-sweep", true, time.Minute)),
			"a 2xx of sweep", "sweep-missed.md", 0},
		"a function answers 500 alone":     {finds(answered("fencepost-advance", answers("r2", 0, 500))), "a 2xx of advance", "500:1", 0},
		"tokens lack their signature":      {finds(answered("fencepost-advance", answers("r2", time.Minute, 401))), "signatures", "401", 1},
		"some tokens lack their signature": {finds(answered("fencepost-advance", good(), answers("r2", 2*time.Minute, 401))), "signatures", "401", 0},
		"a job that was due was never tried": {finds(log("fencepost-conservation-full", none), scheduled("fencepost-conservation-full", false, -time.Minute)),
			"a 2xx of conservation-full", "conservation-full-missed.md", 0},
		"the scheduler cannot be asked": {finds(log("fencepost-sweep", none), failing("PERMISSION_DENIED", "scheduler jobs")),
			"a 2xx of sweep", "PERMISSION_DENIED", 0},
		"a function's log cannot be read": {finds(failing("PERMISSION_DENIED", "logging read", "fencepost-advance")),
			"a 2xx of advance", "PERMISSION_DENIED", 0},
		"the load balancer's log cannot be read": {finds(failing("PERMISSION_DENIED", "previewSecurityPolicy")), "preview", "PERMISSION_DENIED", 0},
		"nobody may be the operator":             {finds(failing("denied", "print-identity-token", "account=op@p ")), "database's identity", "denied", 1},
		"nobody may read metrics":                {finds(failing("denied", "print-access-token")), "fencepost_build_info", "denied", 3},
		"the database stays away":                {func(d *deployed) { d.lost = true }, "failover", "failover.md", 0},
		"no path is routed":                      {func(d *deployed) { d.unrouted = true }, "Cloud Armor passes", "none of", 5},
		"nothing listens":                        {func(d *deployed) { d.api = "http://127.0.0.1:1" }, "address, certificate", "unreachable.md", 7},
	} {
		t.Run(name, func(t *testing.T) {
			d := whole()
			test.fault(d)
			code, out, _ := d.run(t, everything...)
			wantLine(t, out, failure, test.row, test.says)
			for name, s := range outcomes(out) {
				if s == failure {
					delete(unseen, name)
				}
			}
			if got := strings.Count(out, string(failure)+" "); code != exitFailed || got != 1+test.stillFails {
				t.Errorf("got code %d and %d failures, want %d and %d:\n%s", code, got, exitFailed, 1+test.stillFails, out)
			}
		})
	}
	for name := range unseen {
		t.Errorf("%s: got no fault that fails it", name)
	}
}

// An answer of an earlier revision, or of an hour ago, may be of a fault that is gone.
func TestOldRefusalsAreForgotten(t *testing.T) {
	for name, refused := range map[string][]line{
		"an hour ago":                answers("r2", time.Hour, 401),
		"before the newest revision": answers("r1", 2*time.Minute, 401),
	} {
		d := whole()
		d.says = []said{answered("fencepost-advance", good(), refused)}
		code, out, _ := d.run(t)
		check.Equal(t, name, code, exitOK)
		wantLine(t, out, ok, "signatures", "")
	}
	d := whole()
	d.says = []said{answered("cloud_run_revision", answers("r2", time.Hour, 200))}
	_, out, _ := d.run(t)
	wantLine(t, out, notTried, "signatures", "15 minutes")
}

// A job that runs twice a day has not run for hours after the first apply.
func TestJobIsNotDueYet(t *testing.T) {
	d := whole()
	d.says = []said{log("fencepost-conservation-full", none), scheduled("fencepost-conservation-full", false, time.Hour)}
	code, out, _ := d.run(t)
	check.Equal(t, "code", code, exitOK)
	wantLine(t, out, notTried, "a 2xx of conservation-full", "not run yet: first due at 20")
}

// Without flags nothing is posted and nothing fails over.
func TestWithoutFlagsNothingIsPosted(t *testing.T) {
	d := whole()
	d.metrics, d.preview, d.says = false, false, []said{log("fencepost-advance", none), log("cloud_run_job", none), marked(1, time.Minute)}
	code, out, calls := d.run(t)
	check.Equal(t, "code", code, exitOK)
	for _, row := range []string{"Cloud Armor's preview", "migration", "fencepost_build_info", "database's identity", "the mark", "one transaction", "failover", "a 2xx of advance"} {
		wantLine(t, out, notTried, row, "")
	}
	if len(d.posted) > 0 || strings.Contains(calls, "failover") || strings.Contains(calls, "identity-token") {
		t.Errorf("got %q posted and the calls\n%s\nwant nothing posted, no token and no failover", d.posted, calls)
	}
}

// A failover in prod, and an intent on a chain whose coins have a value, are refused before any request.
func TestRefusedCalls(t *testing.T) {
	for name, test := range map[string]struct {
		environment string
		args        []string
		says        string
	}{
		"failover in prod":          {"prod", []string{"--failover", "--operator", "op@p"}, "refused in prod"},
		"failover without identity": {"dev", []string{"--failover"}, "--operator"},
		"an intent on Ethereum":     {"dev", []string{"--caller", "c", "--submitter", "eip155:1:0x00000000000000000000000000000000000a11ce"}, "test chains"},
		"an intent of nobody":       {"dev", []string{"--submitter", mine}, "--caller"},
		"a word":                    {"dev", []string{"all"}, `"all"`},
		"a token in the clear":      {"dev", []string{"--monitoring", "http://monitoring.example.com"}, "--monitoring"},
		"a token to a file":         {"dev", []string{"--monitoring", "file:///tmp/x"}, "--monitoring"},
		"no such flag":              {"dev", []string{"--all"}, "-all"},
	} {
		t.Run(name, func(t *testing.T) {
			d := whole()
			d.environment = test.environment
			code, out, calls := d.run(t, test.args...)
			if code != exitUsage || !strings.Contains(out, test.says) || strings.Contains(calls, "gcloud") {
				t.Errorf("got code %d, the calls %q and\n%s\nwant 2, no call of gcloud, and %q", code, calls, out, test.says)
			}
		})
	}
	d := whole()
	if code, out, calls := d.run(t, "--help"); code != exitOK || !strings.Contains(out, "Exit codes:") || calls != "" {
		t.Errorf("--help: got code %d and %q, want 0 and its flags", code, out)
	}
	d.audience = ""
	if code, out, _ := d.run(t); code != exitFailed || !strings.Contains(out, "terraform apply") {
		t.Errorf("outputs of an older version: got code %d and %q, want 1 and what to do", code, out)
	}
	d.says = []said{{Words: []string{"output -json"}, Output: "{}"}}
	if code, out, _ := d.run(t); code != exitFailed || !strings.Contains(out, "terraform apply") {
		t.Errorf("no outputs: got code %d and %q, want 1 and what to do", code, out)
	}
}

// The metrics exist, and the functions write the line that is searched for.
func TestSampledMetricsAreCounted(t *testing.T) {
	if !strings.Contains(string(check.Value(os.ReadFile("../../../functions/serve/mark.go"))(t)), `WarnContext(ctx, "`+uncompared+`"`) {
		t.Errorf("%q: got a line that no function logs", uncompared)
	}
	if !strings.Contains(string(check.Value(os.ReadFile("../../../shared/telemetry/invocation.go"))(t)), `log.LogAttrs(ctx, level, "`+invocation+`"`) {
		t.Errorf("%q: got a line that no function logs", invocation)
	}
	text := string(check.Value(os.ReadFile("../../../shared/telemetry/metrics.go"))(t))
	for _, name := range sampled {
		if !strings.Contains(text, `"`+strings.TrimSuffix(name, "_count")+`"`) {
			t.Errorf("%s: got a name that nothing counts", name)
		}
	}
}
