// Package cells runs several deployments on one machine: each with its own database, queues, functions and keys, on
// one chain. One front sends each request to the cell that the first part of its path names, as the load
// balancer of terraform/cells does.
package cells

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/loopback"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
)

// names are the names of cells, in order.
var names = []string{"a", "b", "c", "d"}

// MaxCells is the largest number of cells.
const MaxCells = 4

// Options describe the cells.
type Options struct {
	Cells   int           // from 2 to [MaxCells]
	Stack   stack.Options // of each cell, with Binary; Cluster, Beside and Signer are the cells' own
	Durable bool          // whether each database calls fsync
	Started func(c *Cell) // after the start of each cell; nil: nothing
}

// Cells is the running deployments. Make one with [Start]. Its Close stops everything.
type Cells struct {
	stack.Closers
	Chain *devchain.Chain

	front *loopback.Server
	list  []byte
	cells []*Cell
}

// Cell is one deployment.
type Cell struct {
	Name string
	*stack.Stack

	cluster           *pgcluster.Cluster
	dead              bool
	answers, failures atomic.Int64 // of the front
}

// Start starts the chain, the cells with different accounts, and the front. The caller ends it with [Cells.Close].
func Start(ctx context.Context, o Options) (_ *Cells, err error) {
	c := &Cells{}
	defer c.AfterFailure(&err)
	defer steps.Return(&err)
	if o.Cells < 2 || o.Cells > MaxCells {
		return nil, fmt.Errorf("%d cells: want 2 to %d", o.Cells, MaxCells)
	}
	n := o.Stack.Submitters
	c.Chain = steps.Value(devchain.Start(ctx, devchain.Options{BlockTime: o.Stack.BlockTime, Accounts: devchain.DevAccounts(o.Cells * n)}))
	c.OnClose(c.Chain.Close)
	tokens := steps.Value(stack.StartIssuer(0))
	c.OnClose(tokens.Close)
	for i := range o.Cells {
		cell := &Cell{Name: names[i]}
		one := o.Stack
		one.Signer, one.Beside = stack.SignerKMS, &stack.Beside{Chain: c.Chain, Issuer: tokens, First: i * n}
		steps.OK(c.startCell(ctx, cell, one, o.Durable), "start cell ", cell.Name)
		if o.Started != nil {
			o.Started(cell)
		}
	}
	c.startFront()
	c.list, err = c.render()
	return c, err
}

func (c *Cells) startCell(ctx context.Context, cell *Cell, o stack.Options, durable bool) (err error) {
	defer steps.Return(&err)
	cell.cluster = steps.Value(pgcluster.Start(ctx, pgcluster.Options{Fsync: durable}))
	c.OnClose(cell.cluster.Stop)
	o.Cluster = cell.cluster
	cell.Stack = steps.Value(stack.Start(ctx, o))
	c.OnClose(cell.Stack.Close)
	c.cells = append(c.cells, cell)
	return nil
}

// All returns the cells in the order of their names.
func (c *Cells) All() []*Cell { return c.cells }

// URL returns the URL of a cell at the front, without a slash at its end.
func (c *Cells) URL(cell *Cell) string { return c.front.URL() + Prefix + cell.Name }

// render returns the list of cells in the form of terraform/cells.
func (c *Cells) render() ([]byte, error) {
	type entry struct {
		URL      string   `json:"url"`
		Accounts []string `json:"accounts"`
	}
	list := make(map[string]entry)
	for _, cell := range c.cells {
		e := entry{URL: c.URL(cell)}
		for _, s := range cell.Submitters() {
			e.Accounts = append(e.Accounts, string(s))
		}
		list[cell.Name] = e
	}
	return json.Marshal(list)
}

// List is the list of cells as clients get it.
func (c *Cells) List() []byte { return c.list }

// ClientOf returns clients of all cells for the account. The cells take one token.
func (c *Cells) ClientOf(account string, within time.Duration) (*client.Cells, error) {
	tokens := c.cells[0].Issuer
	return client.NewCells(c.list, client.Options{Within: within, Token: func(ctx context.Context) (string, error) {
		return tokens.Token(ctx, account, stack.PublicAudience)
	}})
}

// Kill ends the cell for good: its database as a crash would, and every function process by SIGKILL. Its queues and
// its scheduler go on, as Google's do.
func (cell *Cell) Kill(ctx context.Context) error {
	cell.dead = true
	return errors.Join(cell.cluster.Halt(ctx, true), cell.KillProcesses())
}

// Dead reports whether the cell was killed.
func (cell *Cell) Dead() bool { return cell.dead }
