// Package typescripttest builds the TypeScript client and its tests in a folder of a test's own. Only tests
// import it.
package typescripttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// example is an example of the client's README.
var example = regexp.MustCompile("(?s)```ts\n(.*?)```")

// Packages returns the folder of the packages of the client, which is at the path. The error is the reason to skip a test:
// there is no Node, or no packages.
func Packages(client string) (folder string, err error) {
	folder, err = filepath.EvalSymlinks(filepath.Join(client, "node_modules"))
	if err == nil {
		_, err = exec.LookPath("node")
	}
	if err != nil {
		return "", fmt.Errorf("SKIPPED: the TypeScript client: %w. Run: source scripts/lib/node.sh && ensure_npm_packages shared/client/typescript", err)
	}
	return folder, nil
}

// Copy copies the client, which is at the path, into a folder of t, links its packages, and writes each example of
// its README as test/readme-N.ts, from 1 on. It skips t without Node or the packages.
func Copy(t testing.TB, client string) (folder string) {
	t.Helper()
	packages, err := Packages(client)
	if err != nil {
		t.Skip(err)
	}
	folder = t.TempDir()
	for _, name := range []string{"src", "test"} {
		check.OK(t)(os.CopyFS(filepath.Join(folder, name), os.DirFS(filepath.Join(client, name))))
	}
	for _, name := range []string{"package.json", "tsconfig.json", "tsconfig.test.json"} {
		text := check.Value(os.ReadFile(filepath.Join(client, name)))(t)
		check.OK(t)(os.WriteFile(filepath.Join(folder, name), text, 0o644))
	}
	check.OK(t)(os.Symlink(check.Value(filepath.Abs(packages))(t), filepath.Join(folder, "node_modules")))
	readme := check.Value(os.ReadFile(filepath.Join(client, "README.md")))(t)
	for i, found := range example.FindAllSubmatch(readme, -1) {
		check.OK(t)(os.WriteFile(filepath.Join(folder, "test", fmt.Sprintf("readme-%d.ts", i+1)), found[1], 0o644))
	}
	return folder
}

// Build compiles the client in a folder that [Copy] has made to dist, and its tests to build.
func Build(t testing.TB, folder string) {
	t.Helper()
	for _, project := range []string{"tsconfig.json", "tsconfig.test.json"} {
		if out, err := Compile(t, folder, project); err != nil {
			t.Fatalf("tsc --project %s: %v\n%s", project, err, out)
		}
	}
}

// Compile runs the compiler.
func Compile(t testing.TB, folder, project string, args ...string) (out []byte, err error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "node", append([]string{"node_modules/typescript/bin/tsc", "--pretty", "false", "--project", project}, args...)...)
	c.Dir = folder
	return c.CombinedOutput()
}
