package programs

import (
	"io"
	"os"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// A shared program is built once for the same flags. Without the variable it is in the folder given.
func TestProgramsAreShared(t *testing.T) {
	const program = "shared/crash/testdata/child"
	t.Setenv(sharedVariable, t.TempDir())
	build := func(flags ...string) string {
		return check.Value(Build(t.Context(), io.Discard, t.TempDir(), program, flags...))(t)
	}
	first := build()
	check.OK(t)(os.WriteFile(first, []byte("built already"), 0o600))
	again := build()
	text, err := os.ReadFile(again)
	if first != again || err != nil || string(text) != "built already" {
		t.Errorf("a second build: got %s with %d bytes, %v; want %s as it was", again, len(text), err, first)
	}
	if other := build("-trimpath=false"); other == first {
		t.Errorf("with other flags: got %s, want another program", other)
	}
	t.Setenv(sharedVariable, "")
	if own := build(); own == first {
		t.Errorf("without the variable: got %s, want a program of its own", own)
	}
}
