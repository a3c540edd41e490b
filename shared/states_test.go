package shared_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// update rewrites the generated parts of docs/deploy.md, docs/proofs.md, docs/state-machine.md and openapi.yaml.
var update = flag.Bool("update", false, "write the generated parts of the pages anew")

// transitionEdge is one change of state: its label in the picture, and what moves it in the table.
type transitionEdge struct{ label, movedBy string }

// movedToStuck names what moves a transaction to STUCK.
const movedToStuck = "session: `markStuck`, or `afterBroadcast` for bytes that no node will take"

// txEdges describe each change of a transaction to another state, "FROM TO".
var txEdges = map[string]transitionEdge{
	"QUEUED IN_FLIGHT":    {"nonce allocated", "advance: `allocateTxs`, before a signing service or [handler](handlers.md) is asked; a [reservation](hooks.md): `planReservations`"},
	"QUEUED SUBMITTED":    {"allocated and signed", "advance: `signAllocations` and `allocateTxs`, with a local signer or Cloud KMS"},
	"QUEUED FAILED":       {"refused, cancelled, expired", "advance: `reject`, `expireQueued`; caller or operator: `RecordDecision`"},
	"IN_FLIGHT SUBMITTED": {"signed", "advance: `planSignatures` and `storeVersion`"},
	"IN_FLIGHT STUCK":     {"needs a decision", movedToStuck},
	"IN_FLIGHT PROTECT":   {"nonce consumed elsewhere", "session: `evaluateViolation`"},
	"IN_FLIGHT CONFIRMED": {"named by a release", "resync: `endNamedRequest`"},
	"IN_FLIGHT FAILED":    {"displaced, or given back", "resync: `displaceLost`; the next use of a returned nonce: `queueReuse`"},
	"SUBMITTED TRACKING":  {"acknowledged", "session: `afterBroadcast`, `applyReceipt`"},
	"SUBMITTED STUCK":     {"attempts or time used up", movedToStuck},
	"SUBMITTED PROTECT":   {"nonce consumed elsewhere", "session: `evaluateViolation`"},
	"SUBMITTED CONFIRMED": {"final receipt", "session: `applyReceipt`; resync: `endNamedRequest`"},
	"SUBMITTED FAILED":    {"final receipt, displaced", "session: `endedByReceipt`; resync: `displaceLost`"},
	"TRACKING SUBMITTED":  {"new version, or sent again", "advance: `storeVersion`; a refused rebroadcast: `afterBroadcast`, `blockedBy`"},
	"TRACKING STUCK":      {"attempts or time used up", movedToStuck},
	"TRACKING PROTECT":    {"nonce consumed elsewhere", "session: `evaluateViolation`"},
	"TRACKING CONFIRMED":  {"final receipt", "session: `applyReceipt`; resync: `endNamedRequest`"},
	"TRACKING FAILED":     {"final receipt, displaced", "session: `endedByReceipt`; resync: `displaceLost`"},
	"STUCK SUBMITTED":     {"decided: new version", "advance, for a requested action: `planSignatures`"},
	"STUCK TRACKING":      {"receipt, or acknowledged", "session: `afterBroadcast`, `applyReceipt`"},
	"STUCK PROTECT":       {"nonce consumed elsewhere", "session: `evaluateViolation`"},
	"STUCK CONFIRMED":     {"final receipt", "session: `applyReceipt`; resync: `endNamedRequest`"},
	"STUCK FAILED":        {"final receipt, displaced", "session: `endedByReceipt`; resync: `displaceLost`"},
	"PROTECT TRACKING":    {"receipt, or nonce free", "session: `applyReceipt`; resume: `resumeProtected`"},
	"PROTECT CONFIRMED":   {"named by a release", "resync: `endNamedRequest`"},
	"PROTECT FAILED":      {"displaced", "resync: `displaceLost`"},
}

