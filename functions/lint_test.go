package functions_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// linters are redocly and spectral, with their packages' programs and arguments. Each fails by a warning too.
var linters = map[string][]string{
	"redocly":  {"@redocly/cli/bin/cli.js", "lint", "--config", "redocly.yaml"},
	"spectral": {"@stoplight/spectral-cli/dist/index.js", "lint", "--quiet", "--ruleset", "spectral.yaml", "--fail-severity", "hint"},
}

// lint runs the linter on the document. It skips t without Node or the linters' packages.
func lint(t *testing.T, linter, document string) (out string, err error) {
	t.Helper()
	const folder = "../scripts/openapi"
	_, missing := os.Stat(folder + "/node_modules")
	if missing == nil {
		_, missing = exec.LookPath("node")
	}
	if missing != nil {
		t.Skipf("SKIPPED: the linters of openapi.yaml: %v. Run: source scripts/lib/node.sh && ensure_npm_packages scripts/openapi", missing)
	}
	document = check.Value(filepath.Abs(document))(t)
	args := linters[linter]
	c := exec.CommandContext(t.Context(), "node", append(append([]string{"node_modules/" + args[0]}, args[1:]...), document)...)
	c.Dir = folder
	c.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true", "CI=true", "NO_COLOR=1", "NODE_NO_WARNINGS=1")
	text, err := c.CombinedOutput()
	return string(text), err
}

// No linter finds an error or a warning in the description.
func TestLintersFindNothing(t *testing.T) {
	t.Parallel()
	for name := range linters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, err := lint(t, name, "openapi.yaml"); err != nil {
				t.Errorf("got %v, want no finding:\n%s", err, out)
			}
		})
	}
}

// faulty breaks the rules of this project alone: names in camelCase but for transfers, and refusals of operations
// with a token.
const faulty = `openapi: 3.1.1
info:
  title: Books
  version: 0.1.0
  description: Books.
  contact: {name: a, url: "https://books.example"}
  license: {name: Apache-2.0, identifier: Apache-2.0}
servers: [{url: /}]
tags: [{name: books, description: Books.}]
security: [{caller: []}]
paths:
  /books:
    get:
      operationId: getBook
      tags: [books]
      summary: Returns a book
      description: The only one.
      responses:
        '200':
          description: The book.
          content:
            application/json:
              schema:
                type: object
                properties: {book: {$ref: '#/components/schemas/Book'}, transfer: {$ref: '#/components/schemas/Transfer'}}
components:
  securitySchemes:
    caller: {type: http, scheme: bearer}
  schemas:
    Book: {type: object, properties: {book_id: {type: string}, bookName: {type: string}}}
    Transfer: {type: object, properties: {transfer_id: {type: string}, transferName: {type: string}}}
`

// The linters know the rules of this project.
func TestLintersKnowOurRules(t *testing.T) {
	t.Parallel()
	document := filepath.Join(t.TempDir(), "openapi.yaml")
	check.OK(t)(os.WriteFile(document, []byte(faulty), 0o644))
	for name, want := range map[string][]string{
		"redocly":  {"refusals-are-described"},
		"spectral": {"book_id is not camelCase", "transferName is not snake_case"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := lint(t, name, document)
			for _, text := range want {
				if err == nil || !strings.Contains(out, text) {
					t.Errorf("got %v, want %q in\n%s", err, text, out)
				}
			}
			if strings.Contains(out, "bookName is not") || strings.Contains(out, "transfer_id is not") {
				t.Errorf("got right names refused:\n%s", out)
			}
		})
	}
}
