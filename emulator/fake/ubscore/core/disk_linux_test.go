package core_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal/waltest"
)

// A withdrawal that could not be made durable appears in no balance, journal or answer, and the core
// never answers again.
func TestAFailedFsyncHalts(t *testing.T) {
	t.Parallel()
	for name, device := range map[string]string{"fsync": "/dev/null", "write": "/dev/full"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := core.Options{Folder: t.TempDir()}
			c := stocked(t, o)
			putBack := waltest.ReplaceFile(t, filepath.Join(o.Folder, "wal-00000000000000000001.log"), device)
			if e, err := c.Do(t.Context(), withdrawal("lost", 400)); !errors.Is(err, wal.ErrFailed) {
				t.Errorf("a withdrawal without a disk: got %+v, %v; want %v", e, err, wal.ErrFailed)
			}
			putBack()
			halted(t, c, wal.ErrFailed, "make room or replace it")
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			c = open(t, o) // on a working disk
			wantUnits(t, c, 1000)
			do(t, c, withdrawal("lost", 400), "")
			wantUnits(t, c, 600)
		})
	}
}
