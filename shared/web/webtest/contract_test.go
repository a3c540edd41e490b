package webtest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web/webtest"
)

const document = `
openapi: 3.1.1
info: {title: Books, version: "1"}
paths:
  /books:
    post:
      requestBody:
        required: true
        content:
          application/json:
            schema:
              type: object
              additionalProperties: false
              properties: {title: {type: string, minLength: 1}}
              required: [title]
      responses:
        '201': {$ref: '#/components/responses/Book'}
        '409': {$ref: '#/components/responses/Refused'}
        '502': {description: of whatever stands between}
    get:
      parameters:
        - {name: limit, in: query, schema: {type: integer, minimum: 1}}
        - {name: shelf, in: query, required: true, schema: {type: string}}
      responses:
        '204': {description: none}
  /books/{id}:
    get:
      parameters:
        - {name: id, in: path, required: true, schema: {type: string, format: uuid}}
      responses:
        '200': {$ref: '#/components/responses/Book'}
  /books:batch:
    post:
      x-answered-singly: {in: books, by: results}
      requestBody:
        required: true
        content:
          application/json:
            schema:
              type: object
              properties: {books: {type: array, minItems: 1, items: {$ref: '#/components/schemas/Title'}}}
              required: [books]
      responses:
        '200':
          description: a result of each
          content:
            application/json:
              schema:
                type: object
                properties:
                  results: {type: array, items: {type: object, properties: {status: {type: integer}}}}
  /about:
    get:
      responses:
        '200':
          description: text
          content:
            text/plain: {schema: {type: string, minLength: 2}}
        '404': {$ref: '#/components/responses/Missing'}
components:
  responses:
    Missing:
      description: No.
      content:
        application/problem+json:
          schema:
            allOf:
              - $ref: '#/components/schemas/Problem'
              - properties: {code: {enum: [UNKNOWN, KNOWN]}}
    Book:
      description: A book.
      headers:
        Etag: {required: true, schema: {type: string}}
      content:
        application/json:
          schema: {$ref: '#/components/schemas/Book'}
    Refused:
      description: No.
      content:
        application/problem+json:
          schema:
            allOf:
              - $ref: '#/components/schemas/Problem'
              - properties: {code: {enum: [KNOWN, LENT]}}
  schemas:
    Title:
      type: object
      additionalProperties: false
      properties: {title: {type: string, minLength: 1}}
      required: [title]
    Book:
      type: object
      properties:
        title: {type: string}
        isbn: {type: [string, "null"]}
      required: [title, isbn]
    Problem:
      type: object
      properties: {status: {type: integer}, code: {type: string}}
      required: [status, code]
`

// An answer, or an accepted request, that the document does not have is reported, and no other.
func TestHandlerReportsEachViolation(t *testing.T) {
	t.Parallel()
	c := check.Value(webtest.Load([]byte(document)))(t)
	const (
		book    = `{"title":"a","isbn":null}`
		asked   = `{"title":"a"}`
		problem = "application/problem+json"
	)
	for _, tc := range []struct {
		name, method, path, asked string
		status                    int
		media, body               string
		want                      string // part of the report; "": none
	}{
		{"as described", "POST", "/books", asked, 201, "application/json", book, ""},
		{"a described refusal", "POST", "/books", `{"nonsense"`, 409, problem, `{"status":409,"code":"LENT"}`, ""},
		{"another status", "POST", "/books", asked, 200, "application/json", book, "does not have this status"},
		{"another code", "POST", "/books", asked, 409, problem, `{"status":409,"code":"LOST"}`, "value must be one of"},
		{"a status in the body that it is not", "POST", "/books", asked, 409, problem, `{"status":400,"code":"LENT"}`, "the problem's status is 400"},
		{"another member", "POST", "/books", asked, 201, "application/json", `{"title":"a","isbn":null,"shelf":1}`, "'shelf'"},
		{"a missing member", "POST", "/books", asked, 201, "application/json", `{"title":"a"}`, "'isbn'"},
		{"another type", "POST", "/books", asked, 201, "application/json", `{"title":"a","isbn":1}`, "want null or string"},
		{"another content type", "POST", "/books", asked, 201, "text/plain", book, "Content-Type"},
		{"no JSON", "POST", "/books", asked, 201, "application/json", "{", "EOF"},
		{"a request that it forbids, accepted", "POST", "/books", `{"title":""}`, 201, "application/json", book, "was accepted with 201"},
		{"a member that it forbids, accepted", "POST", "/books", `{"title":"a","shelf":1}`, 201, "application/json", book, "was accepted with 201"},
		{"no answer of ours", "POST", "/books", asked, 502, "text/html", "<p>sorry", ""},
		{"no body", "GET", "/books?shelf=a&limit=1", "", 204, "", "", ""},
		{"a body where there is none", "GET", "/books?shelf=a", "", 204, "", "a", "want none"},
		{"a parameter that is missing, accepted", "GET", "/books", "", 204, "", "", "shelf is missing"},
		{"an empty parameter, accepted", "GET", "/books?shelf=a&limit=", "", 204, "", "", "limit is empty"},
		{"a parameter of another type, accepted", "GET", "/books?shelf=a&limit=x", "", 204, "", "", "limit"},
		{"a parameter below its minimum, accepted", "GET", "/books?shelf=a&limit=0", "", 204, "", "", "limit"},
		{"a parameter that it does not have, accepted", "GET", "/books?shelf=a&sort=up", "", 204, "", "", `"sort"`},
		{"a path's parameter, accepted", "GET", "/books/7", "", 200, "application/json", book, "path parameter id"},
		{"the same, right", "GET", "/books/01a1fda0-b1f9-7b07-a2c1-57c667e395bc", "", 200, "application/json", book, ""},
		{"a path that it does not have", "GET", "/authors", "", 200, "application/json", `{}`, "which the document does not have"},
		{"a method that it does not have", "DELETE", "/books", "", 200, "application/json", `{}`, "which the document does not have"},
		{"the same, refused", "GET", "/authors", "", 404, problem, `{"status":404,"code":"NOT_FOUND"}`, ""},
		{"refused without Allow", "DELETE", "/books", "", 405, problem, `{"status":405,"code":"METHOD_NOT_ALLOWED"}`, "without the header Allow"},
		{"a page of the console", "GET", "/console/x", "", 299, "", "anything", ""},
		{"a text", "GET", "/about", "", 200, "text/plain; charset=utf-8", "of books", ""},
		{"a text that its schema forbids", "GET", "/about", "", 200, "text/plain", "a", "minLength: got 1, want 2"},
		{"a batch as described", "POST", "/books:batch", `{"books":[{"title":"a"}]}`, 200, "application/json", `{"results":[{"status":201}]}`, ""},
		{"an element that it forbids, refused", "POST", "/books:batch", `{"books":[{"title":""},{"title":"a"}]}`, 200, "application/json", `{"results":[{"status":400},{"status":201}]}`, ""},
		{"only elements that it forbids, refused", "POST", "/books:batch", `{"books":[{"title":""}]}`, 200, "application/json", `{"results":[{"status":400}]}`, ""},
		{"an element that it forbids, accepted", "POST", "/books:batch", `{"books":[{"title":""}]}`, 200, "application/json", `{"results":[{"status":201}]}`, "was accepted with 200"},
		{"a result too few", "POST", "/books:batch", `{"books":[{"title":"a"}]}`, 200, "application/json", `{"results":[]}`, "got 0 results of 1"},
		{"an internal path", "POST", "/internal/x", "", 299, "", "anything", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := report(t, c, tc.method, tc.path, tc.asked, func(w http.ResponseWriter) {
				w.Header().Set("Etag", "1")
				if tc.media != "" {
					w.Header().Set("Content-Type", tc.media)
				}
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			})
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) || tc.want != "" && got == "" {
				t.Errorf("got %q, want %q in it", got, tc.want)
			}
		})
	}
	got := report(t, c, "POST", "/books", asked, func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(201)
		_, _ = io.WriteString(w, book)
	})
	if !strings.Contains(got, "Etag is missing") {
		t.Errorf("without a header: got %q, want that it is missing", got)
	}
}

