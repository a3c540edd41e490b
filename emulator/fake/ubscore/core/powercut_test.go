package core_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal"
	"github.com/fencepost/fencepost/shared/check"
)

// forgetfulDisk is a [wal.Disk] that knows the durable state of one folder. It has the names at the folder's last sync,
// and the content of each file at the file's last sync.
type forgetfulDisk struct {
	Folder string

	mu      sync.Mutex
	names   map[string]uint64 // inodes
	content map[uint64][]byte // by inode
}

func (d *forgetfulDisk) Sync(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	content, err := io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.content == nil {
		d.content = map[uint64][]byte{}
	}
	d.content[inode(info)] = content
	return nil
}

func (d *forgetfulDisk) SyncFolder(folder string) error {
	if filepath.Clean(folder) != filepath.Clean(d.Folder) {
		return nil
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	names, content := map[string]uint64{}, map[uint64][]byte{}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range files {
		info, err := f.Info()
		if os.IsNotExist(err) { // renamed or removed meanwhile
			continue
		}
		if err != nil {
			return err
		}
		n := inode(info)
		names[f.Name()] = n
		if kept, ok := d.content[n]; ok { // the inode of a removed file can be reused
			content[n] = kept
		}
	}
	d.names, d.content = names, content
	return nil
}

// cut writes the state that a power cut would leave now into another folder. A file that was never
// synced is empty, if its name is durable.
func (d *forgetfulDisk) cut(into string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, n := range d.names {
		if err := os.WriteFile(filepath.Join(into, name), d.content[n], 0o600); err != nil {
			return err
		}
	}
	return nil
}

func inode(info os.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// A power cut just after a snapshot got its name leaves the snapshot complete. The core starts from it
// with everything that it answered.
func TestPowerCutKeepsSnapshotsComplete(t *testing.T) {
	t.Parallel()
	disk := &forgetfulDisk{Folder: t.TempDir()}
	c := stocked(t, core.Options{Folder: disk.Folder, SnapshotEvery: 4, Disk: disk})
	for n := range 4 {
		do(t, c, withdrawal(fmt.Sprint("w-", n), 1), "")
	}
	check.OK(t)(c.Close()) // waits for the snapshot
	left := t.TempDir()
	check.OK(t)(disk.cut(left))
	if found, err := filepath.Glob(filepath.Join(left, "snapshot-*.img")); err != nil || len(found) == 0 {
		t.Fatalf("snapshots that are durable by their name: got %v, %v; want one", found, err)
	}
	again := open(t, core.Options{Folder: left})
	if halt := again.Halted(); halt != nil {
		t.Fatalf("after the power cut: got the core halted: %v", halt)
	}
	wantUnits(t, again, 996)
}

// openLog opens a log without a core.
func openLog(t *testing.T, o wal.Options) *wal.Log {
	t.Helper()
	l, torn, err := wal.Open(o)
	if err != nil || torn != 0 {
		t.Fatalf("open the log: %d bytes torn, %v", torn, err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// commitLine makes one line durable.
func commitLine(l *wal.Log, line string) error {
	if err := l.Append([][]byte{[]byte(line)}); err != nil {
		return err
	}
	return l.Sync()
}

func wantLines(t *testing.T, l *wal.Log, want ...string) {
	t.Helper()
	var got []string
	check.OK(t)(l.Read(0, 0, func(_ uint64, line []byte) error { got = append(got, string(line)); return nil }))
	check.Same(t, "lines of the log", got, want)
}

// A power cut keeps every synced line and its segment. The lines span several segments, and the power is
// cut after each commit.
func TestPowerCutKeepsSyncedLines(t *testing.T) {
	t.Parallel()
	disk := &forgetfulDisk{Folder: t.TempDir()}
	l := openLog(t, wal.Options{Folder: disk.Folder, SegmentBytes: 128, Disk: disk})
	var want []string
	for n := range 20 {
		want = append(want, fmt.Sprintf("line %d", n+1))
		check.OK(t)(commitLine(l, want[n]))
		left := t.TempDir()
		check.OK(t)(disk.cut(left))
		wantLines(t, openLog(t, wal.Options{Folder: left, SegmentBytes: 128}), want...)
	}
	if segments, err := filepath.Glob(filepath.Join(disk.Folder, "wal-*.log")); err != nil || len(segments) < 2 {
		t.Errorf("segments: got %v, %v; want more than one", segments, err)
	}
}
