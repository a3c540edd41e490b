package wal

import (
	"errors"
	"os"
)

// Disk makes writes durable. A power cut removes every other write.
type Disk interface {
	Sync(f *os.File) error          // the content of a file
	SyncFolder(folder string) error // the names in a folder
}

// System is the operating system's [Disk].
type System struct{}

func (System) Sync(f *os.File) error { return f.Sync() }

func (System) SyncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