// transferEdges describe each change of a transfer. The page says in words what moves it.
var transferEdges = map[string]transitionEdge{
	"INIT SOURCE_PENDING":         {label: "begins"},
	"INIT FAILED":                 {label: "cancelled, expired"},
	"SOURCE_PENDING SOURCE_DONE":  {label: "withdrawn"},
	"SOURCE_PENDING FAILED":       {label: "source refused"},
	"SOURCE_DONE TARGET_PENDING":  {label: "same commit"},
	"TARGET_PENDING COMMITTED":    {label: "deposited"},
	"TARGET_PENDING COMPENSATING": {label: "target refused"},
	"COMPENSATING ROLLED_BACK":    {label: "refunded"},
}

// TestStatePicturesFollowTheTables holds docs/state-machine.md and openapi.yaml to the tables of
// states and transitions in Go.
func TestStatePicturesFollowTheTables(t *testing.T) {
	t.Parallel()
	const page, description = "../docs/state-machine.md", "../functions/openapi.yaml"
	states, causes := constantComments(t, "txmanager/state.go"), constantComments(t, "txmanager/wait.go")
	generatePart(t, page, "transactions", picture(t, txmanager.States(), txmanager.State.MayBecome, txEdges, func(s txmanager.State) string { return string(s) }))
	generatePart(t, page, "transfers", picture(t, transfer.States(), transfer.State.MayBecome, transferEdges, transfer.State.String))
	generatePart(t, page, "sub-states", stateTable(states))
	generateBetween(t, description, "      # generated: sub-states\n", "      # end\n", subStateSchema(states))
	generateBetween(t, description, "      # generated: wait-causes\n", "      # end-causes\n", waitCauseSchema(causes))
	generatePart(t, "../docs/runbooks/waiting.md", "wait-causes", waitCauseTable(t, causes))
	api := readPage(t, description)
	for name := range namesIn(readPage(t, page)) {
		if len(findCode(t, name)) == 0 && !strings.Contains(api, name) {
			t.Errorf("%s: names %s, which no package under shared/ or functions/ has", page, name)
		}
	}
}

// constantComments returns the comment of each string constant of a file, by the constant's value.
func constantComments(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed := check.Value(parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments))(t)
	comments := make(map[string]string)
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if value, ok := spec.Values[0].(*ast.BasicLit); ok {
				comments[strings.Trim(value.Value, `"`)] = strings.TrimSpace(spec.Comment.Text())
			}
		}
		return true
	})
	return comments
}

// stateTable renders a row for each state and sub-state.
func stateTable(meanings map[string]string) string {
	table := "| state | meaning |\n| --- | --- |\n"
	for _, state := range txmanager.States() {
		for _, sub := range state.SubStates() {
			if sub == "" {
				table += fmt.Sprintf("| %s | %s |\n", state, meanings[string(state)])
			} else {
				table += fmt.Sprintf("| %s/%s | %s |\n", state, sub, meanings[string(sub)])
			}
		}
	}
	return table
}

// subStateSchema renders the members of the schema TxSubState.
func subStateSchema(meanings map[string]string) string {
	text, enum := "      description: |\n", []string(nil)
	for _, state := range txmanager.States() {
		for _, sub := range state.SubStates() {
			if sub != "" {
				text += fmt.Sprintf("        - %s, of %s: %s\n", sub, state, meanings[string(sub)])
				enum = append(enum, string(sub))
			}
		}
	}
	return text + fmt.Sprintf("      enum: [%s]\n", strings.Join(enum, ", "))
}

// waitCauseSchema renders the members of the schema WaitCause.
func waitCauseSchema(meanings map[string]string) string {
	text, enum := "      description: |\n", []string(nil)
	for _, cause := range txmanager.WaitCauses() {
		text += fmt.Sprintf("        - %s: %s\n", cause, meanings[string(cause)])
		enum = append(enum, string(cause))
	}
	return text + fmt.Sprintf("      enum: [%s]\n", strings.Join(enum, ", "))
}

