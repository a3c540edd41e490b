package functions_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/functions/catalogue"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web/webtest"
)

var described = sync.OnceValues(func() (*webtest.Contract, error) { return webtest.Load([]byte(functions.OpenAPI)) })

// apiOf returns openapi.yaml. Every answer of every test is checked against it: see deployment.serve.
func apiOf(t *testing.T) *webtest.Contract {
	t.Helper()
	return check.Value(described())(t)
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
	check.Same(t, "described", apiOf(t).Operations(), served)
}

// The description has exactly the codes that the code declares.
func TestDescriptionHasEveryCode(t *testing.T) {
	t.Parallel()
	declared := slices.Sorted(maps.Keys(declaredCodes(t,
		"serve/*.go", "admin/*.go", "steps/*.go", "transfers/*.go", "../shared/web/*.go", "../shared/transfer/*.go", "../shared/ledger/payout/*.go")))
	described := append(apiOf(t).Codes(), "METHOD_NOT_ALLOWED", "STEP_FAILED") // the first belongs to no operation, the second to internal ones
	slices.Sort(described)
	check.Same(t, "described", described, declared)
	var explained []string
	for _, e := range catalogue.Entries {
		explained = append(explained, e.Code)
	}
	slices.Sort(explained)
	check.Same(t, "explained by package catalogue", explained, declared)
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
	check.Same(t, "statuses of the catalogue", explained, described)
}

// Each example in the description is valid by its schema.
func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	own := check.Value(webtest.Load([]byte(functions.OpenAPI)))(t)
	n := check.Value(own.CheckExamples())(t)
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
