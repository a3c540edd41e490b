package webtest

import (
	"slices"

	"github.com/getkin/kin-openapi/openapi3"
)

// Nulls returns a body for each null that the document allows in a request, by operation. A body has nothing but one null.
func (c *Contract) Nulls() map[string][]any {
	all := make(map[string][]any)
	for pattern, op := range c.operations {
		if op.RequestBody != nil {
			all[pattern] = nulls(op.RequestBody.Value.Content[jsonBody].Schema, 0)
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
