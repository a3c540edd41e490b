package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

type status string

const (
	ok       status = "ok"
	failure  status = "FAILED"
	notTried status = "not tried"
)

// result is the outcome of a check, with its finding or its missing condition.
type result struct {
	status status
	text   string
}

func passed(format string, a ...any) result  { return result{ok, fmt.Sprintf(format, a...)} }
func failed(format string, a ...any) result  { return result{failure, fmt.Sprintf(format, a...)} }
func untried(format string, a ...any) result { return result{notTried, fmt.Sprintf(format, a...)} }

type row struct {
	name string
	run  func(context.Context) result // see [tried]
}

// tried returns the result of a check. It is failed if an error has ended the steps of the check.
func tried(ctx context.Context, check func(context.Context) result) (r result) {
	if err := steps.Run(func() { r = check(ctx) }); err != nil {
		return failed("%v", err)
	}
	return r
}

type checker struct {
	deployment
	options
	refused int // internal calls of the last minutes that the newest revision answered 401
	seen    int // that it answered 2xx
}

// checks returns all checks in their order.
func (c *checker) checks() []row {
	all := []row{
		{"address, certificate, load balancer", c.outside},
		{"unlisted paths are 404", c.unlisted},
		{"path template of cancel", c.cancelPath},
		{"Cloud Armor passes the API's examples", c.armor},
		{"Cloud Armor's preview", c.preview},
		{"a traceparent reaches a function", c.trace},
		{"migration, and its rights", c.migration},
	}
	for _, metric := range sampled {
		all = append(all, row{"a point of " + metric, func(ctx context.Context) result { return c.metric(ctx, metric) }})
	}
	all = append(all, row{"database's identity", c.identity}, row{"the mark outside the database", c.mark}, row{"one transaction", c.transaction}, row{"failover of the database", c.failOver})
	for _, name := range slices.Sorted(maps.Keys(c.Services)) {
		if s := c.Services[name]; !s.Public {
			all = append(all, row{"a 2xx of " + name, func(ctx context.Context) result { return c.internal(ctx, name, s) }})
		}
	}
	return append(all, row{"signatures of internal tokens", c.signatures})
}

func (c *checker) outside(ctx context.Context) result {
	got, err := send(ctx, request{method: http.MethodGet, url: c.API + "/api/v1/tx/none"})
	switch {
	case err != nil:
		return failed("%v; see docs/runbooks/unreachable.md", err)
	case got.status != http.StatusUnauthorized || got.problem() == "":
		return failed("got %s, want 401 of the function query; see docs/runbooks/unreachable.md", got)
	}
	return passed("a request without a token gets 401 of query")
}

func (c *checker) unlisted(ctx context.Context) result {
	got := steps.Value(send(ctx, request{method: http.MethodGet, url: c.API + "/readyz"}))
	if got.status != http.StatusNotFound || got.problem() != "" {
		return failed("GET /readyz: got %s, want the load balancer's own 404: its default route reaches a function", got)
	}
	return passed("the load balancer answers, no function")
}

// cancelPath tells the functions apart: query has no POST.
func (c *checker) cancelPath(ctx context.Context) result {
	got := steps.Value(send(ctx, request{method: http.MethodPost, url: c.API + "/api/v1/tx/" + absent + "/cancel", body: []byte("{}")}))
	if got.status != http.StatusUnauthorized {
		return failed("got %s, want 401 of the function cancel: the path template is not tried before /api/v1/tx/", got)
	}
	return passed("a cancel reaches the function cancel")
}

