package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
)

// restarts measures how long a core takes to recover so many lines from the log and from a
// snapshot.
func restarts(ctx context.Context, work string, lines int) (all []restart, err error) {
	folder := filepath.Join(work, "restart")
	if err := fill(ctx, core.Options{Folder: folder, SnapshotEvery: 10 * lines}, lines); err != nil {
		return nil, err
	}
	log, err := reopen(folder, "the log", "wal-", lines)
	if err != nil {
		return nil, err
	}
	// One more operation makes it time for a snapshot.
	if err := fill(ctx, core.Options{Folder: folder, SnapshotEvery: 1}, 1); err != nil {
		return nil, err
	}
	snapshot, err := reopen(folder, "a snapshot", "snapshot-", lines)
	return []restart{log, snapshot}, err
}

// fill writes lines with enough concurrent callers to fill each commit.
func fill(ctx context.Context, o core.Options, lines int) error {
	c, err := core.Open(o)
	if err != nil {
		return err
	}
	const callers = 2000
	_, err = c.Do(ctx, book.Request{Kind: book.AddAsset, ReqID: "asset", AssetID: asset, CreatedAt: book.MicrosOf(time.Now())})
	if err != nil && !errors.Is(err, book.ErrContradiction) { // stored before
		return errors.Join(err, c.Close())
	}
	var group sync.WaitGroup
	began := time.Now()
	errs := make([]error, min(callers, lines))
	for caller := range errs {
		group.Go(func() {
			for n := caller; n < lines && errs[caller] == nil; n += callers {
				r := request(began, caller, 2*n)
				r.UserID = int64(n%100_000 + 1)
				_, errs[caller] = c.Do(ctx, r)
			}
		})
	}
	group.Wait()
	return errors.Join(append(errs, c.Close())...)
}

func reopen(folder, from, prefix string, lines int) (restart, error) {
	began := time.Now()
	c, err := core.Open(core.Options{Folder: folder, SnapshotEvery: 10 * lines})
	if err != nil {
		return restart{}, err
	}
	took := time.Since(began).Seconds()
	if h := c.Halted(); h != nil {
		return restart{}, h
	}
	r := restart{Lines: lines, From: from, Seconds: took, PerMeg: took * 1e6 / float64(lines)}
	files, err := os.ReadDir(folder)
	for _, f := range files {
		if info, e := f.Info(); e == nil && strings.HasPrefix(f.Name(), prefix) {
			r.Megabyte += float64(info.Size()) / 1e6
		}
	}
	if r.Megabyte == 0 {
		err = errors.Join(err, fmt.Errorf("no file %s… was read", prefix))
	}
	return r, errors.Join(err, c.Close())
}
