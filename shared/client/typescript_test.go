package client_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client/typescripttest"
)

var update = flag.Bool("update", false, "write typescript/src/schema.ts anew")

// The types of the TypeScript client are those that the generator makes from openapi.yaml.
func TestTypeScriptTypesAreThoseOfTheDocument(t *testing.T) {
	t.Parallel()
	folder := typescripttest.Copy(t, "typescript")
	document := check.Value(filepath.Abs("../../functions/openapi.yaml"))(t)
	c := exec.CommandContext(t.Context(), "node", "node_modules/openapi-typescript/bin/cli.js", document, "--output", "schema.ts")
	c.Dir = folder
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("openapi-typescript: %v\n%s", err, out)
	}
	want := check.Value(os.ReadFile(filepath.Join(folder, "schema.ts")))(t)
	const kept = "typescript/src/schema.ts"
	if *update {
		check.OK(t)(os.WriteFile(kept, want, 0o644))
	}
	got := check.Value(os.ReadFile(kept))(t)
	if !bytes.Equal(want, got) {
		t.Errorf("%s is not what the generator makes; run go test ./shared/client -run TypeScriptTypes -update (-want +got):\n%s", kept, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")))
	}
}

// A misspelt member of a body, another type, an unknown path or code does not compile. Each comment in
// test/misspelt.ts that expects an error is necessary: without it, the next line is an error.
func TestMisspeltTypeScriptDoesNotCompile(t *testing.T) {
	t.Parallel()
	folder := typescripttest.Copy(t, "typescript")
	typescripttest.Build(t, folder)
	const comment, file = "// @ts-expect-error", "test/misspelt.ts"
	text := string(check.Value(os.ReadFile(filepath.Join(folder, file)))(t))
	check.OK(t)(os.WriteFile(filepath.Join(folder, file), []byte(strings.ReplaceAll(text, comment, "//")), 0o644))
	out, err := typescripttest.Compile(t, folder, "tsconfig.test.json", "--noEmit")
	if err == nil {
		t.Errorf("without the comments: it compiles, want errors")
	}
	expected := 0
	for i, line := range strings.Split(text, "\n") {
		if !strings.Contains(line, comment) {
			continue
		}
		expected++
		if at := fmt.Sprintf("%s(%d,", file, i+2); !strings.Contains(string(out), at) {
			t.Errorf("without its comment, line %d of %s compiles:\n%s", i+2, file, out)
		}
	}
	if expected < 5 {
		t.Errorf("lines that must not compile: got %d, want more", expected)
	}
}
