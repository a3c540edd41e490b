package functions_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/check"
)

// schemaNames gives the schema of a request type where that is not the type's name.
var schemaNames = map[string]string{"acceptRequest": "ReasonRequest", "suspendRequest": "ReasonRequest", "addressRequest": "PayoutAddressRequest"}

// internalBodies are the bodies of tasks, which the description does not have.
var internalBodies = []string{"sessionRequest", "stepRequest", "publishRequest"}

// laterTypes gives the type of a field that is kept as raw JSON and decoded later.
var laterTypes = map[string]string{"registerRequest.policy": "policyTerms"}

// Each request body that the code decodes has exactly the fields that openapi.yaml describes, at every
// depth. The package client compares its own requests with openapi.yaml.
func TestDescriptionHasEveryRequestField(t *testing.T) {
	t.Parallel()
	api := check.Value(openapi3.NewLoader().LoadFromData([]byte(functions.OpenAPI)))(t)
	code := readSource(t, ".", "../shared/client", "../shared/store", "../shared/chain/evm")
	read := map[string]bool{}
	for _, name := range slices.DeleteFunc(code.decoded, func(name string) bool { return slices.Contains(internalBodies, name) }) {
		schema := schemaNames[name]
		if schema == "" {
			schema = strings.ToUpper(name[:1]) + name[1:]
		}
		read[schema] = true
		if api.Components.Schemas[schema] == nil {
			t.Errorf("%s: openapi.yaml has no schema %s; name the type after its schema, or add it to schemaNames", name, schema)
			continue
		}
		diffFields(t, name, code.fields(name, &ast.Ident{Name: name}), schemaFields("", api.Components.Schemas[schema].Value))
	}
	diffFields(t, "the payload", code.payload, schemaFields("", api.Components.Schemas["Payload"].Value))
	for path, item := range api.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.RequestBody == nil {
				continue
			}
			ref := operation.RequestBody.Value.Content["application/json"].Schema.Ref
			if name := filepath.Base(ref); !read[name] {
				t.Errorf("%s %s: no code decodes its body %q", method, path, name)
			}
		}
	}
}

func diffFields(t *testing.T, of string, read, described []string) {
	t.Helper()
	read = slices.Compact(slices.Sorted(slices.Values(read))) // a field can take the place of an embedded type's
	slices.Sort(described)
	check.Same(t, "fields of "+of+" in the description, beside those that are decoded", described, read)
}

// schemaFields returns the paths of all fields, such as intents.submitter and perCaller.*.maxValue. The
// fields of a list's elements have the path of the list. Of oneOf they are those of all forms.
func schemaFields(at string, s *openapi3.Schema) (paths []string) {
	if len(s.Properties) == 0 && len(s.OneOf) > 0 {
		for _, form := range s.OneOf {
			paths = append(paths, schemaFields(at, form.Value)...)
		}
		slices.Sort(paths)
		return withoutInner(slices.Compact(paths))
	}
	for _, one := range slices.Concat(s.AllOf, s.AnyOf) {
		if len(s.Properties) == 0 && len(schemaFields("", one.Value)) > 0 {
			return schemaFields(at, one.Value)
		}
	}
	switch {
	case len(s.Properties) > 0:
		for name, property := range s.Properties {
			paths = append(paths, below(at, name, func(at string) []string { return schemaFields(at, property.Value) })...)
		}
	case s.Items != nil:
		return schemaFields(at, s.Items.Value)
	case s.AdditionalProperties.Schema != nil:
		return schemaFields(at+".*", s.AdditionalProperties.Schema.Value)
	}
	return paths
}

// withoutInner drops the inner fields of a field that is itself a path: in one form it has any value. The
// paths are sorted.
func withoutInner(paths []string) (outer []string) {
	for _, path := range paths {
		if last := len(outer) - 1; last < 0 || !strings.HasPrefix(path, outer[last]+".") {
			outer = append(outer, path)
		}
	}
	return outer
}

// below returns the paths of the field and of those in it, or its own path if it has none.
func below(at, name string, inner func(at string) []string) []string {
	path := strings.TrimPrefix(at+"."+name, ".")
	if paths := inner(path); len(paths) > 0 {
		return paths
	}
	return []string{path}
}

