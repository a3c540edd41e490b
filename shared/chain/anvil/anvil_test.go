package anvil_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/chain/anvil"
	"github.com/fencepost/fencepost/shared/chain/chaintest"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
)

type bundle struct {
	*anvil.Chain
	client  *ethclient.Client
	account devchain.Account
}

func setup(t *testing.T) bundle {
	t.Helper()
	chain, err := anvil.Start(t.Context())
	if errors.Is(err, anvil.ErrNotThere) {
		t.Skip("Left out: ", err)
	}
	check.OK(t)(err)
	client := check.Value(ethclient.Dial(chain.URL()))(t)
	t.Cleanup(func() {
		client.Close()
		check.Err(t, "close, twice", nil)(errors.Join(chain.Close(), chain.Close()))
	})
	return bundle{chain, client, devchain.DevAccounts(1)[0]}
}

// send signs a transfer with this nonce and sends it.
func (b bundle) send(t *testing.T, n uint64) (common.Hash, []byte) {
	t.Helper()
	tx := chaintest.Transfer(t, b.account.Key, b.ChainID(), n, 1e9)
	check.OK(t)(b.client.Client().CallContext(t.Context(), nil, "eth_sendRawTransaction", hexutil.Encode(tx.Raw)))
	return common.Hash(tx.Hash), tx.Raw
}

func (b bundle) mine(t *testing.T, n int) {
	t.Helper()
	check.OK(t)(b.Mine(n))
}

// block returns the latest block in the node's own format.
func (b bundle) block(t *testing.T) (block struct {
	Hash         string
	Transactions []common.Hash
}) {
	t.Helper()
	var raw json.RawMessage
	check.OK(t)(b.client.Client().CallContext(t.Context(), &raw, "eth_getBlockByNumber", "latest", false))
	check.OK(t)(json.Unmarshal(raw, &block))
	return block
}

// wantHead requires the latest block to have this number and these transactions.
func (b bundle) wantHead(t *testing.T, when string, number uint64, txs ...common.Hash) {
	t.Helper()
	check.Equal(t, when+": head", check.Value(b.client.BlockNumber(t.Context()))(t), number)
	if got := b.block(t).Transactions; len(got) != len(txs) || len(txs) > 0 && got[0] != txs[0] {
		t.Errorf("%s: the head has %v, want %v", when, got, txs)
	}
}

// known reports whether the node has the transaction, pending or mined.
func (b bundle) known(t *testing.T, hash common.Hash) bool {
	t.Helper()
	_, _, err := b.client.TransactionByHash(t.Context(), hash)
	return err == nil
}

// The chain's id and the accounts are devchain's, with its balance. Blocks are made by Mine only and hold the
// pending transactions.
func TestStartFundsTheAccounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	check.Equal(t, "chain id", b.ChainID(), devchain.DefaultChainID)
	check.Equal(t, "the node's chain id", check.Value(b.client.ChainID(t.Context()))(t).Uint64(), devchain.DefaultChainID)
	for i, a := range devchain.DevAccounts(10) {
		balance := check.Value(b.client.BalanceAt(t.Context(), common.Address(eip155.MustBytes(a.Address)), nil))(t)
		check.Equal(t, fmt.Sprintf("balance of account %d", i), balance.String(), "1000000"+strings.Repeat("0", 18))
	}
	hash, _ := b.send(t, 0)
	b.wantHead(t, "before", 0)
	b.mine(t, 1)
	b.wantHead(t, "after", 1, hash)
	b.mine(t, 3)
	b.wantHead(t, "three more", 4)
}

// A transaction that a reorg removes is gone. The given ones are in the new blocks.
func TestReorgRemovesAndAddsTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hash, raw := b.send(t, 0)
	b.mine(t, 2)
	check.OK(t)(b.Reorg(nil, nil))
	b.wantHead(t, "removed", 2)
	check.Equal(t, "removed: known", b.known(t, hash), false)
	check.OK(t)(b.Reorg(nil, [][]byte{raw}))
	b.wantHead(t, "given to the second block", 2, hash)

	later, laterRaw := b.send(t, 1)
	check.Equal(t, "a transaction that is not valid there is refused", b.Reorg([][]byte{laterRaw}) != nil, true)
	b.wantHead(t, "a transaction that is not valid there", 2)
	check.Equal(t, "pending during a reorg: known", b.known(t, later), true)
	check.Equal(t, "more blocks than there are: refused", b.Reorg(nil, nil, nil) != nil, true)
	check.Equal(t, "no block: refused", b.Reorg() != nil, true)
}

// An empty block that replaces an empty block has another hash, though time, base fee and parent are the
// same.
func TestReorgMakesAnotherBlock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hashes := map[string]bool{}
	const n = 20
	b.mine(t, 1)
	for range n {
		check.OK(t)(b.client.Client().CallContext(t.Context(), nil, "anvil_setNextBlockBaseFeePerGas", "0x7"))
		check.OK(t)(b.Reorg(nil))
		hashes[b.block(t).Hash] = true
	}
	check.Equal(t, "different blocks", len(hashes), n)
}

func TestDroppedTransactionsAreUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hash, _ := b.send(t, 0)
	check.OK(t)(b.DropPool())
	check.Equal(t, "pool dropped: known", b.known(t, hash), false)
	b.mine(t, 1)
	b.wantHead(t, "pool dropped", 1)
}

// After Close the port is free, and no call hangs.
func TestClosedNodeFreesItsPort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	check.OK(t)(b.Close())
	client := check.Value(rpc.DialContext(t.Context(), b.URL()))(t)
	defer client.Close()
	check.Equal(t, "a call after close fails", client.CallContext(t.Context(), nil, "eth_blockNumber") != nil, true)
	check.Equal(t, "mine after close fails", b.Mine(1) != nil, true)
}
