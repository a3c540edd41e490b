package acceptance

import (
	"fmt"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// mined returns the nonces of s on its chain, in the chain's order.
func (b bench) mined(t *testing.T, s txmanager.Submitter) []uint64 {
	t.Helper()
	return b.allMined(t, s.ChainID())[s.Address()]
}

// transactions reads the transactions of a chain, in a turn those since its begin, from the chain itself, block by block.
func (b bench) transactions(t *testing.T, node *ethclient.Client) (all []*types.Transaction) {
	t.Helper()
	head := must(node.BlockNumber(b.ctx))(t)
	for n := b.block; n <= head; n++ {
		all = append(all, must(node.BlockByNumber(b.ctx, new(big.Int).SetUint64(n)))(t).Transactions()...)
	}
	return all
}

// allMined returns the nonces of each sender in the chain's order.
func (b bench) allMined(t *testing.T, chainID uint64) map[txmanager.Address][]uint64 {
	t.Helper()
	node := b.Node
	if b.Second != nil && chainID == b.Second.ChainID() {
		node = must(ethclient.DialContext(b.ctx, b.Second.URL()))(t)
		defer node.Close()
	}
	nonces := make(map[txmanager.Address][]uint64)
	for _, tx := range b.transactions(t, node) {
		from := eip155.Address(must(types.Sender(types.LatestSignerForChainID(tx.ChainId()), tx))(t))
		nonces[from] = append(nonces[from], tx.Nonce())
	}
	return nonces
}

// wantContiguous requires that the chain has exactly the nonces 0 … n-1 of s, each once and in order.
func (b bench) wantContiguous(t *testing.T, s txmanager.Submitter, n int) {
	t.Helper()
	b.wantAllContiguous(t, map[txmanager.Submitter]int{s: n})
}

func (b bench) wantAllContiguous(t *testing.T, counts map[txmanager.Submitter]int) {
	t.Helper()
	mined := make(map[uint64]map[txmanager.Address][]uint64) // by chain, each read once
	for s, n := range counts {
		if mined[s.ChainID()] == nil {
			mined[s.ChainID()] = b.allMined(t, s.ChainID())
		}
		var want []uint64
		for nonce := range uint64(n) {
			want = append(want, nonce)
		}
		same(t, fmt.Sprintf("nonces of %s on chain", s), mined[s.ChainID()][s.Address()], want)
	}
}
