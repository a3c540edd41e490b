// Package webtest compares HTTP traffic with the API's own description. A [Contract] is an OpenAPI 3.1
// document. Its Handler reports each answer that the document does not have, and each request that was
// accepted although the document forbids it.
package webtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Contract is an API's description, ready for comparison with requests and answers. It can be shared.
type Contract struct {
	document   any
	mux        *http.ServeMux
	operations map[string]*operation // by pattern, such as "GET /api/v1/tx/{txId}"
	problem    *jsonschema.Schema
	compiler   *jsonschema.Compiler
}

// operation is one method of one path.
type operation struct {
	parameters []parameter
	body       *jsonschema.Schema // nil: none is described
	singly     singly
	answers    map[int]answer
}

// singly is the extension x-answered-singly: each element of a list of the request is answered by the element
// of a list of the answer, which has its status. The zero value: it is not given.
type singly struct{ in, by string }

type parameter struct {
	name, in string
	required bool
	number   bool // it represents a JSON number
	schema   *jsonschema.Schema
}

// answer describes the content of a status.
type answer struct {
	free    bool // without a description, and not made by the API
	content map[string]*jsonschema.Schema
	headers []parameter
}

// foreign lists the statuses of servers between the API and the caller.
var foreign = []int{http.StatusBadGateway, http.StatusGatewayTimeout}

const resource = "https://fencepost.example/openapi.json"

// Load reads an OpenAPI 3.1 document. The error describes its mistake: its form, an example that its
// own schema refuses, a dangling reference.
//
// An object in an answer must not have a member that the document does not name, although the document
// allows clients to meet one. A missing member is a defect of the document.
func Load(text []byte) (*Contract, error) {
	parsed, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("read the API's description: %w", err)
	}
	if err := parsed.Validate(context.Background(), openapi3.EnableExamplesValidation()); err != nil {
		return nil, fmt.Errorf("the API's description: %w", err)
	}
	plain, err := parsed.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("write the API's description as JSON: %w", err)
	}
	c := &Contract{mux: http.NewServeMux(), operations: map[string]*operation{}}
	if c.document, err = jsonschema.UnmarshalJSON(bytes.NewReader(plain)); err != nil {
		return nil, fmt.Errorf("read the API's description: %w", err)
	}
	schemas, _ := c.at("/components/schemas")
	closeObjects(schemas)
	return c, c.compile()
}

// closeObjects allows objects only the described members.
func closeObjects(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		_, open := s["additionalProperties"]
		_, described := s["properties"]
		if s["type"] == "object" && described && !open {
			s["additionalProperties"] = false
		}
		for _, inner := range s {
			closeObjects(inner)
		}
	case []any:
		for _, inner := range s {
			closeObjects(inner)
		}
	}
}

// compile compiles everything that is described.
func (c *Contract) compile() (err error) {
	compiler := jsonschema.NewCompiler()
	c.compiler = compiler
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource(resource, c.document); err != nil {
		return err
	}
	if c.problem, err = compiler.Compile(resource + "#/components/schemas/Problem"); err != nil {
		return fmt.Errorf("schema of problems: %w", err)
	}
	paths, _ := c.at("/paths")
	for path, item := range members(paths) {
		for method := range members(item) {
			pattern, pointer := strings.ToUpper(method)+" "+path, "/paths/"+escape(path)+"/"+method
			if c.operations[pattern], err = c.operation(compiler, pointer); err != nil {
				return fmt.Errorf("%s: %w", pattern, err)
			}
			c.mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
		}
	}
	return nil
}

func (c *Contract) operation(compiler *jsonschema.Compiler, pointer string) (*operation, error) {
	op := &operation{answers: map[int]answer{}}
	parameters, _ := c.at(pointer + "/parameters")
	list, _ := parameters.([]any)
	for i := range list {
		value, at := c.at(pointer + "/parameters/" + strconv.Itoa(i))
		p, err := c.parameter(compiler, fmt.Sprint(members(value)["name"]), at)
		if err != nil {
			return nil, err
		}
		op.parameters = append(op.parameters, p)
	}
	var err error
	if body, at := c.at(pointer + "/requestBody"); body != nil {
		if op.body, err = c.schema(compiler, at+"/content/application~1json/schema"); err != nil {
			return nil, err
		}
	}
	if extension, _ := c.at(pointer + "/x-answered-singly"); extension != nil {
		op.singly = singly{in: fmt.Sprint(members(extension)["in"]), by: fmt.Sprint(members(extension)["by"])}
	}
	responses, _ := c.at(pointer + "/responses")
	for text := range members(responses) {
		status, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("response %q: want each status by its number", text)
		}
		if op.answers[status], err = c.answer(compiler, status, pointer+"/responses/"+text); err != nil {
			return nil, err
		}
	}
	return op, nil
}

