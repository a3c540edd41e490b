package webtest

import (
	"errors"
	"fmt"
	"strconv"
)

// CheckExamples compares each example of the document with its schema, and returns their number. The error lists
// those that their schemas refuse. It must not be called twice at once.
func (c *Contract) CheckExamples() (n int, err error) {
	var errs []error
	c.EachExample(func(value any, schema string) {
		n++
		compiled, err := c.schemaAt(schema)
		if err == nil {
			err = compiled.Validate(value)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("example of %s: %w", schema, err))
		}
	})
	return n, errors.Join(errs...)
}

// EachExample calls found with each example of the document, and with the JSON pointer to its schema.
func (c *Contract) EachExample(found func(value any, schema string)) {
	c.eachExample(c.document, "", found)
}

// eachExample calls found with each example in the part of the document at the pointer, and with the pointer to
// its schema.
func (c *Contract) eachExample(part any, pointer string, found func(value any, schema string)) {
	switch v := part.(type) {
	case []any:
		for i, one := range v {
			c.eachExample(one, pointer+"/"+strconv.Itoa(i), found)
		}
	case map[string]any:
		schema := pointer // of a schema with examples
		if _, ok := v["schema"]; ok {
			schema = pointer + "/schema"
		}
		list, _ := v["examples"].([]any)
		for _, value := range list {
			found(value, schema)
		}
		for _, named := range members(v["examples"]) {
			found(members(named)["value"], schema)
		}
		if value, ok := v["example"]; ok {
			found(value, schema)
		}
		for name, one := range v {
			if name != "example" && name != "examples" {
				c.eachExample(one, pointer+"/"+escape(name), found)
			}
		}
	}
}
