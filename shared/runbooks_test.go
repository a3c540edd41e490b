package shared_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/runbooks"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// pagesByName are the pages by name, without the one that lists them.
func pagesByName(t *testing.T) map[string]string {
	t.Helper()
	pages := make(map[string]string)
	for _, file := range files(t, "../docs/runbooks", ".md") {
		pages[strings.TrimSuffix(filepath.Base(file), ".md")] = readPage(t, file)
	}
	delete(pages, "README")
	return pages
}

// Each alert has its page, each page is an alert's or one of those without an alert, and
// the list has all of them.
func TestEachAlertHasItsRunbook(t *testing.T) {
	t.Parallel()
	alerts := []string{"archive", "caller-stolen", "user-token-stolen", "first-deploy", "mac-key", "signing-service", "upgrade", "restore", "postgres-upgrade", "failover", "region-lost", "state-lost", "project-lost", "audit", "approvals"}
	alerts = append(alerts, each(t, text(t, "../terraform/modules/alerts", "policies.tf"), `(?m)^    ([a-z-]+) = \{$`)...)
	jobs := regexp.MustCompile(`(?s)  jobs = \{(.*?)\n  \}`).FindString(text(t, "../terraform", "main.tf"))
	for _, job := range each(t, jobs, `(?m)^    ([a-z-]+) += \{`) {
		alerts = append(alerts, job+"-missed")
	}
	slices.Sort(alerts)
	pages := pagesByName(t)
	check.Same(t, "pages of docs/runbooks, beside the alerts", slices.Sorted(maps.Keys(pages)), slices.Compact(alerts))
	list := text(t, "../docs/runbooks", "README.md")
	for name, page := range pages {
		if !strings.Contains(list, "]("+name+".md)") {
			t.Errorf("docs/runbooks/README.md: no link to %s.md", name)
		}
		for _, part := range []string{"# ", "ook at**", "**Do", "ever"} {
			if !strings.Contains(page, part) && name != "restore" {
				t.Errorf("%s.md: got no %q, want what it means, what to look at, what to do, what never to do", name, part)
			}
		}
	}
}

// What to look at is calls of the API. SQL is at the end of a page, under the heading Queries.
func TestRunbooksDiagnoseByTheAPI(t *testing.T) {
	t.Parallel()
	for name, page := range pagesByName(t) {
		before, _, _ := strings.Cut(page, "\n## Queries\n")
		if strings.Contains(before, "```sql") {
			t.Errorf("%s.md: got SQL before the heading Queries, want it there", name)
		}
		_, look, _ := strings.Cut(before, "**Look at**")
		look, _, _ = strings.Cut(look, "\n**Do")
		if name == "restore" { // its steps are sections
			look = before
		}
		if len(runbooks.Calls(look)) == 0 {
			t.Errorf("%s.md: got no call of the API in what to look at, want one", name)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#([^)]*))?\)`)

// A link to a page leads to one, and to a heading that it has.
func TestLinksOfPagesLead(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*.md")
	more, _ := filepath.Glob("../docs/runbooks/*.md")
	if err != nil || len(more) == 0 {
		t.Fatalf("pages: got %d and %d, %v", len(pages), len(more), err)
	}
	for _, page := range slices.Concat(pages, more, []string{"../README.md", "../CHANGELOG.md", "../CONTRIBUTING.md"}) {
		for _, found := range link.FindAllStringSubmatch(readPage(t, page), -1) {
			target, err := os.ReadFile(filepath.Join(filepath.Dir(page), found[1]))
			if err != nil && !isFolder(filepath.Join(filepath.Dir(page), found[1])) {
				t.Errorf("%s: link to %s: %v", page, found[1], err)
			}
			if heading := found[2]; heading != "" && !slices.Contains(headings(string(target)), heading) {
				t.Errorf("%s: link to %s#%s, which has no such heading", page, found[1], heading)
			}
		}
	}
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// headings are the anchors of a page as GitHub makes them.
func headings(page string) (anchors []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		anchors = append(anchors, strings.ReplaceAll(kept, " ", "-"))
	}
	return anchors
}

// loadAPI reads openapi.yaml.
func loadAPI(t *testing.T) *openapi3.T {
	t.Helper()
	return check.Value(openapi3.NewLoader().LoadFromFile("../functions/openapi.yaml"))(t)
}

// described are the operations of openapi.yaml.
func described(t *testing.T) map[string]*openapi3.Operation {
	t.Helper()
	all := make(map[string]*openapi3.Operation)
	for path, item := range loadAPI(t).Paths.Map() {
		for method, operation := range item.Operations() {
			all[method+" "+path] = operation
		}
	}
	return all
}

// fieldsOf are the members that the operation's body may have.
func fieldsOf(operation *openapi3.Operation) (names []string) {
	if operation.RequestBody == nil {
		return nil
	}
	body := operation.RequestBody.Value.Content["application/json"].Schema
	for _, schema := range slices.Concat(openapi3.SchemaRefs{body}, body.Value.OneOf, body.Value.AnyOf, body.Value.AllOf) {
		names = slices.AppendSeq(names, maps.Keys(schema.Value.Properties))
	}
	return names
}

// member is a name in JSON with its colon, without deeper levels.
var (
	nested = regexp.MustCompile(`\{[^{}]*\}`)
	member = regexp.MustCompile(`"(\w+)":`)
)

// Each call in a runbook is one of openapi.yaml's, with the fields of its body, and a test
// runs it. The package of that test checks that the request is accepted ([runbooks.Unproven]).
func TestCallsOfRunbooksAreDescribedAndRun(t *testing.T) {
	t.Parallel()
	api := described(t)
	pages := check.Value(runbooks.Pages("../docs/runbooks"))(t)
	needed := map[string]bool{}
	for name, page := range pages {
		for _, call := range runbooks.Calls(page) {
			operation := inFull(call.Operation, api)
			if api[operation] == nil {
				t.Errorf("%s: names %s, which openapi.yaml has not, or more than once", name, call.Operation)
				continue
			}
			needed[operation] = true
			fields := fieldsOf(api[operation])
			for _, body := range call.Bodies {
				flat := "{" + nested.ReplaceAllString(strings.TrimPrefix(body, "{"), "0")
				for _, m := range member.FindAllStringSubmatch(flat, -1) {
					if !slices.Contains(fields, m[1]) {
						t.Errorf("%s: the body %s of %s has %q; its fields are %v", name, body, operation, m[1], fields)
					}
				}
			}
		}
	}
	check.Same(t, "calls with a test in runbooks.RunBy, beside those that a page names", slices.Sorted(maps.Keys(runbooks.RunBy)), slices.Sorted(maps.Keys(needed)))
	for operation, test := range runbooks.RunBy {
		if !hasTest(t, "../"+test.Folder, test.Name) {
			t.Errorf("%s: %s has no %s", operation, test.Folder, test.Name)
		}
	}
}

func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files := check.Value(filepath.Glob(filepath.Join(folder, "*_test.go")))(t)
	return slices.ContainsFunc(files, func(file string) bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(b), "\nfunc "+name+"(t *testing.T)")
	})
}

