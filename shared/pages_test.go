package shared_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

var (
	namedTest    = regexp.MustCompile("`(Test[A-Z]\\w+)`")
	declaredTest = regexp.MustCompile(`(?m)^func (Test[A-Z]\w+)\(`)
)

// A page that says which test checks a promise names one that there is.
func TestPagesNameTestsThatAreThere(t *testing.T) {
	t.Parallel()
	declared := make(map[string]bool)
	check.OK(t)(filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range declaredTest.FindAllStringSubmatch(string(text), -1) {
			declared[found[1]] = true
		}
		return err
	}))
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages: got %d, %v; want some", len(pages), err)
	}
	named := 0
	for _, page := range append(pages, "../README.md", "../CHANGELOG.md") {
		for _, found := range namedTest.FindAllStringSubmatch(readPage(t, page), -1) {
			if named++; !declared[found[1]] {
				t.Errorf("%s: names %s, which is not there", page, found[1])
			}
		}
	}
	atLeast(t, "tests named by the pages", named, 1)
}

var recipeFile = regexp.MustCompile("`([a-z]+/[a-z/_0-9-]+\\.(?:go|md|sql|yaml|tf)|CHANGELOG.md)`")

// A recipe names files that are there. One with a part in capitals is to be made.
func TestRecipesNameFilesThatAreThere(t *testing.T) {
	t.Parallel()
	for _, recipe := range strings.Split(section(t, "../CONTRIBUTING.md", "Recipes"), "\n### ")[1:] {
		files := recipeFile.FindAllStringSubmatch(recipe, -1)
		for _, file := range files {
			check.Err(t, "a recipe names "+file[1], nil)(os.Stat(filepath.Join("..", file[1])))
		}
		if len(files) == 0 {
			t.Errorf("the recipe names no file: %.40q", recipe)
		}
	}
}

var directModule = regexp.MustCompile(`(?m)^\t(\S+) v\S+$`)

// The page has each direct dependency: its module, or the end of it after an ellipsis.
func TestEachDirectDependencyHasARow(t *testing.T) {
	t.Parallel()
	table := section(t, "../docs/architecture.md", "Direct dependencies")
	all := directModule.FindAllStringSubmatch(readPage(t, "../go.mod"), -1)
	for _, module := range all {
		name := strings.TrimPrefix(module[1], "github.com/")
		found := strings.Contains(table, name)
		for end := name; !found && end != ""; {
			_, end, _ = strings.Cut(end, "/")
			found = end != "" && strings.Contains(table, "…/"+end)
		}
		if !found {
			t.Errorf("docs/architecture.md: the table of direct dependencies has no row for %s", name)
		}
	}
	atLeast(t, "direct dependencies of go.mod", len(all), 1)
}

var (
	named    = regexp.MustCompile(`(?m)^- \*\*([^*]+)\*\*:`)
	security = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`)
	attacks  = regexp.MustCompile(`(?m)^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$`)
)

// The page on security has one row for each pair of an attacker and an asset. Each row
// names a test that shows it, or says why none can.
func TestEveryAttackerAndAssetHasARow(t *testing.T) {
	t.Parallel()
	const page = "../docs/security.md"
	rows := make(map[[2]string]int)
	for _, row := range security.FindAllStringSubmatch(section(t, page, "Who can do what"), -1) {
		rows[[2]string{row[1], row[2]}]++
		if shown := row[4]; !namedTest.MatchString(shown) && !strings.HasPrefix(shown, "no test: ") && shown != "test" && shown != "---" {
			t.Errorf("%s and %s: names neither a test nor why there is none: %s", row[1], row[2], shown)
		}
	}
	pairs := 0
	for _, attacker := range named.FindAllStringSubmatch(section(t, page, "Attackers"), -1) {
		for _, asset := range named.FindAllStringSubmatch(section(t, page, "Assets"), -1) {
			if pairs++; rows[[2]string{attacker[1], asset[1]}] != 1 {
				t.Errorf("%s and %s: got %d rows, want 1", attacker[1], asset[1], rows[[2]string{attacker[1], asset[1]}])
			}
		}
	}
	check.Equal(t, "pairs of attackers and assets", pairs, 77)
}

// points are those of the audit of 2026-11-22: its findings, and what it attacked that held.
var points = []string{
	"H1", "H2a", "H2b", "H3", "H4", "H5", "H6", "M1", "M2", "M3", "M4", "M5", "M6", "M7", "L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "L9", "F6", "F7",
	"held: wrong tokens", "held: e-mails and names", "held: internal paths", "held: another caller's transaction", "held: policies and handlers",
	"held: forms of transactions", "held: hostile JSON and SQL", "held: hostile SQL as a function's role", "held: secrets",
	"held: requests of the functions' own", "held: webhooks", "held: Terraform",
}

// The page on security has each point of the audit, with a test that tries it now, or the
// reason why there is none.
func TestEachPointOfTheAuditHasARow(t *testing.T) {
	t.Parallel()
	rows := attacks.FindAllStringSubmatch(section(t, "../docs/security.md", "The audit of 2026-11-22, attack by attack"), -1)
	for _, point := range points {
		found := 0
		for _, row := range rows {
			if rest, ok := strings.CutPrefix(row[1], point); !ok || rest != "" && rest[0] != ' ' {
				continue
			}
			if found++; !namedTest.MatchString(row[2]) && !strings.HasPrefix(row[2], "no test: ") {
				t.Errorf("%s: names neither a test nor why there is none: %s", row[1], row[2])
			}
		}
		if found == 0 {
			t.Errorf("%s: got no row, want one", point)
		}
	}
}

// measuredRate is the first rate of a row of docs/scale.md that was measured.
var measuredRate = regexp.MustCompile(`(?m)^\|[^|]*\| ([\d,]+)(?: transactions)? a second .*\| measured \|$`)

// The measured rates of docs/scale.md are figures of docs/costs.md.
func TestMeasuredRatesOfScaleAreThoseOfCosts(t *testing.T) {
	t.Parallel()
	costs, found := text(t, "../docs", "costs.md"), measuredRate.FindAllStringSubmatch(text(t, "../docs", "scale.md"), -1)
	check.Equal(t, "measured rates of docs/scale.md", len(found), 2)
	for _, row := range found {
		if !strings.Contains(costs, "| "+row[1]+" |") {
			t.Errorf("docs/scale.md has %s a second as measured, and docs/costs.md does not", row[1])
		}
	}
}
