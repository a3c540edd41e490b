package webtest

import (
	"slices"

	"github.com/getkin/kin-openapi/openapi3"
)

// Null is a request's body that has nothing but one null, where the document allows it.
type Null struct {
	Operation string // such as "PUT /admin/v1/submitters/{submitter}/policy"
	Body      any
}

// Nulls returns a body for each null that the document allows in a request.
func (c *Contract) Nulls() (all []Null) {
	for pattern, op := range c.operations {
		if op.RequestBody == nil {
			continue
		}
		for _, body := range nulls(op.RequestBody.Value.Content[jsonBody].Schema, 0) {
			all = append(all, Null{pattern, body})
		}
	}
	return all
}

// nulls returns the values of a schema that have nothing but one null.
func nulls(schema *openapi3.SchemaRef, depth int) (all []any) {
	if schema == nil || depth > 10 {
		return nil
	}
	s := schema.Value
	if s.Type != nil && len(*s.Type) > 1 && s.Type.Includes("null") {
		all = append(all, nil)
	}
	for name, inner := range s.Properties {
		for _, value := range nulls(inner, depth+1) {
			all = append(all, map[string]any{name: value})
		}
	}
	for _, value := range nulls(s.AdditionalProperties.Schema, depth+1) {
		all = append(all, map[string]any{"1": value})
	}
	for _, value := range nulls(s.Items, depth+1) {
		all = append(all, []any{value})
	}
	for _, part := range slices.Concat(s.AllOf, s.OneOf, s.AnyOf) {
		all = append(all, nulls(part, depth+1)...)
	}
	return all
}
