package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// Doctor tells each part on one line, what to do about a problem, and exits by 1 if there is one.
func TestDoctor(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	overview := func(at, counted time.Time) answer {
		return answer{200, fmt.Sprintf(`{"at":%q,"states":[{"state":"QUEUED","count":12,"held":0}],"rates":[],"ratesUpTo":%q,"oldest":null,"attention":[],"instance":"i","build":{"version":"v0.1.0"},"settings":[{"name":"log.level","value":"debug"}]}`,
			at.Format(time.RFC3339Nano), counted.Format(time.RFC3339Nano))}
	}
	const wholeChain = `{"chains":[{"chainId":1,"quorum":2,"nodes":[{"name":"a","head":7},{"name":"b","head":7}]}]}`
	well := map[string]answer{"GET /errors/NOT_FOUND": {200, "NOT_FOUND"}, "GET /admin/v1/overview": overview(now, now), "GET /admin/v1/chains": {200, wholeChain},
		"GET /admin/v1/attention":                             {200, `{"items":[{"kind":"PROPOSAL","overdue":false,"since":"2026-01-02T03:04:05Z","subject":{},"why":"w","action":"a","runbook":"r"}]}`},
		"GET /api/v1/tx/00000000-0000-0000-0000-000000000000": problem(404, "NOT_FOUND", "")}
	const stuck = `{"kind":"STUCK","overdue":true,"since":"2026-01-02T03:04:05Z","subject":{"txId":"tx-1"},"why":"it waits","action":"decide","runbook":"docs/runbooks/stuck.md"}`
	for _, c := range []struct {
		name, path string
		change     answer
		code       int
		want       []string // lines, in any order
	}{
		{"all is well", "", answer{}, exitOK, []string{"ok       api ", "ok       identity   the operator's", "ok       identity   the caller's", "ok       clock ", "log.level", "ok       sweep ", "2 of 2 nodes answer",
			"ok       database   it answers; nothing needs a person", "ok       queues     nothing needs a person, QUEUED 12", "ok       approvals  1 wait, none for too long"}},
		{"another server", "GET /errors/NOT_FOUND", answer{404, ""}, exitFailed, []string{"PROBLEM  api        no answer: GET /errors/NOT_FOUND: answer 404; do: "}},
		{"no operator", "GET /admin/v1/overview", problem(403, "FORBIDDEN", ""), exitFailed, []string{"PROBLEM  identity   FORBIDDEN (403): of this request; do: see docs/errors.md"}},
		{"no database", "GET /admin/v1/overview", answer{503, `{"status":503,"code":"UNAVAILABLE","title":"t"}`}, exitFailed, []string{"PROBLEM  database   GET /admin/v1/overview: the outcome is unknown: 503 UNAVAILABLE; do: see whether the database answers"}},
		{"a clock", "GET /admin/v1/overview", overview(now.Add(-time.Hour), now), exitFailed, []string{"PROBLEM  clock "}},
		{"no sweep", "GET /admin/v1/overview", overview(now, now.Add(-time.Hour)), exitFailed, []string{"PROBLEM  sweep ", "docs/runbooks/sweep-missed.md"}},
		{"a node", "GET /admin/v1/chains", answer{200, `{"chains":[{"chainId":1,"quorum":2,"nodes":[{"name":"a","head":7},{"name":"b","error":"connection refused"}]}]}`}, exitFailed,
			[]string{"PROBLEM  nodes      chain 1: 1 of 2 nodes answer, 2 must agree", "PROBLEM  nodes      chain 1, node b: connection refused; do: "}},
		{"a queue", "GET /admin/v1/attention", answer{200, `{"items":[{"kind":"STUCK","overdue":true,"since":"2026-01-02T03:04:05Z","subject":{"txId":"tx-1","incident":12345678},"why":"it waits","action":"decide","runbook":"docs/runbooks/stuck.md"},
			{"kind":"NEW","overdue":true,"since":"2026-01-02T03:04:05Z","subject":{},"why":"w","action":"a","runbook":"r"}]}`}, exitFailed,
			[]string{"PROBLEM  queues     STUCK since 2026-01-02T03:04:05Z: it waits (txId tx-1, incident 12345678); do: decide (docs/runbooks/stuck.md)", "PROBLEM  others     NEW "}},
		{"many of a kind", "GET /admin/v1/attention", answer{200, `{"items":[` + strings.Repeat(stuck+",", 51) + stuck + `]}`}, exitFailed, []string{"PROBLEM  queues     2 more like these; do: see all"}},
		{"no answer about the nodes", "GET /admin/v1/chains", answer{503, ""}, exitFailed, []string{"PROBLEM  nodes      GET /admin/v1/chains: the outcome is unknown"}},
		{"the caller's token", "GET /api/v1/tx/00000000-0000-0000-0000-000000000000", problem(401, "UNAUTHORIZED", ""), exitFailed, []string{"PROBLEM  identity   UNAUTHORIZED (401)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			scripts := map[string][]answer{}
			for path, one := range well {
				scripts[path] = []answer{one}
			}
			if c.path != "" {
				scripts[c.path] = []answer{c.change}
			}
			d := serve(t, scripts)
			code, out, problems := d.fencepost(t, "doctor --within 1s", "FENCEPOST_OPERATOR_TOKEN="+secret)
			check.Equal(t, "exit", code, c.code)
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("got\n%s%s\nwant %q", out, problems, want)
				}
			}
			if c.code == exitOK && strings.Contains(out, "PROBLEM") {
				t.Errorf("got\n%s\nwant no problem", out)
			}
			if strings.Contains(out, "--request-id") {
				t.Errorf("got\n%s\nwant no advice about requests", out)
			}
			sayWhatToDo(t, out)
			_, out, _ = d.fencepost(t, "doctor --within 1s --json")
			for line := range strings.Lines(out) {
				if !json.Valid([]byte(line)) {
					t.Errorf("--json: got %q, want JSON", line)
				}
			}
		})
	}
}

// sayWhatToDo checks that each problem says what to do about it.
func sayWhatToDo(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if _, todo, _ := strings.Cut(line, "; do: "); strings.HasPrefix(line, "PROBLEM") && strings.TrimSpace(todo) == "" {
			t.Errorf("got %q, want what to do", line)
		}
	}
}

// Without a deployment, or without a token, doctor ends at the first problem, and says what to do about it.
func TestDoctorWithoutADeployment(t *testing.T) {
	t.Parallel()
	d := serve(t, map[string][]answer{"GET /errors/NOT_FOUND": {{200, "NOT_FOUND"}}})
	for line, want := range map[string]string{
		"doctor --within 1s --api http://127.0.0.1:1":             "PROBLEM  api        no answer: ",
		"doctor --within 1s --token-file /nowhere --api " + d.URL: "PROBLEM  identity   GET /admin/v1/overview: fetch a token: read the token's file: no such file",
	} {
		code, out, problems := fencepost(t, []string{"FENCEPOST_TOKEN=" + secret}, line, "")
		if code != exitFailed || !strings.Contains(out, want) || !strings.HasSuffix(problems, "lines with a PROBLEM: 1\n") {
			t.Errorf("%s: got exit %d, %s%s; want %q", line, code, out, problems, want)
		}
		sayWhatToDo(t, out)
	}
}
