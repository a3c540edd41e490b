package evm

import (
	"context"
	"sync"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// recent keeps the receipts of the last blocks that were requested whole, by the block's hash, which
// fixes them. So the queries of ten submitters read a block once.
type recent struct {
	mu       sync.Mutex
	blocks   [recentBlocks]knownBlock
	next     int                              // where the next one is stored
	fetching map[txmanager.Hash]chan struct{} // closed once the query that fetches the block has its answer
}

// knownBlock is a block with all its receipts.
type knownBlock struct {
	hash     txmanager.Hash
	receipts map[txmanager.Hash]receipt
}

const (
	recentBlocks = 4
	recentBytes  = 8 << 20 // of one block's receipts; more are not kept
)

// of returns all receipts of that block by transaction; nil if they are not known.
func (k *recent) of(block txmanager.Hash) map[txmanager.Hash]receipt {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, b := range k.blocks {
		if b.hash == block {
			return b.receipts
		}
	}
	return nil
}

func (k *recent) keep(block txmanager.Hash, all []receipt) {
	byTx, size := make(map[txmanager.Hash]receipt, len(all)), 0
	for _, one := range all {
		byTx[one.tx] = one
		size += len(one.text)
	}
	if size > recentBytes {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.blocks[k.next] = knownBlock{block, byTx}
	k.next = (k.next + 1) % recentBlocks
}

// claim makes its caller fetch that block and call done afterwards. If done is nil, another query has
// fetched it meanwhile.
func (k *recent) claim(ctx context.Context, block txmanager.Hash) (done func()) {
	k.mu.Lock()
	asked, ok := k.fetching[block]
	if !ok {
		if k.fetching == nil {
			k.fetching = make(map[txmanager.Hash]chan struct{})
		}
		mine := make(chan struct{})
		k.fetching[block] = mine
		k.mu.Unlock()
		return sync.OnceFunc(func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			delete(k.fetching, block)
			close(mine)
		})
	}
	k.mu.Unlock()
	select {
	case <-asked:
	case <-ctx.Done():
	}
	return nil
}