// waitCauseTable renders a row for each cause: its meaning, what an operator can do, and its limit.
func waitCauseTable(t *testing.T, meanings map[string]string) string {
	t.Helper()
	table := "| cause | meaning | ended by | what an operator can do | page | limit |\n| --- | --- | --- | --- | --- | --- |\n"
	for _, cause := range txmanager.WaitCauses() {
		g := cause.Guide()
		if _, err := os.Stat("../docs/runbooks/" + g.Runbook + ".md"); err != nil || g.NextActor == "" || g.Action == "" {
			t.Errorf("%s: got the guide %+v, %v; want who ends it, an action and a runbook", cause, g, err)
		}
		limit := "none"
		switch {
		case g.Finalities > 0:
			limit = fmt.Sprintf("%d × finality", g.Finalities)
		case g.Limit >= time.Hour:
			limit = fmt.Sprintf("%d h", g.Limit/time.Hour)
		case g.Limit > 0:
			limit = fmt.Sprintf("%d min", g.Limit/time.Minute)
		}
		table += fmt.Sprintf("| `%s` | %s | %s | %s | [%s](%s.md) | %s |\n", cause, meanings[string(cause)], g.NextActor, g.Action, g.Runbook, g.Runbook, limit)
	}
	return table
}

// picture renders a state diagram, and a table of the edges that name what moves them.
func picture[S comparable](t *testing.T, states []S, may func(S, S) bool, edges map[string]transitionEdge, name func(S) string) string {
	t.Helper()
	var diagram, table strings.Builder
	described, groups, sources := 0, []string(nil), make(map[string][]string)
	for _, from := range states {
		for _, to := range states {
			if from == to || !may(from, to) {
				continue
			}
			e, ok := edges[name(from)+" "+name(to)]
			if !ok {
				t.Errorf("%s may become %s: nothing describes what moves it", name(from), name(to))
			}
			described++
			fmt.Fprintf(&diagram, "    %s --> %s: %s\n", name(from), name(to), e.label)
			if e.movedBy == "" {
				continue
			}
			group := name(to) + " | " + e.movedBy
			if sources[group] == nil {
				groups = append(groups, group)
			}
			sources[group] = append(sources[group], name(from))
		}
	}
	if described != len(edges) {
		t.Errorf("%s: %d changes are described, %d are possible", name(states[0]), len(edges), described)
	}
	if len(groups) > 0 {
		table.WriteString("\n| from | to | moved by |\n| --- | --- | --- |\n")
	}
	for _, group := range groups {
		fmt.Fprintf(&table, "| %s | %s |\n", strings.Join(sources[group], ", "), group)
	}
	return "```mermaid\nstateDiagram-v2\n    [*] --> " + name(states[0]) + ": accepted\n" + diagram.String() + "```\n" + table.String()
}

// generatePart compares the generated part of a page, or writes it with -update.
func generatePart(t *testing.T, page, name, part string) {
	t.Helper()
	generateBetween(t, page, "<!-- generated: "+name+" -->\n", "<!-- end -->\n", part)
}

func generateBetween(t *testing.T, page, begin, end, part string) {
	t.Helper()
	text := readPage(t, page)
	before, rest, ok := strings.Cut(text, begin)
	_, after, ends := strings.Cut(rest, end)
	if !ok || !ends {
		t.Fatalf("%s has no part %q", page, begin)
	}
	writeOrCompare(t, page, text, before+begin+part+end+after)
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	return string(check.Value(os.ReadFile(page))(t))
}

func writeOrCompare(t *testing.T, page, was, want string) {
	t.Helper()
	if was == want {
		return
	}
	if !*update {
		t.Fatalf("%s does not follow the code; run go test ./shared -update, then read the difference", page)
	}
	check.OK(t)(os.WriteFile(page, []byte(want), 0o644))
}

// codeName matches a name in code style that can be a function or a statement: mixed case.
var codeName = regexp.MustCompile("`([a-z]+[A-Z]\\w*|[A-Z][a-z]+[A-Z]\\w*)`")

