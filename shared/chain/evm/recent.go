package evm

import (
	"context"
	"sync"

	"github.com/ethereum/go-ethereum/common/lru"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// recent keeps the receipts of the last blocks that were requested whole, by the block's hash, which
// fixes them. So the queries of ten submitters read a block once.
type recent struct {
	blocks   *lru.Cache[txmanager.Hash, map[txmanager.Hash]receipt] // all receipts of a block, by transaction
	fetching sync.Map                                               // a channel by the hash of a block; closed once the query that fetches it has its answer
}

const (
	recentBlocks = 4
	recentBytes  = 8 << 20 // of one block's receipts; more are not kept
)

func newRecent() *recent {
	return &recent{blocks: lru.NewCache[txmanager.Hash, map[txmanager.Hash]receipt](recentBlocks)}
}

func (k *recent) keep(block txmanager.Hash, all []receipt) {
	byTx, size := make(map[txmanager.Hash]receipt, len(all)), 0
	for _, one := range all {
		byTx[one.tx] = one
		size += len(one.text)
	}
	if size <= recentBytes {
		k.blocks.Add(block, byTx)
	}
}

// claim makes its caller fetch that block and call done afterwards. If done is nil, another query has
// fetched it meanwhile.
func (k *recent) claim(ctx context.Context, block txmanager.Hash) (done func()) {
	found, others := k.fetching.LoadOrStore(block, make(chan struct{}))
	fetched := found.(chan struct{})
	if !others {
		return sync.OnceFunc(func() {
			k.fetching.Delete(block)
			close(fetched)
		})
	}
	select {
	case <-fetched:
	case <-ctx.Done():
	}
	return nil
}
