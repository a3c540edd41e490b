package webtest

import (
	"fmt"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
)

// exchange is one request and its answer.
type exchange struct {
	request *http.Request
	asked   []byte // its body
	values  func(name string) string
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
	pattern, values := c.find(e.request)
	op, ok := c.operations[pattern]
	if !ok {
		return c.checkUnknown(e)
	}
	e.values = values
	if err := op.checkAnswer(e); err != nil {
		return fmt.Errorf("%s answered %d: %w\n%s %s", pattern, e.status, err, e.header.Get("Content-Type"), e.body)
	}
	if e.status < 300 {
		if err := op.checkRequest(e); err != nil {
			return fmt.Errorf("%s was accepted with %d, although the document forbids it: %w\n%s\n%s", pattern, e.status, err, e.request.URL, e.asked)
		}
		accepted.Store(pattern, true)
	}
	return nil
}

// find returns the pattern of the request's operation, and its path values.
func (c *Contract) find(r *http.Request) (pattern string, values func(string) string) {
	probe := r.Clone(r.Context())
	if _, pattern = c.mux.Handler(probe); pattern == "" {
		return "", nil
	}
	probe.Body = http.NoBody
	c.mux.ServeHTTP(httptest.NewRecorder(), probe) // sets them
	return pattern, probe.PathValue
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

func (op *operation) checkAnswer(e exchange) error {
	a, ok := op.answers[e.status]
	switch {
	case !ok:
		return fmt.Errorf("the document does not have this status")
	case a.free, e.request.Method == http.MethodHead:
		return nil
	}
	for _, h := range a.headers {
		if err := h.check("header", e.header.Values(h.name)); err != nil {
			return err
		}
	}
	if len(a.content) == 0 {
		if len(e.body) > 0 {
			return fmt.Errorf("got a body, want none")
		}
		return nil
	}
	media, _, err := mime.ParseMediaType(e.header.Get("Content-Type"))
	schema, ok := a.content[media]
	if err != nil || !ok {
		return fmt.Errorf("Content-Type %q is none that the document has", e.header.Get("Content-Type"))
	}
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

func (op *operation) checkRequest(e exchange) error {
	query, err := url.ParseQuery(e.request.URL.RawQuery)
	if err != nil {
		return err
	}
	for _, p := range op.parameters {
		var given []string
		switch p.in {
		case "query":
			given = query[p.name]
			delete(query, p.name)
		case "header":
			given = e.request.Header.Values(p.name)
		case "path":
			given = []string{e.values(p.name)}
		}
		if err := p.check(p.in+" parameter", given); err != nil {
			return err
		}
	}
	for name := range query {
		return fmt.Errorf("there is no query parameter %q", name)
	}
	if op.body == nil {
		return nil
	}
	value, err := parse(e.asked)
	if err != nil {
		return err
	}
	if op.singly.in != "" {
		if left, err := op.singly.accepted(value, e.body); err != nil || left == 0 {
			return err
		}
	}
	return op.body.Validate(value)
}

// accepted drops the elements of the request that were refused, and returns how many are left.
func (s singly) accepted(request any, answer []byte) (left int, err error) {
	answered, err := parse(answer)
	if err != nil {
		return 0, err
	}
	asked, _ := members(request)[s.in].([]any)
	results, _ := members(answered)[s.by].([]any)
	if len(asked) != len(results) {
		return 0, fmt.Errorf("%s: got %d results of %d elements", s.by, len(results), len(asked))
	}
	var kept []any
	for i, one := range asked {
		if status := fmt.Sprint(members(results[i])["status"]); status < "300" {
			kept = append(kept, one)
		}
	}
	members(request)[s.in] = kept
	return len(kept), nil
}

// check checks the values of a parameter or header.
func (p parameter) check(kind string, given []string) error {
	switch {
	case len(given) > 1:
		return fmt.Errorf("%s %s occurs %d times", kind, p.name, len(given))
	case len(given) == 0:
		if p.required {
			return fmt.Errorf("%s %s is missing", kind, p.name)
		}
		return nil
	}
	if given[0] == "" && p.in == "query" {
		return fmt.Errorf("%s %s is empty", kind, p.name)
	}
	if err := p.schema.Validate(p.valueOf(given[0])); err != nil {
		return fmt.Errorf("%s %s: %w", kind, p.name, err)
	}
	return nil
}
