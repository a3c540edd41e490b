// Package anvil runs foundry's development node anvil as a child process, for tests: a second node,
// independent of go-ethereum, with its own pool and its own error texts. What package devchain does inside
// the process, this package does by anvil's own RPC calls. The methods document the differences between the
// two nodes.
//
// The program is the one in PATH, else that of package-lock.json, which scripts/test installs. If neither is
// there, [Start] returns [ErrNotThere] and tests must skip with its text.
package anvil

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
)

// Chain is a running node of a chain with the id and the ten accounts of devchain. Its blocks are made by
// Mine only. The methods can be called concurrently.
type Chain struct {
	url    string
	node   *child
	client *rpc.Client
	folder string // the node's own files

	mining sync.Mutex // serializes changes of the chain
}

// ErrNotThere reports that this machine has no anvil. The wrapping error says where it was searched, and how to
// install it.
var ErrNotThere = errors.New("anvil is not there")

// program returns the path of the program in PATH, or of the installed one. Tests run in the folder of their
// package: this one, or one beside it.
func program() (string, error) {
	if path, err := exec.LookPath("anvil"); err == nil {
		return path, nil
	}
	path, err := exec.LookPath("../anvil/node_modules/@foundry-rs/anvil-" + runtime.GOOS + "-" + runtime.GOARCH + "/bin/anvil")
	if err != nil {
		return "", fmt.Errorf("%w: %w. Run: source scripts/lib/node.sh && ensure_anvil", ErrNotThere, err)
	}
	return path, nil
}

// Start runs a node on a free port of the loopback interface until [Chain.Close], and returns when it
// answers. ctx bounds the node's start only. If there is no program, the error is [ErrNotThere].
func Start(ctx context.Context) (*Chain, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "fencepost-anvil-")
	if err != nil {
		return nil, fmt.Errorf("start anvil: %w", err)
	}
	c := &Chain{folder: folder}
	if err := c.start(ctx, path); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("start anvil, %s: %w", path, err)
	}
	return c, nil
}

func (c *Chain) start(ctx context.Context, path string) error {
	genesis, err := json.Marshal(newGenesis())
	if err != nil {
		return err
	}
	file := filepath.Join(c.folder, "genesis.json")
	if err := os.WriteFile(file, genesis, 0o600); err != nil {
		return err
	}
	if c.node, err = startChild(ctx, path, args(file, c.folder)); err != nil {
		return err
	}
	c.url = "http://" + c.node.address
	c.client, err = rpc.DialContext(ctx, c.url)
	return err
}

func args(genesis, folder string) []string {
	return []string{
		"--port", "0", "--color", "never", "--threads", "1", "--no-mining",
		"--chain-id", strconv.Itoa(devchain.DefaultChainID), "--init", genesis, "--accounts", "0",
		"--gas-limit", strconv.Itoa(devchain.GasLimit),
		"--cache-path", folder, // otherwise anvil leaves folders in ~/.foundry
		"--no-request-size-limit", // otherwise 2 MB, less than a full batch
	}
}

// newGenesis has the present time: anvil would otherwise count its clock from 1970.
func newGenesis() *core.Genesis {
	funds := new(big.Int).Mul(big.NewInt(1_000_000), big.NewInt(params.Ether))
	alloc := types.GenesisAlloc{}
	for _, a := range devchain.DevAccounts(10) {
		alloc[common.Address(eip155.MustBytes(a.Address))] = types.Account{Balance: funds}
	}
	return &core.Genesis{
		Config:    &params.ChainConfig{ChainID: big.NewInt(devchain.DefaultChainID)},
		Timestamp: uint64(time.Now().Unix()), GasLimit: devchain.GasLimit,
		BaseFee: big.NewInt(params.InitialBaseFee), Difficulty: new(big.Int), Alloc: alloc,
	}
}

// URL returns the node's JSON-RPC address over HTTP.
func (c *Chain) URL() string { return c.url }

// ChainID returns the chain's EIP-155 id.
func (c *Chain) ChainID() uint64 { return devchain.DefaultChainID }

// Close ends the node and removes its files. The chain is gone. A second Close has no effect.
func (c *Chain) Close() error {
	if c.client != nil {
		c.client.Close()
	}
	if c.node != nil {
		c.node.stop()
	}
	return os.RemoveAll(c.folder)
}
