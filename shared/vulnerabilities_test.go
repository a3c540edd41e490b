package shared_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// vulnerable is a vulnerability database that knows of one in a function of Go's os package.
func vulnerable(t *testing.T, function string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	const id, at = "GO-2026-9999", "2026-01-01T00:00:00Z"
	type object = map[string]any
	for name, content := range map[string]any{
		"index/db.json":      object{"modified": at},
		"index/modules.json": []object{{"path": "stdlib", "vulns": []object{{"id": id, "modified": at}}}},
		"index/vulns.json":   []object{{"id": id, "modified": at}},
		"ID/" + id + ".json": object{
			"schema_version": "1.3.1", "id": id, "modified": at, "published": at, "summary": "a made-up fault", "details": "of a test",
			"database_specific": object{"url": "https://example.com/" + id}, // govulncheck breaks off where there is none
			"affected": []object{{
				"package":            object{"name": "stdlib", "ecosystem": "Go"},
				"ranges":             []object{{"type": "SEMVER", "events": []object{{"introduced": "0"}}}},
				"ecosystem_specific": object{"imports": []object{{"path": "os", "symbols": []string{function}}}},
			}},
		},
	} {
		path := filepath.Join(folder, name)
		check.OK(t)(os.MkdirAll(filepath.Dir(path), 0o700))
		check.OK(t)(os.WriteFile(path, check.Value(json.Marshal(content))(t), 0o600))
	}
	return folder
}

// packed serves files as they are, and as .gz beside each, as the database does.
func packed(files http.Dir) http.Handler {
	plain := http.FileServer(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, zipped := strings.CutSuffix(r.URL.Path, ".gz")
		f, err := files.Open(name)
		if !zipped || err != nil {
			plain.ServeHTTP(w, r)
			return
		}
		defer f.Close()
		z := gzip.NewWriter(w)
		defer z.Close()
		_, _ = io.Copy(z, f)
	})
}

// runCheck runs the check over a program that calls os.Getenv, and gives its status.
func runCheck(t *testing.T, environ []string, arguments ...string) (status int, output string) {
	t.Helper()
	c := exec.Command("../scripts/vulnerabilities", append(arguments, "./shared/crash/testdata/child")...)
	c.Env = append(os.Environ(), environ...)
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), string(out)
}

// Where the check cannot be made it says so and why, and passes only if it is not required.
func TestVulnerabilitiesAreSkippedAloud(t *testing.T) {
	t.Parallel()
	goProgram := check.Value(exec.LookPath("go"))(t)
	folder := t.TempDir()
	missing := []string{"GOPATH=" + folder, "PATH=" + filepath.Dir(goProgram) + ":/usr/bin:/bin"}
	if _, err := os.Stat("/usr/bin/govulncheck"); err == nil {
		t.Skip("Left out: govulncheck is where it cannot be hidden")
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	skipped := func(what, want string, db ...string) {
		t.Helper()
		if status, out := runCheck(t, missing, db...); status != 0 || !strings.HasPrefix(out, "SKIPPED: ") || !strings.Contains(out, want) {
			t.Errorf("%s: got status %d, %s; want 0, SKIPPED and %q", what, status, out, want)
		}
		if status, out := runCheck(t, missing, append(db, "--require")...); status != 1 || !strings.Contains(out, want) {
			t.Errorf("%s, required: got status %d, %s; want 1 and %q", what, status, out, want)
		}
	}
	skipped("no govulncheck", "govulncheck is not installed")
	check.OK(t)(os.Mkdir(filepath.Join(folder, "bin"), 0o700))
	check.OK(t)(os.WriteFile(filepath.Join(folder, "bin", "govulncheck"), []byte("#!/bin/false\n"), 0o700)) // is there, and is never reached
	skipped("no server", gone.URL+" cannot be reached", "--db", gone.URL)
	skipped("no folder", "cannot be reached", "--db", "file://"+folder+"/none")
	if status, out := runCheck(t, missing, "--db", "file://"+vulnerable(t, "Getenv")); status != 1 {
		t.Errorf("a check that fails: got status %d, %s; want 1", status, out)
	}
	for _, wrong := range [][]string{{"--db", "vuln.go.dev"}, {"--fast"}} {
		if status, out := runCheck(t, missing, wrong...); status != 2 {
			t.Errorf("%v: got status %d, %s; want 2", wrong, status, out)
		}
	}
}

// A vulnerability that the code reaches fails the check. Any other does not.
func TestVulnerabilitiesThatReachTheCode(t *testing.T) {
	t.Parallel()
	if _, out := runCheck(t, nil, "--db", "file://"+t.TempDir()); strings.Contains(out, "govulncheck is not installed") {
		t.Skip("Left out: govulncheck is not installed")
	}
	for function, want := range map[string]int{"Getenv": 1, "Chown": 0} {
		folder := vulnerable(t, function)
		server := httptest.NewServer(packed(http.Dir(folder)))
		t.Cleanup(server.Close)
		for _, db := range []string{"file://" + folder, server.URL} {
			if status, out := runCheck(t, nil, "--require", "--db", db); status != want || want == 1 && !strings.Contains(out, "os.Getenv") {
				t.Errorf("a fault of os.%s, told by %s: got status %d, %s; want %d", function, db, status, out, want)
			}
		}
	}
}
