package anvil

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// PATH is searched first. Without both programs the error tells how to install one.
func TestProgramInPathIsPreferred(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	_, missing := os.Stat("node_modules")
	installed, err := program()
	if missing == nil && err != nil || missing != nil && (!errors.Is(err, ErrNotThere) || !strings.Contains(err.Error(), "ensure_anvil")) {
		t.Errorf("without a program in PATH: got %q, %v, want the installed one, or how to install it", installed, err)
	}
	own := filepath.Join(folder, "anvil")
	check.OK(t)(os.WriteFile(own, []byte("#!/bin/sh\n"), 0o755))
	check.Equal(t, "program", check.Value(program())(t), own)
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
