// Package webtest compares HTTP traffic with the API's own description. A [Contract] is an OpenAPI 3.1
// document. Its Handler reports each answer that the document does not have, and each request that was
// accepted although the document forbids it.
package webtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	api        *openapi3.T
	document   any                         // api as JSON
	pointers   map[*openapi3.Schema]string // to the schemas of document
	compiler   *jsonschema.Compiler
	mux        *http.ServeMux
	operations map[string]*operation // by pattern, such as "GET /api/v1/tx/{txId}"
	problem    *jsonschema.Schema
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

const (
	resource   = "https://fencepost.example/openapi.json"
	schemas    = "/components/schemas/"
	jsonBody   = "application/json"
	problemDoc = "application/problem+json"
)

// Load reads an OpenAPI 3.1 document. The error describes its mistake: its form, an example that its
// own schema refuses, a dangling reference.
//
// An object in an answer must not have a member that the document does not name, although the document
// allows clients to meet one. A missing member is a defect of the document.
func Load(text []byte) (*Contract, error) {
	api, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("read the API's description: %w", err)
	}
	if err := api.Validate(context.Background(), openapi3.EnableExamplesValidation()); err != nil {
		return nil, fmt.Errorf("the API's description: %w", err)
	}
	c := &Contract{api: api, pointers: map[*openapi3.Schema]string{}, compiler: jsonschema.NewCompiler(), mux: http.NewServeMux(), operations: map[string]*operation{}}
	_ = api.WalkSchemas(func(pointer string, s *openapi3.SchemaRef) error {
		c.pointers[s.Value] = pointer
		if strings.HasPrefix(pointer, schemas) {
			closeObject(s.Value)
		}
		return nil
	})
	plain, err := api.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("write the API's description as JSON: %w", err)
	}
	if c.document, err = parse(plain); err != nil {
		return nil, fmt.Errorf("read the API's description: %w", err)
	}
	return c, c.compile()
}

// closeObject allows an object only the described members.
func closeObject(s *openapi3.Schema) {
	others := &s.AdditionalProperties
	if s.Type.Is("object") && s.Properties != nil && others.Has == nil && others.Schema == nil {
		others.Has = new(false)
	}
}

// compile compiles everything that is described.
func (c *Contract) compile() (err error) {
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource(resource, c.document); err != nil {
		return err
	}
	if c.problem, err = c.schemaAt(schemas + "Problem"); err != nil {
		return fmt.Errorf("schema of problems: %w", err)
	}
	for pattern, described := range c.described() {
		if c.operations[pattern], err = c.operation(described); err != nil {
			return fmt.Errorf("%s: %w", pattern, err)
		}
		c.mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	return nil
}

// described returns the operations of the document by their patterns.
func (c *Contract) described() map[string]*openapi3.Operation {
	all := map[string]*openapi3.Operation{}
	for path, item := range c.api.Paths.Map() {
		for method, op := range item.Operations() {
			all[method+" "+path] = op
		}
	}
	return all
}

func (c *Contract) operation(described *openapi3.Operation) (op *operation, err error) {
	op = &operation{answers: map[int]answer{}}
	for _, p := range described.Parameters {
		if op.parameters, err = c.addParameter(op.parameters, p.Value.Name, p.Value); err != nil {
			return nil, err
		}
	}
	if body := described.RequestBody; body != nil {
		if op.body, err = c.schema(body.Value.Content[jsonBody].Schema); err != nil {
			return nil, err
		}
	}
	if extension := members(described.Extensions["x-answered-singly"]); extension != nil {
		op.singly = singly{in: fmt.Sprint(extension["in"]), by: fmt.Sprint(extension["by"])}
	}
	for text, response := range described.Responses.Map() {
		status, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("response %q: want each status by its number", text)
		}
		if op.answers[status], err = c.answer(status, response.Value); err != nil {
			return nil, err
		}
	}
	return op, nil
}

// addParameter adds a parameter, or a header of an answer, to the list.
func (c *Contract) addParameter(list []parameter, name string, described *openapi3.Parameter) ([]parameter, error) {
	schema, err := c.schema(described.Schema)
	if err != nil {
		return nil, fmt.Errorf("parameter %s: %w", name, err)
	}
	kind := described.Schema.Value.Type
	return append(list, parameter{name: name, in: described.In, required: described.Required, number: kind.Is("integer") || kind.Is("number"), schema: schema}), nil
}

func (c *Contract) answer(status int, described *openapi3.Response) (a answer, err error) {
	a = answer{free: len(described.Content) == 0 && slices.Contains(foreign, status), content: map[string]*jsonschema.Schema{}}
	for media, content := range described.Content {
		if a.content[media], err = c.schema(content.Schema); err != nil {
			return a, err
		}
	}
	for name, header := range described.Headers {
		if a.headers, err = c.addParameter(a.headers, name, &header.Value.Parameter); err != nil {
			return a, err
		}
	}
	return a, nil
}

// schema compiles a schema of the document.
func (c *Contract) schema(s *openapi3.SchemaRef) (*jsonschema.Schema, error) {
	if s == nil {
		return nil, errors.New("there is no schema")
	}
	if s.Ref != "" {
		return c.schemaAt(strings.TrimPrefix(s.Ref, "#"))
	}
	return c.schemaAt(c.pointers[s.Value])
}

// schemaAt compiles the schema at the JSON pointer.
func (c *Contract) schemaAt(pointer string) (*jsonschema.Schema, error) {
	return c.compiler.Compile(resource + (&url.URL{Fragment: pointer}).String())
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
	for _, op := range c.described() {
		for text, response := range op.Responses.Map() {
			content, ok := response.Value.Content[problemDoc]
			if !ok {
				continue
			}
			status, _ := strconv.Atoi(text)
			for code := range codesIn(content.Schema.WalkSubtree) {
				found[code] = append(found[code], status)
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
func (c *Contract) Codes() []string { return slices.Sorted(maps.Keys(codesIn(c.api.WalkSchemas))) }

// codesIn returns the values that schemas list for members "code". walk visits the schemas.
func codesIn(walk func(openapi3.WalkSchemasFunc) error) map[string]bool {
	found := map[string]bool{}
	_ = walk(func(_ string, s *openapi3.SchemaRef) error {
		code, ok := s.Value.Properties["code"]
		if !ok {
			return nil
		}
		for _, one := range append(slices.Clone(code.Value.Enum), code.Value.Const) {
			if text, ok := one.(string); ok {
				found[text] = true
			}
		}
		return nil
	})
	return found
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