// armor sends every example without a token: a function answers 401, Cloud Armor 403.
func (c *checker) armor(ctx context.Context) result {
	all := examples(c.API, c.openAPI)
	passes, elsewhere := 0, 0
	var wrong []string
	for _, e := range all {
		got, err := send(ctx, e.request)
		steps.OK(err, e.name)
		switch {
		case got.status == http.StatusUnauthorized:
			passes++
		case got.status == http.StatusNotFound && got.problem() == "": // transfers that are not deployed, admin paths from elsewhere
			elsewhere++
		default:
			wrong = append(wrong, fmt.Sprintf("%s: %d", e.name, got.status))
		}
	}
	switch {
	case len(wrong) > 0:
		return failed("want 401 of each, got %s; Cloud Armor's log names the rule", strings.Join(wrong, ", "))
	case passes == 0:
		return failed("none of %d examples reached a function", len(all))
	}
	return passed("%d examples get 401; %d are not reached from here (admin_ranges, functions that are not deployed)", passes, elsewhere)
}

func (c *checker) preview(ctx context.Context) result {
	if !c.ArmorPreview {
		return untried("armor_preview is off: Cloud Armor refuses, and previews nothing")
	}
	found := c.readLog(ctx, `resource.type="http_load_balancer" AND jsonPayload.previewSecurityPolicy.outcome="DENY"`)
	share := 100 * c.LoggedShare
	if len(found) > 0 {
		return failed("%d requests of the last day would be refused where armor_preview is off, and many more: %.0f %% are logged", len(found), share)
	}
	return passed("no logged request of the last day would be refused; %.0f %% are logged", share)
}

// invocation is what a function logs of each request.
const invocation = "invocation"

// trace sends a request with a new trace id, and looks for the line that the function logs with that id.
func (c *checker) trace(ctx context.Context) result {
	var id [24]byte         // of the trace, and of the span
	_, _ = rand.Read(id[:]) // it never fails
	trace := hex.EncodeToString(id[:16])
	steps.Value(send(ctx, request{method: http.MethodGet, url: c.API + "/api/v1/tx/none", traceparent: fmt.Sprintf("00-%s-%x-00", trace, id[16:])}))
	filter := fmt.Sprintf(`resource.type="cloud_run_revision" AND jsonPayload.message=%q AND trace="projects/%s/traces/%s"`, invocation, c.deployment.Project, trace)
	const patience = 2 * time.Minute // until a line can be read
	if !c.await(ctx, min(c.within, patience), func() bool { return len(c.readLog(ctx, filter)) > 0 }) {
		return failed("no function logged a line of the trace %s: the balancer replaced or dropped the header, so a trace begins at the function; or log.level of the functions is above info", trace)
	}
	return passed("the log of the function has the trace %s", trace)
}

func (c *checker) migration(ctx context.Context) result {
	for _, line := range c.readLog(ctx, fmt.Sprintf(`resource.type="cloud_run_job" AND resource.labels.job_name=%q AND textPayload:"migrat"`, c.MigrationJob)) {
		said, of := strings.CutPrefix(line.TextPayload, "migrate: ")
		if of && !strings.HasPrefix(said, "no connection to the database after") { // a warning, or why it failed
			return failed("%s", clip([]byte(line.TextPayload)))
		}
		if strings.Contains(line.TextPayload, "migrations applied:") {
			return passed("%s, without a warning", clip([]byte(line.TextPayload)))
		}
	}
	return untried("the job has not run within a day: gcloud run jobs execute %s --region=%s --wait", c.MigrationJob, c.Region)
}

// sampled are metrics that there are without any transaction.
var sampled = []string{"fencepost_build_info", "fencepost_http_request_seconds_count", "fencepost_protect_submitters", "fencepost_sweep_timestamp_seconds"}

func (c *checker) metric(ctx context.Context, name string) result {
	if !c.Metrics {
		return untried("collector_image is not set: nothing is exported")
	}
	if !c.hasPoint(ctx, name) {
		return failed("none: see docs/runbooks/metrics-absent.md")
	}
	return passed("it arrives")
}

// databaseKind is the kind of attention for a database that was not accepted.
const databaseKind = "DATABASE"

