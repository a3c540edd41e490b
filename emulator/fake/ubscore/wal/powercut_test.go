package wal_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal/powercut"
)

// A power cut keeps every synced line and its segment. The lines span several segments, and the power is
// cut after each commit.
func TestPowerCutKeepsSyncedLines(t *testing.T) {
	t.Parallel()
	disk := &powercut.Disk{Folder: t.TempDir()}
	l, _ := open(t, wal.Options{Folder: disk.Folder, SegmentBytes: 128, Disk: disk})
	var want []string
	for n := range 20 {
		line := fmt.Sprintf("line %d", n+1)
		commit(t, l, line)
		want = append(want, line)
		left := t.TempDir()
		if err := disk.Cut(left); err != nil {
			t.Fatal(err)
		}
		after, recovery, err := wal.Open(wal.Options{Folder: left, SegmentBytes: 128})
		if err != nil {
			t.Fatalf("after %d lines: %v", n+1, err)
		}
		var got []string
		err = after.Read(0, 0, func(_ uint64, line []byte) error { got = append(got, string(line)); return nil })
		if err != nil || !slices.Equal(got, want) || recovery.Torn != 0 {
			t.Errorf("after %d lines: got %d lines, %d bytes torn, %v; want all %d", n+1, len(got), recovery.Torn, err, len(want))
		}
		if err := after.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if segments := len(files(t, disk.Folder)); segments < 4 { // with the mark and the lock
		t.Errorf("files: got %d, want more than one segment", segments)
	}
}
