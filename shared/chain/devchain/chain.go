// Package devchain runs a real go-ethereum node inside the process and serves it over JSON-RPC HTTP, for
// tests and the emulator. Nothing is imitated: transaction pool, state and error texts are go-ethereum's own.
// Only the consensus is replaced, by the methods of [Chain] that define the next block.
//
// Blocks are built by the miner's own builder and inserted without an engine API. One code path makes all
// blocks, so that their timestamps increase: go-ethereum silently drops a block that is not later than its
// parent.
package devchain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/eth"
	"github.com/ethereum/go-ethereum/node"
)

// DefaultChainID is the EIP-155 id of a chain whose options have none.
const DefaultChainID = 1337

// Options define the chain to run. The zero value is a chain of id 1337 with ten funded accounts on a free
// port of the loopback interface, whose blocks are made by Mine only.
type Options struct {
	ChainID   uint64        // EIP-155; 0 is [DefaultChainID]
	BlockTime time.Duration // a block each BlockTime; 0: only by Mine
	Accounts  []Account     // funded at genesis; nil is DevAccounts(10)
	PriceBump uint64        // the pool's minimum increase for a replacement, in percent; 0 is go-ethereum's 10
	Unindexed bool          // no block 1: until the first Mine the node has no transaction index and says so
}

// Chain is a running node. Its methods can be called concurrently.
type Chain struct {
	id     uint64
	node   *node.Node
	eth    *eth.Ethereum
	server *http.Server
	url    string

	mining sync.Mutex // serializes the making of blocks
	paused bool       // BlockTime makes no blocks; guarded by mining
	stop   context.CancelFunc
	loops  sync.WaitGroup
	closed sync.Once
}

// Start runs a node until [Chain.Close] and returns when it answers. ctx bounds the start only. Unless
// Options.Unindexed is set, block 1 is mined at once: before it the node answers "transaction indexing is in
// progress" to every receipt request.
func Start(ctx context.Context, o Options) (*Chain, error) {
	o.ChainID = cmp.Or(o.ChainID, DefaultChainID)
	if o.Accounts == nil {
		o.Accounts = DevAccounts(10)
	}
	stack, backend, err := newNode(o)
	if err != nil {
		return nil, fmt.Errorf("start development chain %d: %w", o.ChainID, err)
	}
	c := &Chain{id: o.ChainID, node: stack, eth: backend, stop: func() {}}
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start development chain %d: %w", o.ChainID, err), c.Close())
	}
	return c, nil
}

func (c *Chain) start(ctx context.Context, o Options) error {
	if err := c.node.Start(); err != nil {
		return err
	}
	c.eth.SetSynced()
	if !o.Unindexed {
		if err := errors.Join(c.Mine(1), c.waitIndexed(ctx)); err != nil {
			return err
		}
	}
	if err := cmp.Or(ctx.Err(), c.serve(ctx)); err != nil {
		return err
	}
	if o.BlockTime > 0 {
		ticking, stop := context.WithCancel(context.Background())
		c.stop = stop
		c.loops.Go(func() { c.tick(ticking, o.BlockTime) })
	}
	return nil
}

// waitIndexed waits until the node can answer "not found". The node has no event for that, so it polls.
func (c *Chain) waitIndexed(ctx context.Context) error {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !c.eth.BlockChain().TxIndexDone() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the transaction index: %w", ctx.Err())
		case <-again.C:
		}
	}
	return nil
}

func (c *Chain) serve(ctx context.Context) error {
	api, err := newAPI(c.eth)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c.url = "http://" + listener.Addr().String()
	c.server = &http.Server{Handler: api, ReadHeaderTimeout: 10 * time.Second}
	c.loops.Go(func() { _ = c.server.Serve(listener) }) // ends with ErrServerClosed, in Close
	return nil
}

// URL returns the node's JSON-RPC address over HTTP.
func (c *Chain) URL() string { return c.url }

// ChainID returns the chain's EIP-155 id.
func (c *Chain) ChainID() uint64 { return c.id }

// Close ends the node and frees its port, memory and files. The chain is gone. A second Close has no effect.
func (c *Chain) Close() (err error) {
	c.closed.Do(func() {
		c.stop()
		if c.server != nil {
			err = c.server.Close()
		}
		c.loops.Wait()
		err = errors.Join(err, c.node.Close())
	})
	return err
}