func (c *checker) identity(ctx context.Context) result {
	if c.operator == "" {
		return untried("it needs --operator")
	}
	got := steps.Value(send(ctx, request{method: http.MethodGet, url: c.API + "/admin/v1/overview", token: c.idToken(ctx, c.operator)}))
	var overview struct {
		At        time.Time
		Attention []struct {
			Kind  string
			Count int
		}
	}
	if got.status != http.StatusOK || json.Unmarshal(got.body, &overview) != nil || overview.At.IsZero() {
		return failed("GET /admin/v1/overview: got %s, want 200 from an address in admin_ranges", got)
	}
	for _, a := range overview.Attention {
		if a.Kind == databaseKind && a.Count > 0 {
			return failed("the database is not the accepted one: see docs/runbooks/restored-database.md")
		}
	}
	return passed("the accepted database answers, and its identity can be read")
}

// markPeriod is more than the time between two marks: the sweep writes one each minute.
const markPeriod = 5 * time.Minute

// uncompared is what a function logs that cannot read the mark, or write it.
const uncompared = "the database could not be compared with the mark outside it"

// mark tells from the object that the sweep writes it, and from the log that no function failed lately to
// read or write it. After the first five minutes a new one has been written over another.
func (c *checker) mark(ctx context.Context) result {
	m, err := c.readMark(ctx)
	age := time.Since(m.At).Round(time.Second)
	switch {
	case err != nil:
		return failed("%v; see docs/runbooks/mark-uncompared.md", err)
	case age > markPeriod:
		return failed("written %s ago, want one each minute; see docs/runbooks/mark-uncompared.md", age)
	case m.Sequence < 2:
		return untried("it is the first one: try again in some minutes")
	}
	for _, line := range c.readLog(ctx, fmt.Sprintf(`resource.type="cloud_run_revision" AND jsonPayload.message=%q`, uncompared)) {
		if time.Since(line.Timestamp) < lately {
			return failed("%s could not read or write it %s ago; see docs/runbooks/mark-uncompared.md", line.Resource.Labels.Service, time.Since(line.Timestamp).Round(time.Second))
		}
	}
	return passed("number %d of this database, written %s ago; no function failed lately to read or write it", m.Sequence, max(age, 0))
}

func (c *checker) failOver(ctx context.Context) result {
	if !c.failover {
		return untried("it needs --failover and --operator, and an environment other than prod")
	}
	if before := tried(ctx, c.identity); before.status != ok {
		return failed("before the failover: %s", before.text)
	}
	steps.Value(command(ctx, "gcloud", "sql", "instances", "failover", c.Instance, "--project", c.Project, "--quiet"))
	began := time.Now()
	var last result
	if !c.await(ctx, c.within, func() bool {
		last = tried(ctx, c.identity)
		return last.status == ok
	}) {
		return failed("after the failover: %s; see docs/runbooks/failover.md", last.text)
	}
	return passed("the same identity, %s after the command", time.Since(began).Round(time.Second))
}

// await looks until something is so, and reports whether it is.
func (c *checker) await(ctx context.Context, within time.Duration, so func() bool) bool {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return retry.Await(limited, c.pause, so)
}

// testChains are the ids of chains whose coins are worth nothing.
var testChains = []string{"1337", "31337", "11155111", "17000", "560048", "84532", "421614", "11155420", "80002", "97", "43113"}

func onTestChain(submitter string) bool {
	parts := strings.Split(submitter, ":")
	return len(parts) == 3 && parts[0] == "eip155" && slices.Contains(testChains, parts[1])
}

// transaction posts one intent and waits for its end.
func (c *checker) transaction(ctx context.Context) result {
	if c.submitter == "" {
		return untried("it needs --submitter on a test chain, and --caller")
	}
	token := c.idToken(ctx, c.caller)
	requestID := "cloud-check-" + time.Now().UTC().Format("20060102T150405.000")
	to := c.submitter[strings.LastIndexByte(c.submitter, ':')+1:]
	body := encoded(map[string]any{"submitter": c.submitter, "requestId": requestID, "payload": map[string]any{"to": to, "value": "0"}})
	got, err := send(ctx, request{method: http.MethodPost, url: c.API + "/api/v1/tx", token: token, body: body})
	if err != nil || got.status != http.StatusAccepted {
		return failed("got %s, %v, want 202", got, err)
	}
	return c.awaitEnd(ctx, token, requestID)
}

