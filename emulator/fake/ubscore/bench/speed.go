package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/transfer"
)

const (
	secret = "the benchmark's secret"
	asset  = 1
	users  = 1000
)

// fsyncs measures appends with an fsync per second.
func fsyncs(ctx context.Context, work string, each time.Duration) (float64, error) {
	f, err := os.Create(filepath.Join(work, "alone"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	record := make([]byte, 128)
	began, n := time.Now(), 0
	for ; time.Since(began) < each && ctx.Err() == nil; n++ {
		if _, err := f.Write(record); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(began).Seconds(), ctx.Err()
}

// speeds measures deposits and withdrawals in turn, the same for both ways.
func speeds(ctx context.Context, work string, each time.Duration) (all []speed, err error) {
	c, err := core.Open(core.Options{Folder: filepath.Join(work, "core")})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	binary, err := ubscore.Build(ctx, work)
	if err != nil {
		return nil, err
	}
	p, err := ubscore.Start(ctx, ubscore.Options{Binary: binary, Folder: filepath.Join(work, "process"), Secret: secret})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Stop(ctx)) }()
	l, err := trading.New(trading.Options{URL: "http://" + p.Addr(), Secret: secret})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	created := time.Now()
	_, err = c.Do(ctx, book.Request{Kind: book.AddAsset, ReqID: "asset", AssetID: asset, CreatedAt: book.MicrosOf(created)})
	if o := l.AddAsset(ctx, "asset", asset, 0, created); err != nil || o.Verdict != transfer.Success {
		return nil, fmt.Errorf("add the asset: %w, %+v", err, o)
	}
	for _, callers := range []int{1, 8, 32, 128, 512} {
		s := speed{Callers: callers}
		if s.Core, _, err = load(ctx, callers, each, func(r book.Request) error { _, err := c.Do(ctx, r); return err }); err != nil {
			return nil, err
		}
		var took []time.Duration
		if s.HTTP, took, err = load(ctx, callers, each, func(r book.Request) error { return ask(ctx, l, r) }); err != nil {
			return nil, err
		}
		s.P50, s.P99 = quantile(took, 0.5), quantile(took, 0.99)
		all = append(all, s)
	}
	return all, nil
}

func ask(ctx context.Context, l *trading.Ledger, r book.Request) error {
	call := transfer.Call{ReqID: r.ReqID, UserID: r.UserID, AssetID: r.AssetID, Units: r.Units, CreatedAt: r.CreatedAt.Time()}
	do := l.Withdraw
	if r.Kind == book.Deposit {
		do = l.Deposit
	}
	return do(ctx, call).Err
}

// load runs so many callers in a loop. It returns the operations answered per second and the
// latencies.
func load(ctx context.Context, callers int, each time.Duration, do func(book.Request) error) (perSecond float64, took []time.Duration, err error) {
	var mu sync.Mutex
	var group sync.WaitGroup
	began := time.Now()
	for caller := range callers {
		group.Go(func() {
			var mine []time.Duration
			var failed error
			for n := 0; failed == nil && time.Since(began) < each && ctx.Err() == nil; n++ {
				asked := time.Now()
				failed = do(request(began, caller, n))
				mine = append(mine, time.Since(asked))
			}
			mu.Lock()
			defer mu.Unlock()
			took, err = append(took, mine...), errors.Join(err, failed)
		})
	}
	group.Wait()
	return float64(len(took)) / time.Since(began).Seconds(), took, errors.Join(err, ctx.Err())
}

// request is a caller's n-th request: a deposit, then a withdrawal of the same amount.
func request(began time.Time, caller, n int) book.Request {
	kind := book.Deposit
	if n%2 == 1 {
		kind = book.Withdraw
	}
	return book.Request{
		Kind: kind, ReqID: fmt.Sprintf("%d-%d-%d", began.UnixNano(), caller, n), UserID: int64(caller%users + 1), AssetID: asset,
		Units: 1000, CreatedAt: book.MicrosOf(time.Now()),
	}
}

func quantile(took []time.Duration, q float64) (milliseconds float64) {
	slices.Sort(took)
	return float64(took[int(q*float64(len(took)-1))].Microseconds()) / 1000
}