// source has what the code says about request bodies.
type source struct {
	structs map[string]*ast.StructType // by name; of another package with its name and a dot
	decoded []string                   // the types that web.Decode reads
	payload []string                   // the fields of a payload
}

func readSource(t *testing.T, folders ...string) source {
	t.Helper()
	code, found := source{structs: map[string]*ast.StructType{}}, map[string]bool{}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			tree, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err == nil {
				code.add(tree, folder, found)
			}
			return err
		})
		check.OK(t)(err)
	}
	maps.DeleteFunc(found, func(name string, _ bool) bool { return name == "B" || name == "Body" }) // type parameters
	code.decoded = slices.Sorted(maps.Keys(found))
	return code
}

// add adds the struct types of a file, the types that it decodes, and the payload's fields. A body's type is decoded, or its
// name ends in Request. Then it is an argument of a generic type or function, or the type of a parameter body.
func (s *source) add(tree *ast.File, folder string, decoded map[string]bool) {
	ast.Inspect(tree, func(n ast.Node) bool {
		var body ast.Expr
		decodes := false // by the name of the function, whatever the type's name
		switch n := n.(type) {
		case *ast.TypeSpec:
			if structure, ok := n.Type.(*ast.StructType); ok && folder == "." {
				s.structs[n.Name.Name] = structure
			} else if ok {
				s.structs[tree.Name.Name+"."+n.Name.Name] = structure
			}
		case *ast.IndexExpr:
			body, decodes = n.Index, slices.Contains([]string{"Decode", "submitterCall", "transferCall"}, nameOf(n.X))
		case *ast.IndexListExpr:
			body, decodes = n.Indices[1], nameOf(n.X) == "call"
		case *ast.Field:
			if len(n.Names) == 1 && n.Names[0].Name == "body" {
				body = n.Type
			}
		case *ast.Ident: // after what has it: another package's types are named with their package
			if folder != "." && n.IsExported() {
				n.Name = tree.Name.Name + "." + n.Name
			}
		case *ast.FuncDecl:
			if names := literalsIn(n.Body); n.Name.Name == "ParsePayload" && len(names) > 0 {
				s.payload = names
			}
		}
		if name := nameOf(body); decodes || folder == "." && strings.HasSuffix(name, "Request") {
			decoded[name] = true
		}
		return true
	})
}

// literalsIn returns the names that the first call of readObject allows.
func literalsIn(body *ast.BlockStmt) (names []string) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || nameOf(call.Fun) != "readObject" {
			return true
		}
		for _, argument := range call.Args[1:] {
			name, _ := strconv.Unquote(argument.(*ast.BasicLit).Value)
			names = append(names, name)
		}
		return false
	})
	return names
}

// fields returns the paths of all fields of type e, which the field or type at has.
func (s source) fields(at string, e ast.Expr) (paths []string) {
	if later := laterTypes[at]; later != "" && nameOf(e) == "RawMessage" {
		e = &ast.Ident{Name: later}
	}
	root, path, _ := strings.Cut(at, ".")
	switch e := e.(type) {
	case *ast.StarExpr:
		return s.fields(at, e.X)
	case *ast.ArrayType:
		return s.fields(at, e.Elt)
	case *ast.MapType:
		return s.fields(at+".*", e.Value)
	case *ast.SelectorExpr, *ast.Ident:
		name := nameOf(e)
		if selector, ok := e.(*ast.SelectorExpr); ok {
			name = nameOf(selector.X) + "." + name
		}
		if s.structs[name] == nil {
			return nil
		}
		for _, field := range s.structs[name].Fields.List {
			switch {
			case field.Tag == nil && len(field.Names) == 0:
				paths = append(paths, s.fields(at, field.Type)...)
				continue
			case field.Tag == nil:
				continue // of a type that decodes itself
			}
			name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json"), ",")
			paths = append(paths, below(path, name, func(at string) []string { return s.fields(root+"."+at, field.Type) })...)
		}
	}
	return paths
}

// nameOf returns the last part of a type's name; "": it has none.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
