package functions

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/nodes"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// servedChain is a chain that the deployment serves, by its terms.
type servedChain struct {
	config.ServedChain
	connector // nil in a function that queries no node

	nodes  *nodes.Connector // nil: it has one node
	worker *txmanager.Worker
}

// connector is a chain by one node, or by several.
type connector interface {
	txmanager.ChainConnector
	Balances(ctx context.Context, of []txmanager.Submitter) ([]*big.Int, error)
	Transaction(ctx context.Context, hash txmanager.Hash) (evm.Transaction, error)
	Payments(ctx context.Context, q evm.PaymentsQuery) (evm.Payments, error)
	PaymentsStart(ctx context.Context, q evm.PaymentsQuery, before time.Time) (evm.PaymentsStart, error)
	Close()
}

// queriesNodes is false for the functions whose code queries no node. A deployment
// gives them no node URL, since a URL often holds a key.
func (a *App) queriesNodes() bool {
	return !slices.Contains([]string{"create", "query", "cancel", "publish"}, a.config.Platform.FunctionTarget)
}

func (a *App) openChains(context.Context) error {
	a.places = evm.NewPlaces(a.config.RPC.MaxInFlight)
	for _, of := range a.config.Served() {
		if !a.queriesNodes() {
			a.chains = append(a.chains, &servedChain{ServedChain: of})
			continue
		}
		if len(of.URLs) == 0 { // only of the default chain
			return fmt.Errorf("chain %d has no nodes: set FENCEPOST_RPC_URLS, or give FENCEPOST_CHAINS an entry with the default chain's id", of.ID)
		}
		c, err := a.openChain(of)
		if err != nil {
			return fmt.Errorf("chain %d: %w", of.ID, err)
		}
		a.chains = append(a.chains, c)
	}
	return nil
}

// openChain connects to the nodes of one chain. One node is asked as it always was.
func (a *App) openChain(of config.ServedChain) (*servedChain, error) {
	c := &servedChain{ServedChain: of}
	rpc := a.config.RPC
	each := evm.Options{
		ChainID: of.ID, Timeout: rpc.Timeout, MaxInFlight: rpc.MaxInFlight, Places: a.places, MaxBatch: rpc.MaxBatch,
		Fees:        feesOf(a.config, of),
		FinalDepth:  finalDepth(of),
		OnRoundTrip: func(ctx context.Context) { telemetry.MeterFrom(ctx).RPC() },
		Trace: func(ctx context.Context, name string) (context.Context, func(error)) {
			return telemetry.Begin(ctx, name)
		},
	}
	if len(of.URLs) == 1 {
		each.URL = of.URLs[0].Reveal()
		one, err := evm.New(each)
		c.connector = one
		return c, err
	}
	o := nodes.Options{Node: each, Quorum: of.Quorum, MaxLag: uint64(rpc.MaxLag), LeaveOut: rpc.LeaveOut, Watch: a.watchNode(of.ID)}
	for _, url := range of.URLs {
		o.URLs = append(o.URLs, url.Reveal())
	}
	several, err := nodes.New(o)
	c.connector, c.nodes = several, several
	return c, err
}

// finalDepth is how many blocks below the head an account's count is final, where the
// settings declare that the chain has no tag "finalized"; nil: it has. What a node says, or
// leaves unanswered, is no declaration.
func finalDepth(of config.ServedChain) *uint64 {
	if of.FinalizedTag {
		return nil
	}
	return new(uint64(of.Confirmations))
}

// feesOf is how a chain prices gas, and whom to ask for advice.
func feesOf(c config.Config, of config.ServedChain) evm.Fees {
	f := evm.Fees{Legacy: of.FeeKind == config.FeeKindLegacy}
	if c.Fees.History && !f.Legacy {
		f.HistoryBlocks, f.Percentile = c.Fees.HistoryBlocks, c.Fees.HistoryPercentile
	}
	return f
}

// watchNode counts the answers of a chain's nodes, and tells the log of those that
// are left out and that come back.
func (a *App) watchNode(chain uint64) func(context.Context, string, nodes.Sighting) {
	return func(ctx context.Context, node string, seen nodes.Sighting) {
		telemetry.NodeAnswers.Add(ctx, 1, telemetry.NodeResult(chain, node, string(seen.Result)))
		switch {
		case seen.Left:
			a.log.WarnContext(ctx, "node left out", "chain", chain, "node", node, "result", string(seen.Result), "error", seen.Err.Error())
		case seen.Back:
			a.log.InfoContext(ctx, "node is back", "chain", chain, "node", node)
		}
	}
}

// openWorkers makes a worker for each chain, like this one.
func (a *App) openWorkers(like txmanager.Worker) {
	for _, c := range a.chains {
		one := like
		one.Rules = rules(a.config, c.ServedChain)
		c.worker = &one
	}
}

// defaultChain is the one that a bare address is on.
func (a *App) defaultChain() *servedChain { return a.chains[0] }

// servedOf is the chain of a submitter. The error wraps [store.ErrUnknownSubmitter]:
// of a chain that is not served nobody is registered.
func (a *App) servedOf(s txmanager.Submitter) (*servedChain, error) {
	for _, c := range a.chains {
		if c.ID == s.ChainID() {
			return c, nil
		}
	}
	return nil, fmt.Errorf("%s: chain %d is not served here: %w", s, s.ChainID(), store.ErrUnknownSubmitter)
}

// chainOf is the connector of a submitter's chain.
func (a *App) chainOf(s txmanager.Submitter) (txmanager.ChainConnector, error) {
	c, err := a.servedOf(s)
	if err != nil {
		return nil, err
	}
	if c.connector == nil {
		return nil, fmt.Errorf("chain %d: the function %s queries no node", c.ID, a.config.Platform.FunctionTarget)
	}
	return watchedChain{c.connector}, nil
}

// workerOf serves submitters of that one's chain.
func (a *App) workerOf(s txmanager.Submitter) (*txmanager.Worker, error) {
	c, err := a.servedOf(s)
	if err != nil {
		return nil, err
	}
	return c.worker, nil
}

// chainIDs are those of all chains that are served, in words.
func (a *App) chainIDs() string {
	var ids []string
	for _, c := range a.chains {
		ids = append(ids, fmt.Sprint(c.ID))
	}
	return strings.Join(ids, ", ")
}

// gauge shows how many of the chain's nodes are left out, of a chain with several.
// Only the sweep does, which has just looked.
func (c *servedChain) gauge(ctx context.Context) {
	if c.nodes != nil {
		telemetry.NodesLeftOut.Record(ctx, int64(len(c.nodes.LeftOut())), telemetry.Chain(c.ID))
	}
}
