// Package powercut is a disk that forgets unsynced writes, for tests of the state after a power cut.
package powercut

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Disk is a [wal.Disk] that knows the durable state of one folder. It has the names at the folder's last sync,
// and the content of each file at the file's last sync.
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
		if kept, ok := d.content[n]; ok { // the inode of a removed file can be reused
			content[n] = kept
		}
	}
	d.names, d.content = names, content
	return nil
}

// Cut writes the state that a power cut would leave now into another folder. A file that was never
// synced is empty, if its name is durable.
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
