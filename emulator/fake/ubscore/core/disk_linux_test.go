package core_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal"
	"github.com/fencepost/fencepost/shared/check"
)

const firstSegment = "wal-00000000000000000001.log"

// replaceFile redirects this process' open file to the device: writes go to the device until putBack
// is called.
func replaceFile(t *testing.T, path, device string) (putBack func()) {
	t.Helper()
	path = check.Value(filepath.EvalSymlinks(path))(t)
	d := check.Value(os.OpenFile(device, os.O_RDWR, 0))(t)
	defer d.Close()
	descriptors := check.Value(os.ReadDir("/proc/self/fd"))(t)
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
		check.OK(t)(err)
		return func() { _ = syscall.Dup3(own, fd, syscall.O_CLOEXEC); _ = syscall.Close(own) }
	}
	t.Fatalf("this process has no open file %s", path)
	return nil
}

// badDisks are devices, by what fails on them. The first takes every write, the second none.
var badDisks = map[string]string{"fsync": "/dev/null", "write": "/dev/full"}

// A withdrawal that could not be made durable appears in no balance, journal or answer, and the core
// never answers again.
func TestAFailedFsyncHalts(t *testing.T) {
	t.Parallel()
	for name, device := range badDisks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := core.Options{Folder: t.TempDir()}
			c := stocked(t, o)
			putBack := replaceFile(t, filepath.Join(o.Folder, firstSegment), device)
			check.Err(t, "a withdrawal without a disk", wal.ErrFailed)(c.Do(t.Context(), withdrawal("lost", 400)))
			putBack()
			halted(t, c, wal.ErrFailed, "make room or replace it")
			check.OK(t)(c.Close())
			c = open(t, o) // on a working disk
			wantUnits(t, c, 1000)
			do(t, c, withdrawal("lost", 400), "")
			wantUnits(t, c, 600)
		})
	}
}

// A failed write or fsync ends the log for good: no later call reports lines as durable, and only durable
// lines are read.
func TestFailedFsyncEndsTheLog(t *testing.T) {
	t.Parallel()
	for name, device := range badDisks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			l := openLog(t, wal.Options{Folder: folder})
			check.OK(t)(commitLine(l, "durable"))
			putBack := replaceFile(t, filepath.Join(folder, firstSegment), device)
			for range 2 { // the second time by a disk that is sound again
				check.Err(t, "append and sync", wal.ErrFailed)(commitLine(l, "lost"))
				putBack()
				putBack = func() {}
			}
			wantLines(t, l, "durable")
		})
	}
}
