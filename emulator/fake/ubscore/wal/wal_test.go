package wal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal"
	"github.com/fencepost/fencepost/shared/check"
)

func open(t testing.TB, o wal.Options) (l *wal.Log, torn int64) {
	t.Helper()
	l, torn, err := wal.Open(o)
	check.OK(t)(err)
	t.Cleanup(func() { _ = l.Close() })
	return l, torn
}

// commit appends the lines as one record and makes it durable.
func commit(t testing.TB, l *wal.Log, lines ...string) {
	t.Helper()
	appendOnly(t, l, lines...)
	check.OK(t)(l.Sync())
}

func appendOnly(t testing.TB, l *wal.Log, lines ...string) {
	t.Helper()
	var bytes [][]byte
	for _, line := range lines {
		bytes = append(bytes, []byte(line))
	}
	check.OK(t)(l.Append(bytes))
}

func read(l *wal.Log, after uint64, limit int) (lines []string, err error) {
	want := after
	err = l.Read(after, limit, func(seq uint64, line []byte) error {
		if want++; seq != want {
			return fmt.Errorf("got line %d, want %d", seq, want)
		}
		lines = append(lines, string(line))
		return nil
	})
	return lines, err
}

func wantLines(t testing.TB, l *wal.Log, want ...string) {
	t.Helper()
	check.Same(t, "lines", check.Value(read(l, 0, 0))(t), want)
}

// files returns the content of the folder's files by name.
func files(t testing.TB, folder string) map[string][]byte {
	t.Helper()
	entries := check.Value(os.ReadDir(folder))(t)
	all := map[string][]byte{}
	for _, e := range entries {
		all[e.Name()] = check.Value(os.ReadFile(filepath.Join(folder, e.Name())))(t)
	}
	return all
}

// laid returns a folder with exactly these files.
func laid(t testing.TB, all map[string][]byte) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for name, content := range all {
		check.OK(t)(os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	return folder
}

const first = "wal-00000000000000000001.log"

// Written lines are read in pages of any size and after any line, across segments and restarts. The log
// continues at its end.
func TestWrittenLinesAreRead(t *testing.T) {
	t.Parallel()
	o := wal.Options{Folder: filepath.Join(t.TempDir(), "new", "folder"), SegmentBytes: 200}
	l, _ := open(t, o)
	var want []string
	for i := range 40 {
		lines := []string{fmt.Sprintf("line %d", i), "", "beside it"}[:1+i%3]
		commit(t, l, lines...)
		want = append(want, lines...)
		if i%7 == 0 {
			check.OK(t)(l.Close())
			l, _ = open(t, o)
		}
	}
	wantLines(t, l, want...)
	if n := len(files(t, o.Folder)); n < 8 {
		t.Errorf("files: got %d, want several segments", n)
	}
	for after := range len(want) + 1 {
		for _, limit := range []int{1, 2, 5, 1000} {
			got := check.Value(read(l, uint64(after), limit))(t)
			check.Same(t, fmt.Sprintf("%d lines after %d", limit, after), got, want[after:min(after+limit, len(want))], cmpopts.EquateEmpty())
		}
	}
}

// Lines that are written but not durable are not read.
func TestOnlyDurableLinesAreRead(t *testing.T) {
	t.Parallel()
	l, _ := open(t, wal.Options{Folder: t.TempDir()})
	commit(t, l, "durable")
	appendOnly(t, l, "not yet")
	wantLines(t, l, "durable")
	check.Equal(t, "the last durable line", l.Last(), 1)
	check.OK(t)(l.Sync())
	wantLines(t, l, "durable", "not yet")
}

// A second process cannot open the folder until the first has closed it.
func TestSecondProcessCannotOpenTheFolder(t *testing.T) {
	t.Parallel()
	o := wal.Options{Folder: t.TempDir()}
	l, _ := open(t, o)
	check.Err(t, "a second open", wal.ErrLocked)(wal.Open(o))
	check.OK(t)(l.Close())
	open(t, o)
}

// A reader continues at the line where it stopped, anywhere in a record.
func TestReaderContinuesWhereItStopped(t *testing.T) {
	t.Parallel()
	l, _ := open(t, wal.Options{Folder: t.TempDir(), SegmentBytes: 100})
	var want []string
	for record := range 20 {
		var lines []string
		for line := range 1 + record%4 {
			lines = append(lines, fmt.Sprint("line ", record, " ", line))
		}
		commit(t, l, lines...)
		want = append(want, lines...)
	}
	for each := 1; each <= 7; each++ {
		var got []string
		for range want { // the last of them find the end
			taken := 0
			err := l.Read(uint64(len(got)), 0, func(seq uint64, line []byte) error {
				if taken++; taken > each {
					return wal.ErrEnough
				}
				if seq != uint64(len(got))+1 {
					return fmt.Errorf("got line %d, want %d", seq, len(got)+1)
				}
				got = append(got, string(line))
				return nil
			})
			check.OK(t)(err)
		}
		check.Same(t, fmt.Sprintf("%d at a time", each), got, want)
	}
}
