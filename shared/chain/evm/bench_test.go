package evm_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// BenchmarkQuery queries a window of 2,000 transactions on a go-ethereum node in this process. It
// measures the node and the connector together.
func BenchmarkQuery(b *testing.B) {
	const window = 2_000
	for name, mined := range map[string]int{"Pending": 0, "Mined20": 20, "MinedHalf": window / 2, "MinedAll": window} {
		b.Run(name, func(b *testing.B) {
			chain := check.Value(devchain.Start(b.Context(), devchain.Options{Accounts: devchain.DevAccounts(1)}))(b)
			defer chain.Close()
			var trips atomic.Int64
			c, err := evm.New(evm.Options{URL: chain.URL(), ChainID: chain.ChainID(), MaxBatch: 100,
				OnRoundTrip: func(context.Context) func(error) { trips.Add(1); return func(error) {} }})
			check.OK(b)(err)
			defer c.Close()
			raws, q := windowOf(b, chain, window)
			check.OK(b)(chain.MineExactly(raws[:mined]...))
			for _, r := range c.Send(b.Context(), raws[mined:]) {
				if r.Class != txmanager.SendAccepted {
					b.Fatalf("send: got %+v", r)
				}
			}
			trips.Store(0)
			b.ReportAllocs()
			for b.Loop() {
				v := check.Value(c.Query(b.Context(), q))(b)
				if got := found(b, v); got != mined || len(v.Receipts) != window {
					b.Fatalf("receipts: got %d of %d, want %d of %d", got, len(v.Receipts), mined, window)
				}
			}
			b.ReportMetric(float64(trips.Load())/float64(b.N), "trips/op")
		})
	}
}
