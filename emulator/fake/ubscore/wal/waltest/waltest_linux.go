// Package waltest breaks the disk of an open log, for tests.
package waltest

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// ReplaceFile redirects this process' open file to the device: writes go to the device until putBack
// is called.
func ReplaceFile(t *testing.T, path, device string) (putBack func()) {
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
