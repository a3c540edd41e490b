package store_test

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var beyondEight = regexp.MustCompile(`\$(9|[1-9]\d)\b`)

// No statement numbers more than eight parameters. Farther ones can stand in a wrong order: name
// them, or make them from a list of columns.
func TestStatementsNumberFewParameters(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			findNumbered(d, func(name string) { t.Errorf("%s: %s numbers more than eight parameters", path, name) })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// findNumbered names each constant, variable or function of d with such a statement.
func findNumbered(d ast.Decl, add func(name string)) {
	check := func(name string, node ast.Node) {
		ast.Inspect(node, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == gotoken.STRING && beyondEight.MatchString(text.Value) {
				add(name)
			}
			return true
		})
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		check(d.Name.Name, d)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				check(v.Names[0].Name, v)
			}
		}
	}
}
