package wal_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal"
	"github.com/fencepost/fencepost/shared/check"
)

// dead returns a folder as after a crash between write and fsync: two durable records and an unanswered
// one.
func dead(t testing.TB) (all map[string][]byte, durable int) {
	t.Helper()
	folder := t.TempDir()
	l, _ := open(t, wal.Options{Folder: folder})
	commit(t, l, "one", "two")
	commit(t, l, "three")
	durable = len(files(t, folder)[first])
	appendOnly(t, l, "four", "five")
	return files(t, folder), durable
}

// with returns the files with one of them replaced.
func with(all map[string][]byte, name string, content []byte) map[string][]byte {
	all = maps.Clone(all)
	all[name] = content
	return all
}

// The last record can be torn at any byte: the file ends there, or the rest never reached the disk. It is
// cut off, and the log continues.
func TestTornLastRecordIsCutOff(t *testing.T) {
	t.Parallel()
	all, durable := dead(t)
	content := all[first]
	torn := map[string]func(cut int) []byte{
		"short": func(cut int) []byte { return content[:cut] },
		"zeros": func(cut int) []byte { return append(slices.Clone(content[:cut]), make([]byte, len(content)-cut)...) },
		"begun late": func(cut int) []byte { // the first blocks are missing, not the last
			return slices.Concat(content[:durable], make([]byte, cut-durable+1), content[cut+1:])
		},
	}
	for name, tear := range torn {
		for cut := durable; cut < len(content); cut++ {
			for _, files := range []map[string][]byte{all, without(all, "durable")} {
				wantTorn(t, fmt.Sprintf("%s at byte %d", name, cut), with(files, first, tear(cut)))
			}
		}
	}
}

// Tear cuts only bytes without an fsync, and keeps the given number of them.
func TestTearKeepsTheFirstBytesWithoutAnFsync(t *testing.T) {
	t.Parallel()
	all, durable := dead(t)
	folder, undurable := laid(t, all), len(all[first])-durable
	for _, keep := range []int{undurable, 7, 0} {
		check.Equal(t, "bytes without an fsync", check.Value(wal.Tear(folder, int64(keep)))(t), int64(undurable))
		check.Equal(t, "bytes left", len(files(t, folder)[first]), durable+keep)
		undurable = keep
	}
}

func wantTorn(t *testing.T, what string, all map[string][]byte) {
	t.Helper()
	o := wal.Options{Folder: laid(t, all)}
	l, _, err := wal.Open(o)
	if err != nil {
		t.Fatalf("%s: got %v, want it cut off", what, err)
	}
	commit(t, l, "after")
	for range 2 {
		check.Same(t, what, check.Value(read(l, 0, 0))(t), []string{"one", "two", "three", "after"})
		check.OK(t)(l.Close())
		var torn int64
		if l, torn, err = wal.Open(o); err != nil || torn != 0 {
			t.Fatalf("%s, the next start: got %v, %d bytes cut off; want nothing torn", what, err, torn)
		}
	}
	_ = l.Close()
}

// A complete last record without an answer stays: it may have been durable.
func TestCompleteLastRecordStays(t *testing.T) {
	t.Parallel()
	all, _ := dead(t)
	l, torn := open(t, wal.Options{Folder: laid(t, all)})
	wantLines(t, l, "one", "two", "three", "four", "five")
	check.Equal(t, "bytes cut off", torn, 0)
}

// A log with a changed byte, or an end, before the durable end is not opened and not changed.
func TestDamageBeforeTheDurableEndIsNotOpened(t *testing.T) {
	t.Parallel()
	all, durable := dead(t)
	content := all[first]
	for at := range durable {
		flipped := slices.Clone(content)
		flipped[at] ^= 0x41
		wantDamage(t, fmt.Sprintf("byte %d flipped", at), with(all, first, flipped))
		wantDamage(t, fmt.Sprintf("cut at byte %d", at), with(all, first, content[:at]))
	}
	wantDamage(t, "no log", without(all, first))
}

// Without the mark a complete record after the bad one proves that the bad one was durable.
func TestCompleteRecordAfterABadOneIsDamage(t *testing.T) {
	t.Parallel()
	all, durable := dead(t)
	all = without(all, "durable")
	for at := range durable {
		flipped := slices.Clone(all[first])
		flipped[at] ^= 0x41
		wantDamage(t, fmt.Sprintf("byte %d flipped", at), with(all, first, flipped))
		zeroed := slices.Clone(all[first])
		clear(zeroed[at : at+1+(durable-at)/2])
		if !slices.Equal(zeroed, all[first]) {
			wantDamage(t, fmt.Sprintf("zeros from byte %d", at), with(all, first, zeroed))
		}
	}
}

func without(all map[string][]byte, name string) map[string][]byte {
	all = maps.Clone(all)
	delete(all, name)
	return all
}

func wantDamage(t *testing.T, what string, all map[string][]byte) {
	t.Helper()
	folder := laid(t, all)
	l, _, err := wal.Open(wal.Options{Folder: folder})
	if err == nil {
		_ = l.Close()
	}
	var damage *wal.DamageError
	if !errors.As(err, &damage) {
		t.Errorf("%s: got %v, want damage", what, err)
	}
	check.Same(t, fmt.Sprintf("%s: the folder", what), without(files(t, folder), "lock"), without(all, "lock"))
}

