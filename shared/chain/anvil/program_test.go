package anvil

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// only is a PATH with these programs, name to path.
func only(programs map[string]string) func(string) (string, error) {
	return func(name string) (string, error) {
		if path, ok := programs[name]; ok {
			return path, nil
		}
		return "", exec.ErrNotFound
	}
}

// npm is a PATH with a program of this shell code instead of npm. $PREFIX is the folder to install
// into, and $PROGRAM the program there.
func npm(t *testing.T, code string) func(string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "npm")
	program := "$PREFIX/node_modules/@foundry-rs/anvil-" + runtime.GOOS + "-" + runtime.GOARCH + "/bin/anvil"
	head := "#!/bin/sh\nPREFIX=$3\nPROGRAM=" + program + "\n"
	check.OK(t)(os.WriteFile(path, []byte(head+code+"\n"), 0o755))
	return only(map[string]string{"npm": path})
}

// installs does npm's work.
const installs = `mkdir -p "$(dirname "$PROGRAM")"; echo '#!/bin/sh' > "$PROGRAM"; chmod +x "$PROGRAM"`

// wantError requires locate to fail with these words, and to leave nothing that a later call takes for
// the program.
func wantError(t *testing.T, err error, cache string, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("got %v, want it to say %q", err, w)
		}
	}
	if path, err := locate(t.Context(), only(nil), cache); err == nil {
		t.Errorf("after the failure: got %s, want none", path)
	}
}

// PATH is searched first, and then nothing is installed.
func TestProgramInPathIsPreferred(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	path := only(map[string]string{"anvil": "/opt/anvil", "npm": "/bin/false"})
	check.Equal(t, "program", check.Value(locate(t.Context(), path, cache))(t), "/opt/anvil")
	check.Equal(t, "files in the cache", len(check.Value(os.ReadDir(cache))(t)), 0)
}

func TestMissingNpmIsAnError(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	_, err := locate(t.Context(), only(nil), cache)
	wantError(t, err, cache, "neither PATH nor "+cache, "no npm")
}

// npm's own text is in the error, and its partial installation does not count. The next working npm
// installs.
func TestFailedNpmIsAnError(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	_, err := locate(t.Context(), npm(t, installs+"; echo 'getaddrinfo ENOTFOUND' >&2; exit 7"), cache)
	wantError(t, err, cache, "npm could not install it", "exit status 7", "getaddrinfo ENOTFOUND")
	_, err = locate(t.Context(), npm(t, "true"), cache)
	wantError(t, err, cache, "npm has no anvil "+Version+" for "+runtime.GOOS)
	check.Err(t, "npm that works", nil)(locate(t.Context(), npm(t, installs), cache))
}

// An npm that hangs is stopped at its time-out, and its partial installation does not count.
func TestHangingNpmIsStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	cache := t.TempDir()
	_, err := locate(ctx, npm(t, installs+"; exec sleep 600"), cache)
	wantError(t, err, cache, "killed", context.DeadlineExceeded.Error())
}

// Any number of concurrent callers run npm once. After that neither npm nor a network is needed.
func TestProgramIsInstalledOnce(t *testing.T) {
	t.Parallel()
	cache, runs := t.TempDir(), filepath.Join(t.TempDir(), "runs")
	path := npm(t, "echo run >> "+runs+"; "+installs)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { check.Err(t, "locate", nil)(locate(t.Context(), path, cache)) })
	}
	all.Wait()
	check.Equal(t, "runs of npm", string(check.Value(os.ReadFile(runs))(t)), "run\n")
	if got, err := locate(t.Context(), only(nil), cache); err != nil || !strings.HasPrefix(got, cache) {
		t.Errorf("without npm: got %s, %v, want the installed one", got, err)
	}
}

// The wait for another process that installs ends at its time-out.
func TestWaitForTheLockEnds(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	unlock, err := lock(t.Context(), filepath.Join(cache, "anvil-"+Version+".lock"))
	check.OK(t)(err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = locate(ctx, npm(t, installs), cache)
	wantError(t, err, cache, "another process")
	unlock()
	check.Err(t, "after it", nil)(locate(t.Context(), npm(t, installs), cache))
}

// A program that does not print its address is stopped when the start times out.
func TestProgramWithoutAddressIsStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := startChild(ctx, "sh", []string{"-c", "echo half a sentence; exec sleep 600"})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "half a sentence") {
		t.Errorf("got %v, want the end of the time, and what it said", err)
	}
}

// A program that ends at once is an error with its own text.
func TestProgramThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := startChild(t.Context(), "sh", []string{"-c", "echo half a sentence; exit 3"})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "half a sentence") {
		t.Errorf("got %v, want how it ended, and what it said", err)
	}
}
