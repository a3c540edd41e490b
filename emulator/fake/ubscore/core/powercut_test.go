package core_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal/powercut"
)

// A power cut just after a snapshot got its name leaves the snapshot complete. The core starts from it
// with everything that it answered.
func TestPowerCutKeepsSnapshotsComplete(t *testing.T) {
	t.Parallel()
	disk := &powercut.Disk{Folder: t.TempDir()}
	c := stocked(t, core.Options{Folder: disk.Folder, SnapshotEvery: 4, Disk: disk})
	for n := range 4 {
		do(t, c, withdrawal(fmt.Sprint("w-", n), 1), "")
	}
	if err := c.Close(); err != nil { // waits for the snapshot
		t.Fatal(err)
	}
	left := t.TempDir()
	if err := disk.Cut(left); err != nil {
		t.Fatal(err)
	}
	if found, err := filepath.Glob(filepath.Join(left, "snapshot-*.img")); err != nil || len(found) == 0 {
		t.Fatalf("snapshots that are durable by their name: got %v, %v; want one", found, err)
	}
	again := open(t, core.Options{Folder: left})
	if halt := again.Halted(); halt != nil {
		t.Fatalf("after the power cut: got the core halted: %v", halt)
	}
	wantUnits(t, again, 996)
}
