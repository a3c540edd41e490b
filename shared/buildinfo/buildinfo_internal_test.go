package buildinfo

import (
	"bytes"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// A commit that was set at the build comes before the one that Go has recorded.
func TestDescribe(t *testing.T) {
	t.Parallel()
	settings := []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}, {Key: "GOOS", Value: "linux"}}
	built := &debug.BuildInfo{GoVersion: "go1", Settings: settings}
	for _, c := range []struct {
		name     string
		built    *debug.BuildInfo
		revision string
		want     Info
		text     string
	}{
		{"from a repository", built, "", Info{Version, "abc", true, "go1"}, Version + " (commit abc, modified, go1)"},
		{"with a commit", &debug.BuildInfo{GoVersion: "go1"}, "def", Info{Version, "def", false, "go1"}, Version + " (commit def, go1)"},
		{"with both", built, "def", Info{Version, "def", true, "go1"}, Version + " (commit def, modified, go1)"},
		{"without information", nil, "", Info{Version, "unknown", false, "unknown"}, Version + " (commit unknown, unknown)"},
	} {
		got := describe(c.built, c.revision)
		check.Equal(t, c.name, got, c.want)
		check.Equal(t, c.name, got.String(), c.text)
	}
}

// --version prints one line, beside other arguments too.
func TestPrintVersion(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	for _, args := range [][]string{nil, {"--help"}, {"version"}} {
		if PrintVersion("migrate", args, &out) || out.Len() > 0 {
			t.Errorf("%v: got %q, want nothing", args, &out)
		}
	}
	if !PrintVersion("migrate", []string{"up", "--version"}, &out) || !strings.HasPrefix(out.String(), "migrate "+Version+" (commit ") {
		t.Errorf("--version: got %q, want the program and %s", &out, Version)
	}
}

// The API's document and the npm package have the same number, and the changelog has a section for it.
func TestOneVersion(t *testing.T) {
	t.Parallel()
	for file, pattern := range map[string]string{
		"../../functions/openapi.yaml":           `(?m)^  version: (\S+)$`,
		"../client/typescript/package.json":      `"version": "([^"]+)"`,
		"../client/typescript/package-lock.json": `"version": "([^"]+)"`,
		"../../CHANGELOG.md":                     `(?m)^## \[(\d[^\]]*)\]`,
	} {
		found := regexp.MustCompile(pattern).FindStringSubmatch(string(check.Value(os.ReadFile(file))(t)))
		if found == nil || found[1] != Version {
			t.Errorf("%s: got %q, want %s, the constant Version", file, found, Version)
		}
	}
}
