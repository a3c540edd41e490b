package anvil_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
	"go.uber.org/goleak"

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
	check.OK(t)(b.client.Client().CallContext(t.Context(), &block, "eth_getBlockByNumber", "latest", false))
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

// parent makes this test binary a process that has a node and waits to be killed.
const parent = "ANVIL_TEST_PARENT"

// Each node of these tests is closed, so a running goroutine is a leak.
func TestMain(m *testing.M) {
	if os.Getenv(parent) != "" {
		fmt.Println(beParent())
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// beParent prints its node's address. It returns only on failure.
func beParent() error {
	chain, err := anvil.Start(context.Background())
	if err != nil {
		return err
	}
	fmt.Println(chain.URL())
	_, err = os.Stdin.Read(make([]byte, 1)) // the test never writes
	return fmt.Errorf("not killed: %v, %v", err, chain.Close())
}

// A process that is killed leaves no node behind.
func TestNodeDiesWithItsParent(t *testing.T) {
	t.Parallel()
	_ = setup(t) // skips if there is no anvil
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), parent+"=1", "TMPDIR="+t.TempDir())
	stdin := check.Value(cmd.StdinPipe())(t)
	defer stdin.Close()
	out := check.Value(cmd.StdoutPipe())(t)
	check.OK(t)(cmd.Start())
	said, _ := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(said), "http://")
	if !ok || !listens(address) {
		t.Errorf("the parent says %q, want the address of its node", said)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	deadline, again := time.After(2*time.Minute), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for listens(address) {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatal("the node outlives its parent")
		}
	}
}

// Neither a closed chain nor a start that timed out leaves files behind, here or in the home folder. The test
// does not run in parallel, because it sets the folders for all.
func TestLeavesNoFiles(t *testing.T) {
	_ = setup(t) // skips if there is no anvil
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	t.Setenv("HOME", folder)
	chain := check.Value(anvil.Start(t.Context()))(t)
	check.OK(t)(errors.Join(chain.Mine(1), chain.Reorg(nil), chain.Close()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := anvil.Start(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, anvil.ErrNotThere) {
		t.Errorf("start without time: got %v, want the context's error", err)
	}
	check.Equal(t, "files left", len(check.Value(os.ReadDir(folder))(t)), 0)
}

func listens(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}
