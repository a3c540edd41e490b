package pgcluster

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// childVariable makes the test binary a process that starts a cluster and then
// waits to be killed.
const childVariable = "PGCLUSTER_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		fmt.Println(childMain())
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// childMain prints the cluster's folder and returns only on failure.
func childMain() error {
	c, err := Start(context.Background(), Options{})
	if err != nil {
		return err
	}
	fmt.Println(c.keeper.dir)
	_, err = os.Stdin.Read(make([]byte, 1)) // the test never writes
	return fmt.Errorf("not killed in time: %v, %v", err, c.Stop())
}

// child starts the test binary as a process with a cluster whose folder is inside parent. It returns
// the process and its output.
func child(t *testing.T, parent string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	self := check.Value(os.Executable())(t)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"=1", "TMPDIR="+parent, MemoryFolder+"=")
	check.OK(t)(cmd.StdinPipe())
	out := check.Value(cmd.StdoutPipe())(t)
	check.OK(t)(cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewReader(out)
}

// openFolder makes a folder in which every user can create files, as in /tmp.
func openFolder(t *testing.T) string {
	t.Helper()
	folder := check.Value(os.MkdirTemp("/tmp", "pgcluster-test-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	check.OK(t)(os.Chmod(folder, 0o777|os.ModeSticky))
	return folder
}

// serverPID reads the process id of the server from the cluster's folder.
func serverPID(t *testing.T, folder string) int {
	t.Helper()
	text := check.Value(os.ReadFile(filepath.Join(folder, "data", "postmaster.pid")))(t)
	first, _, _ := strings.Cut(string(text), "\n")
	return check.Value(strconv.Atoi(first))(t)
}

func TestKilledOwnerLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, frozen := range map[string]bool{"of a server that runs": false, "of a frozen server": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := openFolder(t)
			owner, out := child(t, parent)
			folder := strings.TrimSpace(check.Value(out.ReadString('\n'))(t))
			check.Equal(t, "parent of the child's cluster", filepath.Dir(folder), parent)
			server := serverPID(t, folder)
			check.Equal(t, "the server runs before the kill", alive(server), true)
			if frozen {
				check.OK(t)(syscall.Kill(server, syscall.SIGSTOP))
			}
			check.OK(t)(owner.Process.Kill())
			await(t, "the server is gone", func() bool { return !alive(server) })
			await(t, "the folder is gone", func() bool { return !exists(folder) })
		})
	}
}

func TestOwnerKilledDuringStartLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	stages := map[string]string{
		"folder made":    "fencepost-pg-*",
		"initdb running": "fencepost-pg-*/data/base",
		"server started": "fencepost-pg-*/data/postmaster.pid",
	}
	for name, pattern := range stages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := openFolder(t)
			owner, _ := child(t, parent)
			await(t, name, func() bool {
				found, err := filepath.Glob(filepath.Join(parent, pattern))
				return err == nil && len(found) > 0
			})
			check.OK(t)(owner.Process.Kill())
			await(t, "everything is gone", func() bool {
				left, err := os.ReadDir(parent)
				return err == nil && len(left) == 0
			})
		})
	}
}