// report returns the contract's report about one exchange; "": none.
func report(t *testing.T, c *webtest.Contract, method, path, asked string, answer func(http.ResponseWriter)) (text string) {
	t.Helper()
	h := c.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got, err := io.ReadAll(r.Body); err != nil || string(got) != asked {
			t.Errorf("the handler read %q, %v; want %q", got, err, asked)
		}
		answer(w)
	}), func(err error) { text = err.Error() })
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(asked)))
	return text
}

// A contradictory document is refused.
func TestLoadRejectsContradictoryDocuments(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][2]string{
		"a reference that leads nowhere": {"'#/components/schemas/Book'", "'#/components/schemas/Film'"},
		"a comma in a text":              {"{description: of whatever", "{description: of, whatever"},
		"a range of statuses":            {"'409'", "'4XX'"},
		"an example that its schema refuses": {"schema: {type: string, format: uuid}}",
			"schema: {type: string, minLength: 2}, example: a}"},
		"a type that there is not": {"isbn: {type: [string, \"null\"]}", "isbn: {type: text}"},
	} {
		changed := strings.Replace(document, change[0], change[1], 1)
		if changed == document {
			t.Fatalf("%s: got no change", name)
		}
		if _, err := webtest.Load([]byte(changed)); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

// An example with a member that its schema does not have is found.
func TestExamplesAreChecked(t *testing.T) {
	t.Parallel()
	for example, wrong := range map[string]bool{`{title: a, isbn: null}`: false, `{title: a, isbn: null, shelf: 1}`: true} {
		const schema = "          schema: {$ref: '#/components/schemas/Book'}\n"
		c := check.Value(webtest.Load([]byte(strings.Replace(document, schema, schema+"          examples: {one: {value: "+example+"}}\n", 1))))(t)
		if n, err := c.CheckExamples(); n != 1 || (err != nil) != wrong {
			t.Errorf("%s: got %d examples, %v; want one, an error %t", example, n, err, wrong)
		}
	}
}

// The lists have the document's content.
func TestListsHaveTheDocumentsContent(t *testing.T) {
	t.Parallel()
	c := check.Value(webtest.Load([]byte(document)))(t)
	want := []string{"GET /about", "GET /books", "GET /books/{id}", "POST /books", "POST /books:batch"}
	check.Same(t, "operations", c.Operations(), want)
	check.Same(t, "codes", c.Codes(), []string{"KNOWN", "LENT", "UNKNOWN"})
	statuses := map[string][]int{"KNOWN": {404, 409}, "LENT": {409}, "UNKNOWN": {404}}
	check.Same(t, "statuses of codes", c.Statuses(), statuses)
}