func (c *Contract) parameter(compiler *jsonschema.Compiler, name, pointer string) (p parameter, err error) {
	value, at := c.at(pointer)
	schema, _ := c.at(at + "/schema")
	kind := members(schema)["type"]
	p = parameter{name: name, in: fmt.Sprint(members(value)["in"]), required: members(value)["required"] == true, number: kind == "integer" || kind == "number"}
	p.schema, err = c.schema(compiler, at+"/schema")
	return p, err
}

func (c *Contract) answer(compiler *jsonschema.Compiler, status int, pointer string) (a answer, err error) {
	value, at := c.at(pointer)
	content := members(members(value)["content"])
	a = answer{free: len(content) == 0 && slices.Contains(foreign, status), content: map[string]*jsonschema.Schema{}}
	for media := range content {
		if a.content[media], err = c.schema(compiler, at+"/content/"+escape(media)+"/schema"); err != nil {
			return a, err
		}
	}
	for name := range members(members(value)["headers"]) {
		p, err := c.parameter(compiler, name, at+"/headers/"+escape(name))
		if err != nil {
			return a, err
		}
		a.headers = append(a.headers, p)
	}
	return a, nil
}

// schema compiles the schema at the pointer.
func (c *Contract) schema(compiler *jsonschema.Compiler, pointer string) (*jsonschema.Schema, error) {
	value, at := c.at(pointer)
	if value == nil {
		return nil, fmt.Errorf("%s: there is no schema", pointer)
	}
	parts := strings.Split(at, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return compiler.Compile(resource + "#" + strings.Join(parts, "/"))
}

// at returns the value at a JSON pointer and its real location, following references; nil: there is
// none.
func (c *Contract) at(pointer string) (value any, at string) {
	value = c.document
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		at += "/" + part
		switch v := value.(type) {
		case map[string]any:
			value = v[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(v) {
				return nil, at
			}
			value = v[i]
		default:
			return nil, at
		}
		if ref, ok := members(value)["$ref"].(string); ok {
			value, at = c.at(strings.TrimPrefix(ref, "#"))
		}
	}
	return value, at
}

func escape(part string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(part) }

// members returns the members of an object; none for anything else.
func members(value any) map[string]any {
	object, _ := value.(map[string]any)
	return object
}

// Operations returns the document's operations, such as "GET /api/v1/tx/{txId}", in order.
func (c *Contract) Operations() []string { return slices.Sorted(maps.Keys(c.operations)) }

// Statuses returns, for each value that a problem's member "code" can have, the statuses of the answers with it,
// in order.
func (c *Contract) Statuses() map[string][]int {
	found := map[string][]int{}
	paths, _ := c.at("/paths")
	for path, item := range members(paths) {
		for method := range members(item) {
			pointer := "/paths/" + escape(path) + "/" + method + "/responses"
			responses, _ := c.at(pointer)
			for text := range members(responses) {
				_, at := c.at(pointer + "/" + text)
				schema, _ := c.at(at + "/content/application~1problem+json/schema")
				status, _ := strconv.Atoi(text)
				for code := range c.codesIn(schema) {
					found[code] = append(found[code], status)
				}
			}
		}
	}
	for code, statuses := range found {
		slices.Sort(statuses)
		found[code] = slices.Compact(statuses)
	}
	return found
}

// Codes returns all values that the document allows for a member "code", in order.
func (c *Contract) Codes() []string { return slices.Sorted(maps.Keys(c.codesIn(c.document))) }

// codesIn returns the values that a part of the document lists for members "code".
func (c *Contract) codesIn(part any) map[string]bool {
	found := map[string]bool{}
	var walk func(any)
	walk = func(value any) {
		if list, ok := value.([]any); ok {
			for _, inner := range list {
				walk(inner)
			}
		}
		for name, inner := range members(value) {
			if name == "code" {
				c.enumerated(inner, found)
			}
			walk(inner)
		}
	}
	walk(part)
	return found
}

// enumerated adds the texts that a schema lists.
func (c *Contract) enumerated(schema any, into map[string]bool) {
	s := members(schema)
	if ref, ok := s["$ref"].(string); ok {
		value, _ := c.at(strings.TrimPrefix(ref, "#"))
		s = members(value)
	}
	list, _ := s["enum"].([]any)
	for _, one := range append(slices.Clone(list), s["const"]) {
		if text, ok := one.(string); ok {
			into[text] = true
		}
	}
}

// parse reads a JSON value and keeps the notation of numbers.
func parse(text []byte) (any, error) { return jsonschema.UnmarshalJSON(bytes.NewReader(text)) }

// valueOf returns the JSON value of a parameter's text.
func (p parameter) valueOf(text string) any {
	if p.number {
		return json.Number(text)
	}
	return text
}