func (c *checker) awaitEnd(ctx context.Context, token, requestID string) result {
	query := url.Values{"submitter": {c.submitter}, "requestId": {requestID}}
	began := time.Now()
	var last answer
	var tx struct{ State string }
	c.await(ctx, c.within, func() bool {
		if got, err := send(ctx, request{method: http.MethodGet, url: c.API + "/api/v1/tx/by-request?" + query.Encode(), token: token}); err == nil {
			last = got
			_ = json.Unmarshal(got.body, &tx) // without a state it is asked again
		}
		return slices.Contains([]string{"CONFIRMED", "FAILED", "CANCELLED"}, tx.State)
	})
	switch tx.State {
	case "CONFIRMED":
		return passed("%s is CONFIRMED after %s", requestID, time.Since(began).Round(time.Second))
	case "FAILED", "CANCELLED":
		return failed("%s: got %s", requestID, last)
	}
	return failed("%s is not CONFIRMED within %s; the last answer: %s", requestID, c.within, last)
}

// internal looks at the answers that a function gave to tasks or to the scheduler.
func (c *checker) internal(ctx context.Context, name string, s service) result {
	lines := c.readLog(ctx, fmt.Sprintf(`resource.type="cloud_run_revision" AND resource.labels.service_name=%q AND httpRequest.status>=200`, s.Name))
	by := make(map[int]int)
	good := 0
	for _, line := range lines {
		if line.HTTPRequest == nil {
			continue
		}
		by[line.HTTPRequest.Status]++
		if line.HTTPRequest.Status < 300 {
			good++
		}
	}
	c.countTokens(lines)
	switch {
	case good > 0:
		return passed("%d of its last %d answers", good, len(lines))
	case len(by) > 0:
		return failed("its last answers by status: %v", by)
	case s.Scheduled:
		return c.firstRun(ctx, name, s)
	}
	return untried("nothing called it within a day: post an intent, or use --submitter")
}

// lately is how far back answers to tokens count. The cause of an earlier refusal may be gone.
const lately = 15 * time.Minute

// countTokens counts the answers of the newest revision in the last minutes. The lines begin with the newest.
func (c *checker) countTokens(lines []entry) {
	for _, line := range lines {
		if line.HTTPRequest == nil || line.Resource != lines[0].Resource || time.Since(line.Timestamp) > lately {
			continue
		}
		switch status := line.HTTPRequest.Status; {
		case status == http.StatusUnauthorized:
			c.refused++
		case status < 300:
			c.seen++
		}
	}
}

// firstRun tells a job that was never due from one whose calls do not arrive.
func (c *checker) firstRun(ctx context.Context, name string, s service) result {
	var job struct{ LastAttemptTime, ScheduleTime time.Time }
	text := steps.Value(command(ctx, "gcloud", "scheduler", "jobs", "describe", s.Name, "--project", c.deployment.Project, "--location", c.Region, "--format=json"))
	steps.OK(json.Unmarshal(text, &job))
	if job.LastAttemptTime.IsZero() && time.Now().Before(job.ScheduleTime) {
		return untried("not run yet: first due at %s", job.ScheduleTime.UTC().Format(time.RFC3339))
	}
	return failed("the scheduler's calls do not arrive: see docs/runbooks/%s-missed.md", name)
}

// signatures tells from the answers of internal functions whether tokens reach them whole.
func (c *checker) signatures(context.Context) result {
	switch {
	case c.refused > 0:
		return failed("%d internal calls of the last %.0f minutes were answered 401: the signature of their tokens did not reach the function (set internal_tokens_verified_once = true), or its audience is wrong", c.refused, lately.Minutes())
	case c.seen == 0:
		return untried("no internal call was answered in the last %.0f minutes", lately.Minutes())
	}
	return passed("internal functions verified %d tokens in the last %.0f minutes, and refused none", c.seen, lately.Minutes())
}
