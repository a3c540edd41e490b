package acceptance

import (
	"math/big"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/shared/nonce"
)

// mined reads from the chain itself, block by block, the nonces of s in the
// chain's order.
func (b bench) mined(t *testing.T, s nonce.Submitter) []uint64 {
	t.Helper()
	client, err := ethclient.DialContext(b.ctx, b.Chain.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	signer := types.LatestSignerForChainID(new(big.Int).SetUint64(b.Chain.ChainID()))
	var nonces []uint64
	for n := range b.Chain.Head() + 1 {
		block, err := client.BlockByNumber(b.ctx, new(big.Int).SetUint64(n))
		if err != nil {
			t.Fatal(err)
		}
		for _, tx := range block.Transactions() {
			from, err := types.Sender(signer, tx)
			if err != nil {
				t.Fatal(err)
			}
			if nonce.Address(from) == s.Address() {
				nonces = append(nonces, tx.Nonce())
			}
		}
	}
	return nonces
}

// wantContiguous says that the chain has exactly the nonces 0 … n-1 of s, each
// once and in order.
func (b bench) wantContiguous(t *testing.T, s nonce.Submitter, n int) {
	t.Helper()
	want := make([]uint64, n)
	for i := range want {
		want[i] = uint64(i)
	}
	if got := b.mined(t, s); !slices.Equal(got, want) {
		t.Errorf("nonces of %s on chain: got %v, want 0 to %d, each once", s, got, n-1)
	}
}
