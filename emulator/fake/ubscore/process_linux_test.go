package ubscore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
)

// When the disk is full at any place in a record, the core halts. After the next start an unanswered
// request is either complete or gone.
func TestFullDiskHalts(t *testing.T) {
	t.Parallel()
	for _, room := range []int64{0, 1, 30} {
		r := stocked(t, ubscore.Options{}, 100)
		info := check.Value(os.Stat(filepath.Join(r.options.Folder, firstSegment)))(t)
		limitFileSize(t, r.process.PID(), info.Size()+room)
		got := r.Withdraw(r.ctx, call("lost", 30))
		wantUnknown(t, "a withdrawal without room", got, wire.Halted.Name)
		wantHalted(r.ctx, t, "http://"+r.process.Addr(), "make room")
		r.again(t)
		r.wantUnits(t, 100)
		want(t, "withdraw", r.Withdraw(r.ctx, call("lost", 30)), success)
		r.wantUnits(t, 70)
		r.wantSum(t)
	}
}

// limitFileSize bounds the files that the process can write (RLIMIT_FSIZE).
func limitFileSize(t *testing.T, pid int, bytes int64) {
	t.Helper()
	limit := syscall.Rlimit{Cur: uint64(bytes), Max: uint64(bytes)}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_FSIZE, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		t.Fatalf("limit the file size of process %d: %v", pid, errno)
	}
}

// SIGTERM lets requests in flight get their answers, and the process ends with status 0.
func TestSIGTERMDrains(t *testing.T) {
	t.Parallel()
	r := stocked(t, ubscore.Options{}, 100)
	r.kill(t)
	r = armed(t, r.options.Folder, "ubscore.appended", 1, crash.Stop)
	answered := make(chan transfer.Outcome, 1)
	go func() { answered <- r.Withdraw(r.ctx, call("in flight", 30)) }()
	r.until(t, "the process is stopped", func(int) bool {
		return crash.Hit(r.options.CrashPoints, "ubscore.appended") && stopped(r.process.PID())
	})
	check.OK(t)(r.process.Signal(syscall.SIGTERM))
	check.OK(t)(r.process.Stop(r.ctx)) // sends SIGTERM again, and SIGCONT
	want(t, "what was in flight", <-answered, success)
	check.Err(t, "the end", processes.ErrExited)(r.process.Err())
	r.again(t)
	r.wantUnits(t, 70)
}

func stopped(pid int) bool {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(content), ") ")
	return err == nil && strings.HasPrefix(state, "T")
}
