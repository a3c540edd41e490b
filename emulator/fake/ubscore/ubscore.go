// Package ubscore starts the trading core's process, for the emulator and for tests that kill it. It
// also tears the log as a crash of the machine would.
package ubscore

import (
	"context"
	"io"
	"maps"
	"os"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/emulator/stack/programs"
	"github.com/fencepost/fencepost/shared/crash"
)

// Options describe how a core is run.
type Options struct {
	Binary        string // of [Build]
	Folder        string // log and snapshots; kept between processes
	Secret        string // 16 bytes or more
	Horizon       time.Duration
	SnapshotEvery int
	CrashPoints   string            // the folder of armed points; empty: none
	Environment   map[string]string // beside the variables of [Spec]
	Output        func(line string)
}

// Build compiles the core into folder and returns its path. It runs in the
// module's tree.
func Build(ctx context.Context, folder string, flags ...string) (string, error) {
	return programs.Build(ctx, io.Discard, folder, "emulator/fake/ubscore/server", flags...)
}

// Start starts a core and waits until it has recovered. If the core halts instead, the error has its
// last log line.
func Start(ctx context.Context, o Options) (*processes.Process, error) {
	return processes.Start(ctx, Spec(o))
}

// Spec is what [processes.Start] or [processes.StartPool] runs.
func Spec(o Options) processes.Spec {
	env := map[string]string{
		"UBSCORE_FOLDER": o.Folder, "UBSCORE_SECRET": o.Secret, crash.Variable: o.CrashPoints,
		"PATH": os.Getenv("PATH"), "HOME": os.Getenv("HOME"), "TMPDIR": os.Getenv("TMPDIR"),
	}
	if o.Horizon != 0 {
		env["UBSCORE_HORIZON"] = o.Horizon.String()
	}
	if o.SnapshotEvery != 0 {
		env["UBSCORE_SNAPSHOT_EVERY"] = strconv.Itoa(o.SnapshotEvery)
	}
	maps.Copy(env, o.Environment)
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	return processes.Spec{Name: "ubscore", Path: o.Binary, Env: list, Output: o.Output}
}

// Tear cuts the log of an ended core as a crash of the machine can: of the bytes without an fsync
// only the first keep stay. It returns the number of bytes without an fsync.
func Tear(folder string, keep int64) (undurable int64, err error) {
	return wal.Tear(folder, keep)
}
