package functions_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/functions/catalogue"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web/webtest"
)

var described = sync.OnceValues(func() (*webtest.Contract, error) { return webtest.Load([]byte(functions.OpenAPI)) })

// apiOf returns openapi.yaml. Every answer of every test is checked against it: see deployment.serve.
func apiOf(t *testing.T) *webtest.Contract {
	t.Helper()
	c, err := described()
	check.OK(t)(err)
	return c
}

// The description has exactly the paths that callers, users and operators may call.
func TestDescriptionHasEveryPath(t *testing.T) {
	t.Parallel()
	h := build(t)
	app := h.opened(append(h.transferSettings(), consoleSettings(h.issuer.url)...)...)
	served := slices.DeleteFunc(app.Patterns(), func(pattern string) bool {
		_, path, _ := strings.Cut(" "+pattern, " /")
		return !webtest.Described("/" + path)
	})
	slices.Sort(served)
	if diff := cmp.Diff(served, apiOf(t).Operations()); diff != "" {
		t.Errorf("served, and described (-served +described):\n%s", diff)
	}
}

// The description has exactly the codes that the code declares.
func TestDescriptionHasEveryCode(t *testing.T) {
	t.Parallel()
	declared := map[string]bool{}
	for _, folder := range []string{"serve", "admin", "steps", "transfers", "../shared/web", "../shared/transfer", "../shared/ledger/payout"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: got %d files, %v", folder, len(files), err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				codesIn(t, file, declared)
			}
		}
	}
	want := slices.Sorted(maps.Keys(declared))
	got := append(apiOf(t).Codes(), "METHOD_NOT_ALLOWED", "STEP_FAILED") // the first belongs to no operation, the second to internal ones
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("declared, and described (-declared +described):\n%s", diff)
	}
	explained := map[string]bool{}
	for _, e := range catalogue.Entries {
		explained[e.Code] = true
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(explained))); diff != "" {
		t.Errorf("declared, and explained by package catalogue (-declared +explained):\n%s", diff)
	}
}

// beyondTheDocument are the statuses of codes that no operation of the document describes as a problem.
var beyondTheDocument = map[string][]int{
	"METHOD_NOT_ALLOWED": {405}, // of no operation
	"STEP_FAILED":        {500}, // of an internal one
	"DUPLICATE_REQUEST":  {200}, // of a stored transfer
}

// The catalogue has the statuses with which the description has each code.
func TestCatalogueHasTheStatusesOfTheDescription(t *testing.T) {
	t.Parallel()
	described := apiOf(t).Statuses()
	for code, statuses := range beyondTheDocument {
		described[code] = append(described[code], statuses...)
	}
	explained := map[string][]int{}
	for _, e := range catalogue.Entries {
		explained[e.Code] = e.Status
	}
	if diff := cmp.Diff(described, explained); diff != "" {
		t.Errorf("statuses of codes, described and explained (-described +explained):\n%s", diff)
	}
}

// codesIn adds the codes and reasons that the file declares.
func codesIn(t *testing.T, file string, into map[string]bool) {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	check.OK(t)(err)
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if nameOf(n.Type) == "Code" && len(n.Elts) > 0 {
				value := n.Elts[0]
				if pair, ok := value.(*ast.KeyValueExpr); ok {
					value = pair.Value
				}
				addText(value, into)
			}
		case *ast.ValueSpec:
			if nameOf(n.Type) == "Reason" {
				for _, value := range n.Values {
					addText(value, into)
				}
			}
		}
		return true
	})
}

// nameOf returns the last part of a type's name.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

func addText(e ast.Expr, into map[string]bool) {
	if literal, ok := e.(*ast.BasicLit); ok && literal.Kind == token.STRING {
		text, _ := strconv.Unquote(literal.Value)
		into[text] = true
	}
}

// Each example in the description is valid by its schema.
func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	own, err := webtest.Load([]byte(functions.OpenAPI))
	check.OK(t)(err)
	n, err := own.CheckExamples()
	check.OK(t)(err)
	if n < 40 {
		t.Errorf("examples: got %d, too few to be all", n)
	}
}

// A block number has one form in every answer: a JSON number. A node's own receipt is shown in one place, and is described
// as raw. Answers have described members only: see apiOf.
func TestBlockNumbersHaveOneForm(t *testing.T) {
	t.Parallel()
	described := regexp.MustCompile(`\b(?:blockNumber|block_number): (\{[^}]*\})`).FindAllStringSubmatch(functions.OpenAPI, -1)
	for _, one := range described {
		if !regexp.MustCompile(`type: (integer|\[integer, "null"\]), format: int64`).MatchString(one[1]) {
			t.Errorf("got %s, want an integer", one[0])
		}
	}
	check.Equal(t, "places with a block number", len(described), 4)
	raw := regexp.MustCompile(`(\w+): \{type: \[object, "null"\], additionalProperties: true, description: "the receipt as the node gave it`).FindAllStringSubmatch(functions.OpenAPI, -1)
	if len(raw) != 1 || raw[0][1] != "document" {
		t.Errorf("raw receipts: got %v, want document alone", raw)
	}
}