// A gap or a repetition in the numbers is damage, in complete records too.
func TestGapInTheNumbersIsDamage(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l, _ := open(t, wal.Options{Folder: folder})
	var ends []int
	for _, line := range []string{"one", "two", "three"} {
		ends = append(ends, len(files(t, folder)[first]))
		commit(t, l, line)
	}
	all := without(files(t, folder), "durable")
	content := all[first]
	wantDamage(t, "the second record missing", with(all, first, slices.Concat(content[:ends[1]], content[ends[2]:])))
	wantDamage(t, "the second record twice", with(all, first, slices.Concat(content[:ends[2]], content[ends[1]:])))
}

// A missing or shortened segment is noticed when the log is opened, and damage inside one when it is read.
func TestDamagedEarlierSegmentIsNoticed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l, _ := open(t, wal.Options{Folder: folder, SegmentBytes: 100})
	for i := range 12 {
		commit(t, l, fmt.Sprintf("a line with the number %d", i))
	}
	all := files(t, folder)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if filepath.Ext(name) == ".log" {
			names = append(names, name)
		}
	}
	if len(names) < 4 {
		t.Fatalf("segments: got %d, too few to prove anything", len(names))
	}
	for i, name := range names {
		if i < len(names)-1 {
			wantDamage(t, name+" cut", with(all, name, all[name][:len(all[name])-1]))
			wantDamage(t, name+" longer", with(all, name, append(slices.Clone(all[name]), 0)))
		}
		wantDamage(t, name+" missing", without(all, name))
		if i < len(names)-1 { // without the mark nothing shows that the last segment existed
			wantDamage(t, name+" missing, no mark", without(without(all, name), "durable"))
		}
	}
	flipped := slices.Clone(all[names[1]])
	flipped[len(flipped)-1] ^= 1
	damaged := laid(t, with(all, names[1], flipped))
	l, _ = open(t, wal.Options{Folder: damaged, SegmentBytes: 100})
	var damage *wal.DamageError
	if _, err := read(l, 0, 0); !errors.As(err, &damage) || damage.File != names[1] {
		t.Errorf("read of a damaged segment: got %v, want damage in %s", err, names[1])
	}
}

// A process that dies while it creates the next segment leaves a part of its head, or a segment without
// records. The log continues.
func TestPartialNextSegmentIsReplaced(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l, _ := open(t, wal.Options{Folder: folder, SegmentBytes: 1})
	commit(t, l, "one")
	commit(t, l, "two")
	all := files(t, folder)
	const second = "wal-00000000000000000002.log"
	check.OK(t)(l.Close())
	before := without(all, "durable")
	for size := range 37 { // from nothing to a whole head
		o := wal.Options{Folder: laid(t, with(before, second, all[second][:size])), SegmentBytes: 1}
		l, _ := open(t, o)
		commit(t, l, "again")
		check.OK(t)(l.Close())
		l, _ = open(t, o)
		wantLines(t, l, "one", "again")
	}
}

// FuzzOpen damages the part of a log that was never answered, in any way. The log is either not opened, or
// has the durable lines and after them only written ones.
func FuzzOpen(f *testing.F) {
	all, _ := dead(f)
	f.Add([]byte{}, uint16(0), uint16(1000), true)
	f.Add([]byte{0}, uint16(60), uint16(1), false)
	f.Add([]byte("\xffUB\x01"), uint16(200), uint16(0), true)
	f.Fuzz(func(t *testing.T, patch []byte, at, drop uint16, marked bool) {
		content := all[first]
		from := min(int(at), len(content))
		to := min(from+int(drop), len(content))
		damaged := with(all, first, slices.Concat(content[:from], patch, content[to:]))
		if !marked {
			damaged = without(damaged, "durable")
		}
		l, _, err := wal.Open(wal.Options{Folder: laid(t, damaged)})
		if err != nil {
			var damage *wal.DamageError
			if !errors.As(err, &damage) {
				t.Fatalf("got %v, want damage or nothing", err)
			}
			return
		}
		defer l.Close()
		lines, err := read(l, 0, 0)
		want := []string{"one", "two", "three", "four", "five"}
		if err != nil || len(lines) > len(want) || !slices.Equal(lines, want[:len(lines)]) || marked && len(lines) < 3 {
			t.Errorf("got lines %q, %v; want the first of %q", lines, err, want)
		}
	})
}

// FuzzRead puts any bytes in the place of the log. It never panics, and an opened log can be read and
// written.
func FuzzRead(f *testing.F) {
	all, _ := dead(f)
	f.Add(all[first])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		folder := t.TempDir()
		check.OK(t)(os.WriteFile(filepath.Join(folder, first), content, 0o600))
		l, _, err := wal.Open(wal.Options{Folder: folder})
		if err != nil {
			return
		}
		defer l.Close()
		before := check.Value(read(l, 0, 0))(t)
		commit(t, l, "after")
		check.Same(t, "lines after one more", check.Value(read(l, 0, 0))(t), append(before, "after"))
	})
}