// inFull is the one operation that ends as a short one does; any other is itself.
func inFull(operation string, api map[string]*openapi3.Operation) string {
	method, rest, short := strings.Cut(operation, " …")
	if !short {
		return operation
	}
	var found []string
	for known := range api {
		if strings.HasPrefix(known, method+" ") && strings.HasSuffix(known, rest) {
			found = append(found, known)
		}
	}
	return strings.Join(found, " or ")
}

// Each log line that a runbook searches for is one that the code writes.
func TestLogLinesOfRunbooksAreWritten(t *testing.T) {
	t.Parallel()
	code := text(t, "../functions", ".go") + text(t, "txmanager", ".go") + text(t, "transfer", ".go") + text(t, "ledger/payout", ".go")
	found := 0
	for name, page := range pagesByName(t) {
		for _, search := range regexp.MustCompile(`jsonPayload\.message =~ "\^\((.*)\)"`).FindAllStringSubmatch(page, -1) {
			for _, line := range splitOutside(search[1]) {
				if found++; !regexp.MustCompile(`"` + line).MatchString(code) {
					t.Errorf("%s.md: searches the log for %q, which nothing writes", name, line)
				}
			}
		}
	}
	atLeast(t, "searched for", found, 10)
}

// acted are log messages of admin that are no act to repeat after a restore, or of one that another line has.
var acted = []string{
	"check of conservation demanded", "a webhook endpoint is tested", "events are delivered again", // repeated as needed
	"an act is proposed", "a proposal is rejected", "a proposal is approved", "a proposal is carried out", // the act has its own line
	"the spending of a submitter could not be read", "the queue could not be evaluated", "a stored payload is unreadable",
	"a payout was not driven: the sweep will find it", "no step task: the sweep will find the transfer",
	"no advance task: the sweep will find the intent", "no publish tasks: the sweep will find the events", "the sweep will find the events that wait",
	"a submitter was not released after a planned move", "a release from PROTECT was tried, and nothing changed",
}

// After a restore operators repeat their acts, which they find in the log. So the search has the line of each
// act.
func TestRestoreSearchesForEachAct(t *testing.T) {
	t.Parallel()
	search := regexp.MustCompile(`jsonPayload\.message =~ "(\^\(.*\))"`).FindStringSubmatch(pagesByName(t)["restore"])
	if search == nil {
		t.Fatal("restore.md: got no search of the log")
	}
	lines := each(t, text(t, "../functions/admin", ".go"), `(?:Info|Warn)Context\([a-zA-Z.()]+, "([^"]+)"`)
	lines = append(lines, each(t, text(t, "../functions/admin", ".go"), `said (?::=|=) "([^"]+)"`)...)
	for _, line := range lines {
		if !regexp.MustCompile(search[1]).MatchString(line) && !slices.Contains(acted, line) {
			t.Errorf("restore.md: the search does not find %q: add it there, or to the lines that are no act", line)
		}
	}
	atLeast(t, "lines", len(lines), 30)
}

