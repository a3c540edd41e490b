package core_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/emulator/ubscore/core"
	"github.com/fencepost/fencepost/emulator/ubscore/wal"
)

// replace puts the device in the place of this process' open file: what is
// written to the one goes to the other, until it is put back.
func replace(t *testing.T, path, device string) (putBack func()) {
	t.Helper()
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range descriptors {
		target, _ := os.Readlink("/proc/self/fd/" + e.Name())
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err != nil || target != path {
			continue
		}
		own, err := syscall.Dup(fd)
		if err == nil {
			err = syscall.Dup3(int(d.Fd()), fd, syscall.O_CLOEXEC)
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() { _ = syscall.Dup3(own, fd, syscall.O_CLOEXEC); _ = syscall.Close(own) }
	}
	t.Fatalf("this process has no open file %s", path)
	return nil
}

// A withdrawal that could not be made durable is not seen: not in a balance, not
// in the journal, not in an answer; and the core never answers again.
func TestAFailedFsyncHalts(t *testing.T) {
	t.Parallel()
	for name, device := range map[string]string{"fsync": "/dev/null", "write": "/dev/full"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := core.Options{Folder: t.TempDir()}
			c := stocked(t, o)
			putBack := replace(t, filepath.Join(o.Folder, "wal-00000000000000000001.log"), device)
			if e, err := c.Do(t.Context(), withdrawal("lost", 400)); !errors.Is(err, wal.ErrFailed) {
				t.Errorf("a withdrawal without a disk: got %+v, %v; want %v", e, err, wal.ErrFailed)
			}
			putBack()
			halted(t, c, wal.ErrFailed, "make room or replace it")
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			c = open(t, o) // on a sound disk
			wantUnits(t, c, 1000)
			do(t, c, withdrawal("lost", 400), "")
			wantUnits(t, c, 600)
		})
	}
}
