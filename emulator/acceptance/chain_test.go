package acceptance

import (
	"math/big"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// mined returns the nonces of s on its chain, in the chain's order.
func (b bench) mined(t *testing.T, s txmanager.Submitter) []uint64 {
	t.Helper()
	return b.allMined(t, s.ChainID())[s.Address()]
}

// chainOf returns the chain with that id.
func (b bench) chainOf(id uint64) *devchain.Chain {
	if b.Second != nil && id == b.Second.ChainID() {
		return b.Second
	}
	return b.Chain
}

// allMined reads from the chain itself, block by block, the nonces of each sender in
// the chain's order.
func (b bench) allMined(t *testing.T, chainID uint64) map[txmanager.Address][]uint64 {
	t.Helper()
	chain := b.chainOf(chainID)
	client, err := ethclient.DialContext(b.ctx, chain.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	signer := types.LatestSignerForChainID(new(big.Int).SetUint64(chain.ChainID()))
	nonces := make(map[txmanager.Address][]uint64)
	for n := range chain.Head() + 1 {
		block, err := client.BlockByNumber(b.ctx, new(big.Int).SetUint64(n))
		if err != nil {
			t.Fatal(err)
		}
		for _, tx := range block.Transactions() {
			from, err := types.Sender(signer, tx)
			if err != nil {
				t.Fatal(err)
			}
			nonces[eip155.Address(from)] = append(nonces[eip155.Address(from)], tx.Nonce())
		}
	}
	return nonces
}

// wantContiguous requires that the chain has exactly the nonces 0 … n-1 of s, each once and in order.
func (b bench) wantContiguous(t *testing.T, s txmanager.Submitter, n int) {
	t.Helper()
	b.wantAllContiguous(t, map[txmanager.Submitter]int{s: n})
}

// wantAllContiguous requires this for each submitter.
func (b bench) wantAllContiguous(t *testing.T, counts map[txmanager.Submitter]int) {
	t.Helper()
	mined := make(map[uint64]map[txmanager.Address][]uint64) // by chain, each read once
	for s, n := range counts {
		if mined[s.ChainID()] == nil {
			mined[s.ChainID()] = b.allMined(t, s.ChainID())
		}
		want := make([]uint64, n)
		for i := range want {
			want[i] = uint64(i)
		}
		if got := mined[s.ChainID()][s.Address()]; !slices.Equal(got, want) {
			t.Errorf("nonces of %s on chain: got %v, want 0 to %d, each once", s, got, n-1)
		}
	}
}
