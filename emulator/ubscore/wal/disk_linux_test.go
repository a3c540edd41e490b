package wal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

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

// A failed write or fsync ends the log for good: it never says again that
// something is durable, and shows nothing that is not.
func TestAFailedFsyncEndsTheLog(t *testing.T) {
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
			putBack := replace(t, filepath.Join(folder, first), device)
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
