package webtest

import (
	"fmt"
	"slices"
	"strings"
)

// Null is a request's body that has nothing but one null, where the document allows it.
type Null struct {
	Operation string // such as "PUT /admin/v1/submitters/{submitter}/policy"
	Body      any
}

// Nulls returns a body for each null that the document allows in a request.
func (c *Contract) Nulls() (all []Null) {
	for _, pattern := range c.Operations() {
		method, path, _ := strings.Cut(pattern, " ")
		pointer := "/paths/" + escape(path) + "/" + strings.ToLower(method) + "/requestBody"
		if body, at := c.at(pointer); body != nil {
			for _, body := range c.nulls(at+"/content/application~1json/schema", 0) {
				all = append(all, Null{pattern, body})
			}
		}
	}
	return all
}

// nulls returns the values of a schema that have nothing but one null.
func (c *Contract) nulls(pointer string, depth int) (all []any) {
	schema, at := c.at(pointer)
	if depth > 10 || schema == nil {
		return nil
	}
	if types, _ := members(schema)["type"].([]any); slices.Contains(types, any("null")) {
		all = append(all, nil)
	}
	below := func(pointer string, wrap func(any) any) {
		for _, inner := range c.nulls(at+pointer, depth+1) {
			all = append(all, wrap(inner))
		}
	}
	for name := range members(members(schema)["properties"]) {
		below("/properties/"+escape(name), func(inner any) any { return map[string]any{name: inner} })
	}
	below("/additionalProperties", func(inner any) any { return map[string]any{"1": inner} })
	below("/items", func(inner any) any { return []any{inner} })
	for _, kind := range []string{"allOf", "oneOf", "anyOf"} {
		parts, _ := members(schema)[kind].([]any)
		for i := range parts {
			below(fmt.Sprintf("/%s/%d", kind, i), func(inner any) any { return inner })
		}
	}
	return all
}
