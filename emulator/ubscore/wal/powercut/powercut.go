// Package powercut is a disk that forgets what was not synced: for tests of what is left
// after a power cut.
package powercut

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Disk is a [wal.Disk] that knows what of one folder is durable: the names as they were
// when the folder was synced last, and the content of each file as it was when that
// file was.
type Disk struct {
	Folder string

	mu      sync.Mutex
	names   map[string]uint64 // inodes
	content map[uint64][]byte // by inode
}

// Sync implements [wal.Disk].
func (d *Disk) Sync(f *os.File) error {
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

// SyncFolder implements [wal.Disk].
func (d *Disk) SyncFolder(folder string) error {
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
		if kept, ok := d.content[n]; ok { // the inode of a file that is gone may come again
			content[n] = kept
		}
	}
	d.names, d.content = names, content
	return nil
}

// Cut makes in another folder what a power cut would leave now. A file that was never
// synced is there, if its name is, and empty.
func (d *Disk) Cut(into string) error {
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
