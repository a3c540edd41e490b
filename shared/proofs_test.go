package shared_test

import (
	"go/ast"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// definition is a function, or a constant or variable with an SQL statement.
type definition struct {
	file  string
	lines int
}

var (
	definitionsOnce sync.Once
	definitionsOf   map[string][]definition
)

// findCode finds functions and statements by name in any case, since a name that moves to
// another package is exported there.
func findCode(t *testing.T, name string) []definition {
	t.Helper()
	definitionsOnce.Do(func() {
		definitionsOf = make(map[string][]definition)
		for _, file := range parsed(t, ".", "../functions") {
			readDefinitions(file)
		}
	})
	return definitionsOf[strings.ToLower(name)]
}

func readDefinitions(file source) {
	add := func(name string, node ast.Node) {
		lines := positions.Position(node.End()).Line - positions.Position(node.Pos()).Line + 1
		key := strings.ToLower(name)
		definitionsOf[key] = append(definitionsOf[key], definition{filepath.ToSlash(file.path), lines})
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d.Name.Name, d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && len(v.Names) == 1 {
					add(v.Names[0].Name, v)
				}
			}
		}
	}
}

var (
	// provedBy matches a link to the function or statement that carries a guarantee.
	provedBy = regexp.MustCompile("\\[`(\\w+)\\.(\\w+)`\\]\\(\\.\\./shared/([^)]*\\.go)\\)")
	// schemaName matches a name in the column of constraints and triggers.
	schemaName = regexp.MustCompile("`([a-z]+(?:_[a-z]+)+)`")
)

// schemaObject matches a constraint, trigger, function or index of a migration.
const schemaObject = `(?i)(?:constraint|trigger|function|procedure|index)\s+(?:if not exists\s+)?"?(\w+)"?`

// maxLines is the length of a function or statement that fits on one screen.
const maxLines = 40

// TestProofsNameTheCode holds each row of docs/proofs.md to the code. The function or statement exists and has at
// most 40 lines. The constraints and triggers are in the schema, and a test is named. With -update
// the links follow code that moved to another file or package.
func TestProofsNameTheCode(t *testing.T) {
	t.Parallel()
	const page = "../docs/proofs.md"
	text := readPage(t, page)
	objects := schemaObjects(t)
	rows := 0
	for line := range strings.SplitSeq(text, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || strings.Contains(line, "---") || strings.Contains(line, "| guarantee |") {
			continue
		}
		rows++
		if !provedBy.MatchString(cells[2]) {
			t.Errorf("%s: names no function or statement", cells[1])
		}
		for _, found := range schemaName.FindAllStringSubmatch(cells[3], -1) {
			if !objects[found[1]] {
				t.Errorf("%s: the schema has no %s", cells[1], found[1])
			}
		}
		if !namedTest.MatchString(cells[4]) {
			t.Errorf("%s: names no test that breaks", cells[1])
		}
	}
	atLeast(t, "guarantees with a proof", rows, 10)
	got := provedBy.ReplaceAllStringFunc(text, func(link string) string { return currentLink(t, link) })
	writeOrCompare(t, page, text, got)
}

// currentLink is the link to where the function or statement is now.
func currentLink(t *testing.T, link string) string {
	t.Helper()
	parts := provedBy.FindStringSubmatch(link)
	name, file := parts[2], parts[3]
	top, _, _ := strings.Cut(file, "/")
	var found []definition
	for _, d := range findCode(t, name) {
		if d.file == file {
			found = []definition{d}
			break
		}
		if strings.HasPrefix(d.file, top+"/") {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		t.Errorf("%s: got %d of that name below shared/%s, want 1", name, len(found), top)
		return link
	}
	if found[0].lines > maxLines {
		t.Errorf("%s has %d lines, want at most %d", name, found[0].lines, maxLines)
	}
	return "[`" + path.Base(path.Dir(found[0].file)) + "." + name + "`](../shared/" + found[0].file + ")"
}

// schemaObjects are the names of constraints, triggers, functions and indexes of the migrations.
func schemaObjects(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for _, name := range each(t, text(t, "../migrations", ".sql"), schemaObject) {
		names[name] = true
	}
	return names
}
