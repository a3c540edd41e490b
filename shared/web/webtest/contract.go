// Package webtest compares HTTP traffic with the API's own description. A [Contract] is an OpenAPI 3.1
// document. Its Handler reports each answer that the document does not have, and each request that was
// accepted although the document forbids it.
package webtest

import (
	"bytes"
	"cmp"
	"context"
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
	compiled   map[*openapi3.SchemaRef]*jsonschema.Schema // of parameters, bodies and headers
	problem    *jsonschema.Schema
	mux        *http.ServeMux
	operations map[string]*openapi3.Operation // by pattern, such as "GET /api/v1/tx/{txId}"
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
	c := &Contract{
		api: api, pointers: map[*openapi3.Schema]string{}, compiler: jsonschema.NewCompiler(), compiled: map[*openapi3.SchemaRef]*jsonschema.Schema{},
		mux: http.NewServeMux(), operations: map[string]*openapi3.Operation{},
	}
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
	for path, item := range c.api.Paths.Map() {
		for method, op := range item.Operations() {
			pattern := method + " " + path
			if err := c.compileOperation(op); err != nil {
				return fmt.Errorf("%s: %w", pattern, err)
			}
			c.operations[pattern] = op
			c.mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
		}
	}
	return nil
}

// compileOperation compiles the schemas of an operation's requests and answers.
func (c *Contract) compileOperation(op *openapi3.Operation) (err error) {
	var all []*openapi3.SchemaRef
	for _, p := range op.Parameters {
		all = append(all, p.Value.Schema)
	}
	if op.RequestBody != nil {
		body := op.RequestBody.Value.Content[jsonBody]
		if body == nil {
			return fmt.Errorf("the request's body is not described as %s", jsonBody)
		}
		all = append(all, body.Schema)
	}
	for status, response := range op.Responses.Map() {
		if _, err := strconv.Atoi(status); err != nil {
			return fmt.Errorf("response %q: want each status by its number", status)
		}
		for _, content := range response.Value.Content {
			all = append(all, content.Schema)
		}
		for _, header := range response.Value.Headers {
			all = append(all, header.Value.Schema)
		}
	}
	for _, s := range all {
		if s == nil {
			return errors.New("there is no schema")
		}
		if c.compiled[s], err = c.schemaAt(cmp.Or(strings.TrimPrefix(s.Ref, "#"), c.pointers[s.Value])); err != nil {
			return err
		}
	}
	return nil
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
	for _, op := range c.operations {
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
