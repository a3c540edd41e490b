package webtest

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
)

// exchange is one request and its answer.
type exchange struct {
	request *http.Request
	asked   []byte // its body
	status  int
	header  http.Header
	body    []byte
}

var accepted sync.Map // patterns of operations

// Accepted reports whether a request for the operation, such as "GET /api/v1/tx/{txId}", was answered
// by 2xx in this process, and request and answer conformed to the document.
func Accepted(operation string) bool {
	_, ok := accepted.Load(operation)
	return ok
}

// Described reports whether a document describes the path: internal paths are for tasks, and those of the
// console are pages.
func Described(path string) bool {
	return !strings.HasPrefix(path, "/internal/") && !strings.HasPrefix(path, "/console/")
}

// check returns how the exchange violates the document; nil: it does not.
func (c *Contract) check(e exchange) error {
	if !Described(e.request.URL.Path) {
		return nil
	}
	e.request = e.request.Clone(e.request.Context())
	e.request.Body = http.NoBody
	c.mux.ServeHTTP(httptest.NewRecorder(), e.request) // sets the pattern and the path values
	pattern := e.request.Pattern
	op, ok := c.operations[pattern]
	if !ok {
		return c.checkUnknown(e)
	}
	if err := c.checkAnswer(op, e); err != nil {
		return fmt.Errorf("%s answered %d: %w\n%s %s", pattern, e.status, err, e.header.Get("Content-Type"), e.body)
	}
	if e.status < 300 {
		if err := c.checkRequest(op, e); err != nil {
			return fmt.Errorf("%s was accepted with %d, although the document forbids it: %w\n%s\n%s", pattern, e.status, err, e.request.URL, e.asked)
		}
		accepted.Store(pattern, true)
	}
	return nil
}

// checkUnknown checks the answer to a request for no known operation.
func (c *Contract) checkUnknown(e exchange) error {
	fail := func(why any) error {
		return fmt.Errorf("%s %s, which the document does not have, answered %d: %v\n%s", e.request.Method, e.request.URL.Path, e.status, why, e.body)
	}
	if e.status == http.StatusBadGateway || e.request.Method == http.MethodHead {
		return nil
	}
	value, err := parse(e.body)
	if err != nil {
		return fail(err)
	}
	if err := c.problem.Validate(value); err != nil {
		return fail(err)
	}
	switch fmt.Sprintf("%d %v", e.status, members(value)["code"]) {
	case "404 NOT_FOUND", "503 UNAVAILABLE":
		return nil
	case "405 METHOD_NOT_ALLOWED":
		if e.header.Get("Allow") == "" {
			return fail("without the header Allow")
		}
		return nil
	}
	return fail("want 404 NOT_FOUND or 405 METHOD_NOT_ALLOWED")
}

func (c *Contract) checkAnswer(op *openapi3.Operation, e exchange) error {
	described := op.Responses.Value(strconv.Itoa(e.status))
	if described == nil {
		return fmt.Errorf("the document does not have this status")
	}
	content := described.Value.Content
	if len(content) == 0 && slices.Contains(foreign, e.status) || e.request.Method == http.MethodHead {
		return nil
	}
	for name, h := range described.Value.Headers {
		if err := c.checkValues("header "+name, &h.Value.Parameter, e.header.Values(name)); err != nil {
			return err
		}
	}
	if len(content) == 0 {
		if len(e.body) > 0 {
			return fmt.Errorf("got a body, want none")
		}
		return nil
	}
	return c.checkContent(content, e)
}

// checkContent checks the body of an answer.
func (c *Contract) checkContent(content openapi3.Content, e exchange) error {
	media, _, err := mime.ParseMediaType(e.header.Get("Content-Type"))
	if err != nil || content[media] == nil {
		return fmt.Errorf("Content-Type %q is none that the document has", e.header.Get("Content-Type"))
	}
	schema := c.compiled[content[media].Schema]
	if !strings.HasSuffix(media, "json") {
		return schema.Validate(string(e.body))
	}
	value, err := parse(e.body)
	if err != nil {
		return err
	}
	if status, ok := members(value)["status"]; ok && media == problemDoc && fmt.Sprint(status) != fmt.Sprint(e.status) {
		return fmt.Errorf("the problem's status is %v", status)
	}
	return schema.Validate(value)
}

func (c *Contract) checkRequest(op *openapi3.Operation, e exchange) error {
	query, err := url.ParseQuery(e.request.URL.RawQuery)
	if err != nil {
		return err
	}
	for _, ref := range op.Parameters {
		p := ref.Value
		var given []string
		switch p.In {
		case "query":
			given = query[p.Name]
			delete(query, p.Name)
		case "header":
			given = e.request.Header.Values(p.Name)
		case "path":
			given = []string{e.request.PathValue(p.Name)}
		}
		if err := c.checkValues(p.In+" parameter "+p.Name, p, given); err != nil {
			return err
		}
	}
	for name := range query {
		return fmt.Errorf("there is no query parameter %q", name)
	}
	if op.RequestBody == nil {
		return nil
	}
	value, err := parse(e.asked)
	if err != nil {
		return err
	}
	if singly := members(op.Extensions["x-answered-singly"]); singly != nil {
		if left, err := dropRefused(value, e.body, fmt.Sprint(singly["in"]), fmt.Sprint(singly["by"])); err != nil || left == 0 {
			return err
		}
	}
	return c.compiled[op.RequestBody.Value.Content[jsonBody].Schema].Validate(value)
}

// dropRefused drops the elements of the request's list in that were refused, and returns how many are left. By the extension
// x-answered-singly each of them is answered by an element of the answer's list by, which has its status.
func dropRefused(request any, answer []byte, in, by string) (left int, err error) {
	answered, err := parse(answer)
	if err != nil {
		return 0, err
	}
	asked, _ := members(request)[in].([]any)
	results, _ := members(answered)[by].([]any)
	if len(asked) != len(results) {
		return 0, fmt.Errorf("%s: got %d results of %d elements", by, len(results), len(asked))
	}
	var kept []any
	for i, one := range asked {
		if status := fmt.Sprint(members(results[i])["status"]); status < "300" {
			kept = append(kept, one)
		}
	}
	members(request)[in] = kept
	return len(kept), nil
}

// checkValues checks the values of a parameter or header. A number's text is a JSON number.
func (c *Contract) checkValues(name string, p *openapi3.Parameter, given []string) error {
	switch {
	case len(given) > 1:
		return fmt.Errorf("%s occurs %d times", name, len(given))
	case len(given) == 0:
		if p.Required {
			return fmt.Errorf("%s is missing", name)
		}
		return nil
	case given[0] == "" && p.In == "query":
		return fmt.Errorf("%s is empty", name)
	}
	var value any = given[0]
	if kind := p.Schema.Value.Type; kind.Is("integer") || kind.Is("number") {
		value = json.Number(given[0])
	}
	if err := c.compiled[p.Schema].Validate(value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
