package devchain_test

import (
	"context"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/shared/chain/chaintest"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Each chain of these tests is closed, so a running goroutine is a leak. Exceptions are goroutines that
// go-ethereum starts once for the process, and one of its peer database that ends a second after the
// database.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/ethereum/go-ethereum/core.(*txSenderCacher).cache"),
		goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"))
}

type bundle struct {
	chain   *devchain.Chain
	client  *ethclient.Client
	account devchain.Account
}

func setup(t *testing.T, o devchain.Options) bundle {
	t.Helper()
	chain := check.Value(devchain.Start(t.Context(), o))(t)
	client := check.Value(ethclient.Dial(chain.URL()))(t)
	t.Cleanup(func() {
		client.Close()
		check.Err(t, "close", nil)(chain.Close())
	})
	return bundle{chain, client, devchain.DevAccounts(1)[0]}
}

func (b bundle) transfer(t *testing.T, nonce uint64) txmanager.Signed {
	t.Helper()
	return chaintest.Transfer(t, b.account.Key, b.chain.ChainID(), nonce, 1e9)
}

func (b bundle) send(t *testing.T, tx txmanager.Signed) error {
	t.Helper()
	return b.client.Client().CallContext(t.Context(), nil, "eth_sendRawTransaction", hexutil.Encode(tx.Raw))
}

func (b bundle) mine(t *testing.T, n int) {
	t.Helper()
	check.OK(t)(b.chain.Mine(n))
}

func (b bundle) counts(t *testing.T) [2]uint64 {
	t.Helper()
	latest := check.Value(b.client.NonceAt(t.Context(), common.Address(eip155.MustBytes(b.account.Address)), nil))(t)
	pending := check.Value(b.client.PendingNonceAt(t.Context(), common.Address(eip155.MustBytes(b.account.Address))))(t)
	return [2]uint64{latest, pending}
}

// 5,500 transactions of one account, more than a node's pool holds by default, are sent in batches of 1,000
// calls, wait, and are mined into two full blocks.
func TestManyPendingOfOneAccount(t *testing.T) {
	t.Parallel()
	b := setup(t, devchain.Options{})
	const n = 5500
	batch := make([]rpc.BatchElem, 0, n)
	for i := range uint64(n) {
		batch = append(batch, rpc.BatchElem{Method: "eth_sendRawTransaction",
			Args: []any{hexutil.Encode(b.transfer(t, i).Raw)}, Result: new(common.Hash)})
	}
	for start := 0; start < n; start += 1000 {
		part := batch[start:min(start+1000, n)]
		check.OK(t)(b.client.Client().BatchCallContext(t.Context(), part))
		for i, e := range part {
			if e.Error != nil {
				t.Fatalf("transaction %d: got %v, want nil", start+i, e.Error)
			}
		}
	}
	check.OK(t)(b.chain.SyncPool()) // it counts the last of them in the background
	check.Equal(t, "counts before a block", b.counts(t), [2]uint64{0, n})
	b.mine(t, 2)
	check.Equal(t, "counts after two blocks", b.counts(t), [2]uint64{n, n})
}

// With a block time blocks are made regularly, except while mining is stopped.
func TestBlockTimeMakesBlocks(t *testing.T) {
	t.Parallel()
	b := setup(t, devchain.Options{BlockTime: time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	check.OK(t)(b.chain.WaitBlock(ctx, b.chain.Head()+5))

	b.chain.StopMining()
	before := b.chain.Head()
	const mined = 30 // takes longer than many ticks
	for range mined {
		b.mine(t, 1)
	}
	if got, limit := b.chain.Head()-before, uint64(mined+1); got > limit { // one tick may have been under way
		t.Errorf("blocks while stopped: got %d, want at most %d", got, limit)
	}

	b.chain.StartMining()
	check.Err(t, "after the restart", nil)(b.chain.WaitBlock(ctx, b.chain.Head()+5))
}

// WaitBlock ends with its context.
func TestWaitBlockEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t, devchain.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.Err(t, "wait", context.Canceled)(b.chain.WaitBlock(ctx, 100))
}

// The head is safe. The last but one of every 32nd block is finalized, and never replaced.
func TestSafeAndFinalizedBlocks(t *testing.T) {
	t.Parallel()
	b := setup(t, devchain.Options{})
	b.mine(t, 71)
	check.Equal(t, "reorg of the finalized block: refused", b.chain.Reorg(41, nil) != nil, true)
	for tag, want := range map[rpc.BlockNumber]uint64{rpc.SafeBlockNumber: 72, rpc.FinalizedBlockNumber: 32} {
		header := check.Value(b.client.HeaderByNumber(t.Context(), big.NewInt(tag.Int64())))(t)
		check.Equal(t, tag.String()+" block", header.Number.Uint64(), want)
	}
}

// A chain has the given id, and refuses transactions signed for another.
func TestChainIDIsEnforced(t *testing.T) {
	t.Parallel()
	b := setup(t, devchain.Options{ChainID: 31_415})
	check.Equal(t, "chain id", check.Value(b.client.ChainID(t.Context()))(t).Uint64(), 31_415)
	other := setup(t, devchain.Options{})
	check.Equal(t, "transaction of another chain: refused", b.send(t, other.transfer(t, 0)) != nil, true)
}

// Close frees the port.
func TestCloseFreesThePort(t *testing.T) {
	t.Parallel()
	chain := check.Value(devchain.Start(t.Context(), devchain.Options{}))(t)
	at := check.Value(url.Parse(chain.URL()))(t)
	check.Err(t, "close", nil)(chain.Close())
	check.Err(t, "second close", nil)(chain.Close())
	if conn, err := net.Dial("tcp", at.Host); err == nil {
		t.Error("port after close: got a connection, want none")
		_ = conn.Close()
	}
}

// A start that fails leaves no node behind: TestMain finds what it leaves.
func TestStartAfterItsTimeIsAnError(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	check.Err(t, "start", context.Canceled)(devchain.Start(ended, devchain.Options{}))
}

// Development accounts are the same on every machine, so documents can name them.
func TestDevAccountsAreFixed(t *testing.T) {
	t.Parallel()
	got := fmt.Sprintf("%s %s", devchain.DevAccounts(2)[0].Address, devchain.DevAccounts(2)[1].Address)
	check.Equal(t, "accounts", got, "0xabed6bd9ec382975f0d1ba42f925c3edf46be6ad 0xe5468c84dfab6a96b53c70a1e4b1d0ed3dd6f039")
}

// After StopMining returns, no block follows that was under way.
func TestStopMiningLeavesNoBlockUnderWay(t *testing.T) {
	t.Parallel()
	c := check.Value(devchain.Start(t.Context(), devchain.Options{BlockTime: time.Millisecond}))(t)
	t.Cleanup(func() { _ = c.Close() })
	for n := range 100 {
		for range 1000 * n { // a little later each time, so that one is under way in some
			c.Head()
		}
		c.StopMining()
		before := c.Head()
		check.OK(t)(c.Mine(1))
		check.Equal(t, "head after the one block that was asked for", c.Head(), before+1)
		c.StartMining()
		check.OK(t)(c.WaitBlock(t.Context(), before+2))
	}
}
