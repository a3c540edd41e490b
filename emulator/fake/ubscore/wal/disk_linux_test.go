package wal_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal/waltest"
)

// A failed write or fsync ends the log for good: no later call reports lines as durable, and only durable
// lines are read.
func TestFailedFsyncEndsTheLog(t *testing.T) {
	t.Parallel()
	for name, device := range map[string]string{
		"fsync": "/dev/null", // takes every write, and has no fsync
		"write": "/dev/full", // takes none
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			l, _ := open(t, wal.Options{Folder: folder})
			commit(t, l, "durable")
			putBack := waltest.ReplaceFile(t, filepath.Join(folder, first), device)
			for range 2 { // the second time by a disk that is sound again
				err := l.Append([][]byte{[]byte("lost")})
				if err == nil {
					err = l.Sync()
				}
				if !errors.Is(err, wal.ErrFailed) {
					t.Errorf("append and sync: got %v, want %v", err, wal.ErrFailed)
				}
				putBack()
				putBack = func() {}
			}
			wantLines(t, l, "durable")
		})
	}
}
