package core

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal"
)

const (
	snapshotFirst = "snapshot-"
	snapshotLast  = ".img"
	unfinished    = "snapshot.tmp"
	keptSnapshots = 2 // the newest, and one to fall back to
)

func snapshotName(seq uint64) string {
	return fmt.Sprintf("%s%020d%s", snapshotFirst, seq, snapshotLast)
}

// snapshotNames returns the folder's snapshots, newest first.
func snapshotNames(folder string) ([]string, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range slices.Backward(files) {
		if strings.HasPrefix(f.Name(), snapshotFirst) && strings.HasSuffix(f.Name(), snapshotLast) {
			names = append(names, f.Name())
		}
	}
	return names, nil
}

// recover loads the newest complete snapshot and applies the later lines.
func (c *Core) recover() error {
	began := time.Now()
	log, torn, err := wal.Open(wal.Options{Folder: c.options.Folder, SegmentBytes: c.options.SegmentBytes, Disk: c.options.Disk})
	if err != nil {
		return err
	}
	c.wal = log
	if torn > 0 {
		c.log.Warn("a torn record was cut off the log's end", "bytes", torn, "lastLine", log.Last())
	}
	if c.book, err = c.load(); err != nil {
		return err
	}
	c.snapshot = c.book.Seq()
	if c.snapshot > log.Last() {
		return fmt.Errorf("%w: the newest is of line %d, and the log ends with line %d", errSnapshot, c.snapshot, log.Last())
	}
	err = log.Read(c.snapshot, 0, func(seq uint64, line []byte) error {
		e, err := book.Parse(seq, line)
		if err == nil {
			err = c.book.Apply(e)
		}
		return unreadable(seq, err)
	})
	if err != nil {
		return err
	}
	c.clock = newClock(c.options, c.book.Newest())
	c.log.Info("recovered", "snapshot", c.snapshot, "lastLine", c.book.Seq(), "keys", c.book.Answered(), "milliseconds", time.Since(began).Milliseconds())
	return nil
}

// load returns the book of the newest complete snapshot, or the empty book without any snapshot.
func (c *Core) load() (*book.Book, error) {
	names, err := snapshotNames(c.options.Folder)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return book.New(), nil
	}
	var bad []error
	for _, name := range names {
		b, err := loadFile(c.options.Folder, name)
		if err == nil {
			return b, nil
		}
		c.log.Warn("a snapshot is damaged", "file", name, "error", err.Error())
		bad = append(bad, err)
	}
	return nil, fmt.Errorf("%w: %w", errSnapshot, errors.Join(bad...))
}

func loadFile(folder, name string) (*book.Book, error) {
	image, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		return nil, err
	}
	b, err := book.Read(image)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case snapshotName(b.Seq()) != name:
		return nil, fmt.Errorf("%s: it is of line %d", name, b.Seq())
	}
	return b, nil
}

// maybeSnapshot begins a snapshot when one is due, and lets the book forget keys beyond the horizon.
func (c *Core) maybeSnapshot() {
	if c.writing || c.Halted() != nil || c.book.Seq() < c.snapshot+uint64(c.options.SnapshotEvery) {
		return
	}
	floor := c.clock.safeTime(c.book.Newest()) - microsIn(c.options.Horizon+c.options.Horizon/forgetAfter)
	if c.book.Outdated(floor) {
		c.lines = c.lines[:0]
		c.apply(c.book.FloorEntry(floor, c.clock.read()))
		if c.commit(); c.Halted() != nil {
			return
		}
	}
	image := c.book.Image()
	c.snapshot, c.writing = image.Seq(), true
	go func() {
		if err := writeSnapshot(c.options.Disk, c.options.Folder, image); err != nil {
			c.log.Error("no snapshot was written: the next start takes longer", "error", err.Error())
		}
		c.snapshots <- struct{}{}
	}()
}

// writeSnapshot writes the image under its name atomically, and removes the snapshots that are too
// old to fall back to.
func writeSnapshot(disk wal.Disk, folder string, image *book.Image) error {
	temporary := filepath.Join(folder, unfinished)
	f, err := os.Create(temporary)
	if err != nil {
		return err
	}
	err = image.Write(f)
	if err == nil {
		err = disk.Sync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(folder, snapshotName(image.Seq()))); err != nil {
		return err
	}
	if err := disk.SyncFolder(folder); err != nil {
		return err
	}
	names, err := snapshotNames(folder)
	for _, name := range names[min(keptSnapshots, len(names)):] {
		if e := os.Remove(filepath.Join(folder, name)); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
