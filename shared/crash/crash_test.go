package crash_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/crash"
)

// child builds a program that reaches a and b twice. It returns a function that runs it with the folder
// of armed points; "": with none.
func child(t *testing.T, flags ...string) func(folder string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "child")
	build := exec.Command("go", slices.Concat([]string{"build", "-o", path}, flags, []string{"./testdata/child"})...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return func(folder string) (string, error) {
		c := exec.Command(path)
		c.Env = append(os.Environ(), crash.Variable+"="+folder)
		out, err := c.CombinedOutput()
		return string(out), err
	}
}

// A process dies exactly at the armed pass, and only one process does.
func TestKillAtTheArmedPass(t *testing.T) {
	t.Parallel()
	folder, run := t.TempDir(), child(t, "-tags", crash.Tag)
	check.OK(t)(crash.Arm(folder, "b", 3, crash.Kill))
	if out, err := run(folder); err != nil || out != "alive" || crash.Hit(folder, "b") {
		t.Fatalf("two passes of three: got %q, %v, hit %v; want it alive", out, err, crash.Hit(folder, "b"))
	}
	_, err := run(folder)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || !crash.Hit(folder, "b") {
		t.Errorf("the third pass: got %v, hit %v; want SIGKILL", err, crash.Hit(folder, "b"))
	}
	if out, err := run(folder); err != nil || out != "alive" {
		t.Errorf("after it was hit: got %q, %v; want it alive", out, err)
	}
}

// A program that is built for production does not start if points are armed, so that no crash test can
// pass with it. It has no code that could kill it.
func TestProductionHasNoPoints(t *testing.T) {
	t.Parallel()
	folder, run := t.TempDir(), child(t)
	check.OK(t)(crash.Arm(folder, "a", 1, crash.Kill))
	out, err := run(folder)
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 || !strings.Contains(out, "-tags "+crash.Tag) || crash.Hit(folder, "a") {
		t.Errorf("armed: got %q, %v, hit %v; want status 1 and how to build it", out, err, crash.Hit(folder, "a"))
	}
	if out, err := run(""); err != nil || out != "alive" {
		t.Errorf("not armed: got %q, %v; want it alive", out, err)
	}
	image, err := os.ReadFile("../../Dockerfile")
	if err != nil || strings.Contains(string(image), "-tags") || !strings.Contains(string(image), "go build") {
		t.Errorf("Dockerfile: got build tags in it, or no build, %v; want it built as it is", err)
	}
}

// Each point occurs once.
func TestAllListsEachPointOnce(t *testing.T) {
	t.Parallel()
	all := crash.All()
	slices.Sort(all)
	if once := slices.Compact(slices.Clone(all)); len(once) != len(all) {
		t.Errorf("points: got %d of which %d are different", len(all), len(once))
	}
}
