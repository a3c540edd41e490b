package payouts

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack"
)

// page is a runbook that a test follows. The test must use every query and call that it prints.
type page struct {
	*deployment
	t       *testing.T
	name    string
	queries []string        // in the page's order
	calls   map[string]bool // method and path as printed, and whether the test used them
	ran     map[string]bool // the queries that ran
}

var (
	sqlBlock  = regexp.MustCompile("(?s)```sql\n(.*?)```")
	statement = regexp.MustCompile(`(?s)(?:\s*--[^\n]*\n)*\s*(select.*?;)`)
	called    = regexp.MustCompile("`((?:GET|POST|PUT) /(?:admin|api)/v1/[^`?]*?)`")
)

// follow reads docs/runbooks/{name}.md.
func (h *deployment) follow(t *testing.T, name string) *page {
	t.Helper()
	text := must(os.ReadFile("../../../docs/runbooks/" + name + ".md"))(t)
	p := &page{deployment: h, t: t, name: name, calls: map[string]bool{}, ran: map[string]bool{}}
	for _, block := range sqlBlock.FindAllStringSubmatch(string(text), -1) {
		for _, s := range statement.FindAllStringSubmatch(block[1], -1) {
			p.queries = append(p.queries, s[1])
		}
	}
	for _, c := range called.FindAllStringSubmatch(string(text), -1) {
		p.calls[c[1]] = false
	}
	return p
}

// query runs the query with the number, from 1 on, and returns its rows.
func (p *page) query(number int) []map[string]any {
	p.t.Helper()
	if number > len(p.queries) {
		p.t.Fatalf("%s.md: got %d queries, want %d", p.name, len(p.queries), number)
	}
	text := p.queries[number-1]
	p.ran[text] = true
	var found []map[string]any
	poll(p.t, "the database answers", func() bool {
		rows, err := p.DB.Query(p.t.Context(), strings.ReplaceAll(text, ":'submitter'", "'"+string(p.Payer)+"'"))
		if err == nil {
			found, err = pgx.CollectRows(rows, pgx.RowToMap)
		}
		return err == nil
	})
	return found
}

// call makes a call as the page prints it, with values for its braces, and requires success.
func (p *page) call(printed string, body any, in ...string) map[string]any {
	p.t.Helper()
	status, got := p.tries(printed, body, in...)
	if status != http.StatusOK && status != http.StatusNoContent {
		p.t.Fatalf("%s %v: got %d %v, want it done", printed, in, status, got)
	}
	return got
}

// tries is call with any answer, except those that ask for a retry.
func (p *page) tries(printed string, body any, in ...string) (status int, got map[string]any) {
	p.t.Helper()
	if _, ok := p.calls[printed]; !ok {
		p.t.Fatalf("%s.md does not print %s", p.name, printed)
	}
	p.calls[printed] = true
	method, path, _ := strings.Cut(printed, " ")
	parameter := regexp.MustCompile(`\{[a-zA-Z_]+\}`)
	for _, value := range in {
		at := parameter.FindStringIndex(path)
		path = path[:at[0]] + value + path[at[1]:]
	}
	poll(p.t, printed, func() bool {
		var err error
		got = map[string]any{}
		status, got, err = p.asks(stack.OperatorAccount, method, path, body)
		return err == nil && status != http.StatusServiceUnavailable && got["code"] != "NOT_LEADER"
	})
	return status, got
}

// followed fails if the page prints a query or call that the test did not use.
func (p *page) followed() {
	p.t.Helper()
	for _, c := range slices.Sorted(maps.Keys(p.calls)) {
		if !p.calls[c] {
			p.t.Errorf("%s.md prints %s: got it never made", p.name, c)
		}
	}
	for _, q := range p.queries {
		if !p.ran[q] {
			p.t.Errorf("%s.md prints a query: got it never run: %s", p.name, q)
		}
	}
}

// column returns one column of a query's rows as text.
func column(rows []map[string]any, name string) (all []string) {
	for _, row := range rows {
		all = append(all, fmt.Sprint(row[name]))
	}
	return all
}
