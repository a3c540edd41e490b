package shared_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest    = regexp.MustCompile("`(Test[A-Z]\\w+)`")
	declaredTest = regexp.MustCompile(`(?m)^func (Test[A-Z]\w+)\(`)
)

// A page that says which test checks a promise names one that there is.
func TestPagesNameTestsThatAreThere(t *testing.T) {
	t.Parallel()
	declared := make(map[string]bool)
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range declaredTest.FindAllStringSubmatch(string(text), -1) {
			declared[found[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages: got %d, %v; want some", len(pages), err)
	}
	named := 0
	for _, page := range append(pages, "../README.md", "../CHANGELOG.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range namedTest.FindAllStringSubmatch(string(text), -1) {
			if named++; !declared[found[1]] {
				t.Errorf("%s: names %s, which is not there", page, found[1])
			}
		}
	}
	if named == 0 {
		t.Error("tests named by the pages: got none, want some")
	}
}