// splitOutside splits at each | that stands in no parentheses.
func splitOutside(pattern string) (parts []string) {
	depth, from := 0, 0
	for i, c := range pattern {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		case '|':
			if depth == 0 {
				parts, from = append(parts, pattern[from:i]), i+1
			}
		}
	}
	return append(parts, pattern[from:])
}

// Commands of the migration job that a runbook names are commands of migrate, with
// flags that each takes, and the mark's object is where Terraform and the code keep it.
func TestRunbooksNameCommandsThatAreThere(t *testing.T) {
	t.Parallel()
	usage := text(t, "../migrations/migrate", "main.go")
	object := "gs://$PROJECT-fencepost-" + strings.Join(each(t, text(t, "../terraform", "mark.tf"), `\$\{var\.project\}-\$\{var\.name\}-(mark)"`), "") +
		"/" + strings.Join(each(t, text(t, "mark", ".go")+text(t, "../functions", "mark.go"), `= "(database-mark)"`), "")
	commands := 0
	for name, page := range pagesByName(t) {
		for _, m := range regexp.MustCompile(`--args='([^']*)'`).FindAllStringSubmatch(page, -1) {
			commands++
			words := strings.Split(m[1], ",")
			line := regexp.MustCompile(`(?m)migrate ` + regexp.QuoteMeta(words[0]) + `\b.*$`).FindString(usage)
			for _, flag := range words[1:] {
				if flag, value, _ := strings.Cut(flag, "="); line == "" || !strings.Contains(line, flag+" ") || value == "" {
					t.Errorf("%s.md: names %q, want a command of migrate, with flags of its own and their values, and no comma in them", name, m[1])
				}
			}
			if want := strings.Count(line, "--"); want != len(words)-1 {
				t.Errorf("%s.md: %q has %d flags, want %d as migrate does", name, m[1], len(words)-1, want)
			}
		}
		for _, at := range regexp.MustCompile(`gs://[^"#]*`).FindAllString(page, -1) {
			if at != object && at != "gs://$PROJECT-terraform" && at != "gs://$PROJECT-terraform/fencepost/dev/default.tfstate" {
				t.Errorf("%s.md: names %s, want the mark's %s or the bucket of Terraform's state", name, at, object)
			}
		}
	}
	atLeast(t, "commands", commands, 6)
}

// queried are the values for the variables of a runbook's queries.
var queried = map[string]string{
	"submitter": "eip155:1:0x00000000000000000000000000000000000000a1", "tx_id": "01a1fda0-b1f9-7b07-a2c1-57c667e395bc",
	"req_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "user_id": "7", "asset_id": "1",
}

// showsIdleSession reports whether a query about sessions finds the one that is idle in a transaction.
func showsIdleSession(ctx context.Context, conn *pgx.Conn, query string) bool {
	rows, err := conn.Query(ctx, query)
	if err != nil {
		return false
	}
	all, err := pgx.CollectRows(rows, pgx.RowToMap)
	return err == nil && slices.ContainsFunc(all, func(row map[string]any) bool { return row["state"] == "idle in transaction" })
}

// Each query of a runbook runs on the newest schema, as a reader, who may change
// nothing.
func TestQueriesOfRunbooksRun(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	reader := fmt.Sprintf("reader@p%d.example", time.Now().UnixNano())
	role := pgx.Identifier{reader}.Sanitize()
	conn := check.Value(pgx.Connect(t.Context(), url))(t)
	defer conn.Close(t.Context())
	run := func(statements string) error { _, err := conn.Exec(t.Context(), statements); return err }
	check.OK(t)(run("create role " + role))
	defer func() { _ = run(fmt.Sprintf("reset role; drop owned by %[1]s; drop role %[1]s", role)) }()
	check.OK(t)(migrations.Grant(t.Context(), url, migrations.Grants{Readers: []string{reader}}))
	check.OK(t)(run("set role " + role))
	other := check.Value(pgx.Connect(t.Context(), url))(t)
	defer other.Close(t.Context())
	check.OK(t)(other.Exec(t.Context(), "begin"))
	blocks, ofSessions := 0, 0
	for name, page := range pagesByName(t) {
		for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(page, -1) {
			query := regexp.MustCompile(`:'(\w+)'`).ReplaceAllStringFunc(block[1], func(variable string) string {
				return "'" + queried[strings.Trim(variable, ":'")] + "'"
			})
			if blocks++; !strings.HasSuffix(strings.TrimSpace(query), ";") {
				t.Errorf("%s.md: a query does not end in a semicolon, which psql would wait for:\n%s", name, query)
			}
			if err := run("begin read only;" + query + "rollback"); err != nil {
				t.Errorf("%s.md: %v\n%s", name, err, query)
				_ = run("rollback")
			}
			for statement := range strings.SplitSeq(query, ";") {
				if !strings.Contains(statement, "pg_stat_activity") {
					continue
				}
				if ofSessions++; !showsIdleSession(t.Context(), conn, statement) {
					t.Errorf("%s.md: a reader does not see what another's session does:\n%s", name, statement)
				}
			}
		}
	}
	atLeast(t, "queries of sessions", ofSessions, 2)
	atLeast(t, "queries", blocks, 20)
}
