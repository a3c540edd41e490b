package ubscore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

// BenchmarkDisk appends 128 bytes with an fsync each.
func BenchmarkDisk(b *testing.B) {
	f := check.Value(os.Create(filepath.Join(b.TempDir(), "alone")))(b)
	defer f.Close()
	for b.Loop() {
		check.OK(b)(f.Write(make([]byte, 128)))
		check.OK(b)(f.Sync())
	}
}

// BenchmarkCore makes durable deposits and withdrawals in turn, without HTTP.
func BenchmarkCore(b *testing.B) {
	c := openCore(b, core.Options{Folder: b.TempDir()})
	defer c.Close()
	byCallers(b, func(r book.Request) error { _, err := c.Do(b.Context(), r); return err })
}

// BenchmarkHTTP makes the same operations over HTTP to another process.
func BenchmarkHTTP(b *testing.B) {
	r := setup(b, ubscore.Options{})
	if o := r.AddAsset(b.Context(), "asset", 1, 0, time.Now()); o.Verdict != transfer.Success {
		b.Fatalf("add the asset: %+v", o)
	}
	byCallers(b, func(q book.Request) error {
		do := r.Withdraw
		if q.Kind == book.Deposit {
			do = r.Deposit
		}
		return do(b.Context(), transfer.Call{ReqID: q.ReqID, UserID: q.UserID, AssetID: q.AssetID, Units: q.Units, CreatedAt: q.CreatedAt.Time()}).Err
	})
}

// BenchmarkRestart recovers a million lines from the log, and then from a snapshot.
func BenchmarkRestart(b *testing.B) {
	const lines = 1_000_000
	folder := b.TempDir()
	for _, from := range []string{"wal", "snapshot"} {
		n, every := lines, 10*lines
		if from == "snapshot" {
			n, every = 1, 1 // one more operation makes it time for a snapshot
		}
		c := openCore(b, core.Options{Folder: folder, SnapshotEvery: every})
		run(b, 2000, n, func(r book.Request) error { _, err := c.Do(context.Background(), r); return err })
		check.OK(b)(c.Close())
		b.Run(from, func(b *testing.B) {
			for b.Loop() {
				c, err := core.Open(core.Options{Folder: folder, SnapshotEvery: 10 * lines})
				if err != nil || c.Halted() != nil {
					b.Fatal(err, c)
				}
				_ = c.Close()
			}
			files, _ := os.ReadDir(folder)
			for _, f := range files {
				if info, err := f.Info(); err == nil && strings.HasPrefix(f.Name(), from+"-") {
					b.ReportMetric(float64(info.Size())/1e6, "MB")
				}
			}
		})
	}
}

func openCore(b *testing.B, o core.Options) *core.Core {
	c := check.Value(core.Open(o))(b)
	_, _ = c.Do(b.Context(), book.Request{Kind: book.AddAsset, ReqID: "asset", AssetID: 1, CreatedAt: book.MicrosOf(time.Now())}) // it can be there
	return c
}

func byCallers(b *testing.B, do func(book.Request) error) {
	for _, callers := range []int{1, 8, 32, 128, 512} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			took := run(b, callers, b.N, do)
			slices.Sort(took)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "operations/s")
			b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
			b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
		})
	}
}

// run makes n operations. Each caller makes its next one when it has its answer. It returns the
// latencies.
func run(b *testing.B, callers, n int, do func(book.Request) error) []time.Duration {
	took := make([]time.Duration, n)
	var next atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for range callers {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				asked := time.Now()
				if err := do(request(began, i)); err != nil {
					b.Error(err)
				}
				took[i] = time.Since(asked)
			}
		})
	}
	group.Wait()
	return took
}

// request is the i-th request: half are deposits, and a user withdraws less than it deposited.
func request(began time.Time, i int) book.Request {
	kind, units := book.Deposit, uint64(1000)
	if i/1000%2 == 1 {
		kind, units = book.Withdraw, 1
	}
	return book.Request{
		Kind: kind, ReqID: fmt.Sprintf("%d-%d", began.UnixNano(), i), UserID: int64(i%1000 + 1), AssetID: 1,
		Units: units, CreatedAt: book.MicrosOf(time.Now()),
	}
}
