package devchain

import (
	"cmp"
	"crypto/ecdsa"
	"encoding/binary"
	"fmt"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/eth"
	"github.com/ethereum/go-ethereum/eth/ethconfig"
	"github.com/ethereum/go-ethereum/eth/filters"
	"github.com/ethereum/go-ethereum/node"
	"github.com/ethereum/go-ethereum/p2p"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Limits of one HTTP request to the node. Its default number of calls (1,000) is kept. Its default sizes (5
// MB in, 25 MB out) are raised, so that a full batch of large transactions fits.
const (
	maxBatchCalls    = 1000
	maxRequestBytes  = 64 << 20
	maxResponseBytes = 128 << 20
)

// GasLimit is the gas limit of one block.
const GasLimit = 60_000_000

// maxAccountTxs is how many transactions of one account the pool holds.
const maxAccountTxs = 16_384

// seed derives every development key. The keys are public: they must hold value on development chains only.
const seed = "fencepost development account"

// Account is a key that the genesis block funds with 1,000,000 ether.
type Account struct {
	Key     *ecdsa.PrivateKey
	Address txmanager.Address
}

// DevAccounts derives the first n development accounts. They are the same on every machine and in every run.
func DevAccounts(n int) []Account {
	accounts := make([]Account, n)
	for i := range accounts {
		// Of 2^128 hashes one is not a key.
		key := crypto.ToECDSAUnsafe(crypto.Keccak256(binary.BigEndian.AppendUint64([]byte(seed), uint64(i))))
		accounts[i] = Account{key, eip155.Address(crypto.PubkeyToAddress(key.PublicKey))}
	}
	return accounts
}

// newNode returns a node without peers that keeps everything in memory.
func newNode(o Options) (*node.Node, *eth.Ethereum, error) {
	shell := node.DefaultConfig
	shell.DataDir = ""
	shell.P2P = p2p.Config{NoDiscovery: true, NoDial: true}
	stack, err := node.New(&shell)
	if err != nil {
		return nil, nil, err
	}
	backend, err := eth.New(stack, ethConfig(o))
	if err != nil {
		_ = stack.Close()
		return nil, nil, err
	}
	return stack, backend, nil
}

func ethConfig(o Options) *ethconfig.Config {
	c := ethconfig.Defaults
	c.Genesis = genesis(o)
	c.NetworkId = o.ChainID
	c.SyncMode = ethconfig.FullSync
	c.LogNoHistory = true
	c.Miner.GasCeil = GasLimit
	c.Miner.Recommit = time.Minute // a block takes all that fits, also on a slow machine
	c.TxPool.NoLocals, c.TxPool.Journal = true, ""
	c.TxPool.PriceBump = cmp.Or(o.PriceBump, c.TxPool.PriceBump)
	c.TxPool.AccountSlots, c.TxPool.GlobalSlots = maxAccountTxs, 8*maxAccountTxs
	c.TxPool.AccountQueue, c.TxPool.GlobalQueue = maxAccountTxs, 8*maxAccountTxs
	return &c
}

func genesis(o Options) *core.Genesis {
	config := *params.AllDevChainProtocolChanges
	config.ChainID = new(big.Int).SetUint64(o.ChainID)
	funds := new(big.Int).Mul(big.NewInt(1_000_000), big.NewInt(params.Ether))
	alloc := core.SystemContractAllocs()
	for _, a := range o.Accounts {
		alloc[common.Address(eip155.MustBytes(a.Address))] = types.Account{Balance: funds}
	}
	return &core.Genesis{Config: &config, GasLimit: GasLimit, Alloc: alloc}
}

// newAPI serves the API of a public node, and nothing that could change the chain without [Chain].
func newAPI(backend *eth.Ethereum) (*rpc.Server, error) {
	server := rpc.NewServer()
	server.SetBatchLimits(maxBatchCalls, maxResponseBytes)
	server.SetHTTPBodyLimit(maxRequestBytes)
	logs := filters.NewFilterAPI(filters.NewFilterSystem(backend.APIBackend, filters.Config{}))
	if err := server.RegisterName("eth", logs); err != nil {
		return nil, fmt.Errorf("serve eth_getLogs: %w", err)
	}
	for _, api := range backend.APIs() {
		switch api.Namespace {
		case "eth", "net", "txpool":
			if err := server.RegisterName(api.Namespace, api.Service); err != nil {
				return nil, fmt.Errorf("serve %s: %w", api.Namespace, err)
			}
		}
	}
	return server, nil
}