func namesIn(text string) map[string]bool {
	names := make(map[string]bool)
	for _, found := range codeName.FindAllStringSubmatch(text, -1) {
		names[found[1]] = true
	}
	return names
}

// TestSchemaHasEverySubState compares the constraint sub_state_fits with the table in Go. Held is a flag.
func TestSchemaHasEverySubState(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), storetest.New(t).DB
	var definition, condition string
	row := db.QueryRow(ctx, `select pg_get_constraintdef(oid), pg_get_expr(conbin, conrelid) from pg_constraint where conname = 'sub_state_fits'`)
	check.OK(t)(row.Scan(&definition, &condition))
	known := []txmanager.SubState{"", "UNKNOWN"}
	for _, state := range txmanager.States() {
		known = append(known, state.SubStates()...)
	}
	for _, state := range txmanager.States() {
		for _, sub := range known {
			var got bool
			err := db.QueryRow(ctx, `select `+condition+` from (select $1 as state, nullif($2, '') as sub_state, 1 as recorded_nonce) m`, state, sub).Scan(&got)
			if want := sub != txmanager.Held && slices.Contains(state.SubStates(), sub); err != nil || got != want {
				t.Errorf("%s/%s: stored %t, %v; want %t. Add a migration that replaces sub_state_fits, now %s", state, sub, got, err, want, definition)
			}
		}
	}
}

// The constraint wait_cause_is_known allows exactly the stored causes.
func TestSchemaHasEveryWaitCause(t *testing.T) {
	t.Parallel()
	var definition string
	row := storetest.New(t).DB.QueryRow(t.Context(), `select pg_get_constraintdef(oid) from pg_constraint where conname = 'wait_cause_is_known'`)
	check.OK(t)(row.Scan(&definition))
	var got []txmanager.WaitCause
	for _, found := range regexp.MustCompile(`'([A-Z_]+)'`).FindAllStringSubmatch(definition, -1) {
		got = append(got, txmanager.WaitCause(found[1]))
	}
	slices.Sort(got)
	check.Same(t, "causes: add a migration that replaces the constraint", got, slices.Sorted(slices.Values(txmanager.StoredCauses())))
}

// The glossary is alphabetical, with one sentence a term.
func TestGlossaryIsAlphabetical(t *testing.T) {
	t.Parallel()
	before := ""
	for _, part := range strings.Split(readPage(t, "../docs/glossary.md"), "\n### ")[1:] {
		term, meaning, _ := strings.Cut(part, "\n")
		if cmp.Compare(strings.ToLower(term), strings.ToLower(before)) <= 0 {
			t.Errorf("%s stands behind %s", term, before)
		}
		if sentence := strings.TrimSpace(meaning); !strings.HasSuffix(sentence, ".") || strings.Contains(sentence, ". ") {
			t.Errorf("%s: got %q, want one sentence", term, sentence)
		}
		before = term
	}
	if before == "" {
		t.Error("terms: got none, want some")
	}
}

// files are the files below the folder whose names end so, without tests.
func files(t *testing.T, folder, ending string) (paths []string) {
	t.Helper()
	check.OK(t)(filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ending) && !strings.HasSuffix(path, "_test.go") {
			paths = append(paths, path)
		}
		return err
	}))
	return paths
}

// source is a parsed Go file.
type source struct {
	path string
	*ast.File
}

// positions has the lines of all parsed files.
var positions = token.NewFileSet()

// parsed are the Go files below the folders, without tests.
func parsed(t *testing.T, folders ...string) (all []source) {
	t.Helper()
	for _, folder := range folders {
		for _, path := range files(t, folder, ".go") {
			all = append(all, source{path, check.Value(parser.ParseFile(positions, path, nil, parser.SkipObjectResolution))(t)})
		}
	}
	return all
}

// section is the part of a page under a heading of the second level.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, below, ok := strings.Cut(readPage(t, page), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s: got no heading %q", page, heading)
	}
	text, _, _ := strings.Cut(below, "\n## ")
	return text
}
