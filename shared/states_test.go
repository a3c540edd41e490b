package shared_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// update rewrites the generated parts of docs/deploy.md, docs/proofs.md and docs/state-machine.md.
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

// TestStatePicturesFollowTheTables holds docs/state-machine.md to the tables of transitions in Go.
func TestStatePicturesFollowTheTables(t *testing.T) {
	t.Parallel()
	const page = "../docs/state-machine.md"
	text := readPage(t, page)
	got := text
	got = replacePart(t, got, "transactions", picture(t, txmanager.States(), txmanager.State.MayBecome, txEdges, func(s txmanager.State) string { return string(s) }))
	got = replacePart(t, got, "transfers", picture(t, transfer.States(), transfer.State.MayBecome, transferEdges, transfer.State.String))
	writeOrCompare(t, page, text, got)
	api := readPage(t, "../functions/openapi.yaml")
	for name := range namesIn(text) {
		if len(findCode(t, name)) == 0 && !strings.Contains(api, name) {
			t.Errorf("%s: names %s, which no package under shared/ or functions/ has", page, name)
		}
	}
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

// replacePart replaces the generated part of a page.
func replacePart(t *testing.T, text, name, part string) string {
	t.Helper()
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end -->\n"
	before, rest, ok := strings.Cut(text, begin)
	_, after, ends := strings.Cut(rest, end)
	if !ok || !ends {
		t.Fatalf("the page has no part %q", begin)
	}
	return before + begin + part + end + after
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func writeOrCompare(t *testing.T, page, was, want string) {
	t.Helper()
	if was == want {
		return
	}
	if !*update {
		t.Fatalf("%s does not follow the code; run go test ./shared -update, then read the difference", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
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

// goFiles are the non-test Go files of the product.
func goFiles(t *testing.T) (files []string) {
	t.Helper()
	for _, root := range []string{".", "../functions"} {
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}
