package functions

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/fencepost/fencepost/functions/counted"
	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/nodes"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/worker"
)

// queriesNodes reports whether this function's code queries nodes. A deployment gives no node URL to
// the others, since a URL often contains a key.
func (a *App) queriesNodes() bool {
	return !slices.Contains([]string{"create", "query", "cancel", "publish"}, a.config.Platform.FunctionTarget)
}

// chainFamilies lists the families of chains. A new one is added here, and to the functions of families in
// migrations/0001_database.sql.
var chainFamilies = []chain.Family{evm.Family{}}

// familiesWith returns the families of the list and the extensions'.
func familiesWith(ext Extensions) (chain.Families, error) {
	all := slices.Concat(chainFamilies, ext.Families)
	if slices.Contains(all, nil) {
		return nil, errors.New("Extensions.Families has a nil family: remove it")
	}
	families := chain.NewFamilies(all...)
	if len(families) < len(all) {
		return nil, errors.New("two families of chains have the same namespace")
	}
	return families, nil
}

func (a *App) openChains(context.Context) error {
	a.places = chain.NewRequestSlots(a.config.RPC.MaxInFlight)
	for _, of := range a.config.Served() {
		if !a.queriesNodes() {
			a.base.Chains = append(a.base.Chains, &serve.Chain{ServedChain: of, Rules: a.rulesFor(of)})
			continue
		}
		if len(of.URLs) == 0 { // possible only for the default chain
			return fmt.Errorf("chain %d has no nodes: set FENCEPOST_RPC_URLS, or give FENCEPOST_CHAINS an entry with the default chain's id", of.ID)
		}
		c, err := a.openChain(of)
		if err != nil {
			return fmt.Errorf("chain %d: %w", of.ID, err)
		}
		a.base.Chains = append(a.base.Chains, c)
	}
	return nil
}

// openChain connects to the nodes of one chain. A single node is queried directly, without a quorum.
func (a *App) openChain(of config.ServedChain) (*serve.Chain, error) {
	c := &serve.Chain{ServedChain: of, Rules: a.rulesFor(of)}
	rpc := a.config.RPC
	family, err := a.base.Families.Named(of.Namespace)
	if err != nil {
		return nil, err
	}
	each := chain.NodeOptions{
		ChainID: of.ID, Timeout: rpc.Timeout, RequestSlots: a.places, MaxBatch: rpc.MaxBatch,
		Fees:       feesOf(a.config, of),
		FinalDepth: finalDepth(of),
		OnRoundTrip: func(ctx context.Context) func(error) {
			telemetry.MeterFrom(ctx).RPC()
			_, end := telemetry.Begin(ctx, "chain")
			return end
		},
		Took: func(ctx context.Context, method string, took time.Duration) {
			telemetry.RPCTime.Record(ctx, took.Seconds(), telemetry.Method(method))
		},
	}
	open := func(url, name string) (chain.Node, error) {
		one := each
		one.URL, one.Node = url, name
		return a.openNode(family, one)
	}
	if len(of.URLs) == 1 {
		one, err := open(of.URLs[0].Reveal(), "")
		c.Connector, c.Nodes = counted.Chain{Connector: one}, []chain.Node{one}
		return c, err
	}
	several, err := nodes.New(nodes.Options{
		ChainID: of.ID, URLs: serve.ViewsOf(of.URLs, config.Secret.Reveal), Open: open, Quorum: of.Quorum, MaxLag: uint64(rpc.MaxLag),
		ExcludeFor: rpc.LeaveOut, Watch: a.watchNode(of.ID),
	})
	if err != nil {
		return nil, err
	}
	c.Connector, c.Nodes, c.Several = counted.Chain{Connector: several}, several.Members(), several
	return c, nil
}

// openNode opens a node by the extensions' code, or by its family where that opens none.
func (a *App) openNode(family chain.Family, o chain.NodeOptions) (one chain.Node, err error) {
	if a.extensions.Connect != nil {
		one, err = connect(a.extensions.Connect, o)
	}
	if one == nil && err == nil {
		one, err = family.Open(o)
	}
	if err != nil {
		return nil, err
	}
	return chain.Canonical(family, one), nil
}

// connect calls the extensions' code. A panic, or a nil pointer in place of a nil interface, is an error
// at the start. Later it would end the process at its first query.
func connect(open func(chain.NodeOptions) (chain.Node, error), o chain.NodeOptions) (one chain.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			one, err = nil, fmt.Errorf("Extensions.Connect panicked: %v", p)
		}
	}()
	one, err = open(o)
	if v := reflect.ValueOf(one); err == nil && v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("Extensions.Connect returned a nil %T: return a connector, or nil itself to leave the chain to the default", one)
	}
	return one, err
}

// finalDepth returns how many blocks below the head an account's count is final, if the settings
// declare that the chain has no "finalized" tag. nil means that the tag exists. A node's answer, or a
// missing one, is no such declaration.
func finalDepth(of config.ServedChain) *uint64 {
	if of.FinalizedTag {
		return nil
	}
	return new(uint64(of.Confirmations))
}

// feesOf returns how the chain prices gas and which source gives fee advice.
func feesOf(c config.Config, of config.ServedChain) chain.Fees {
	f := chain.Fees{Legacy: of.FeeKind == config.FeeKindLegacy}
	if c.Fees.History && !f.Legacy {
		f.HistoryBlocks, f.Percentile = c.Fees.HistoryBlocks, c.Fees.HistoryPercentile
	}
	return f
}

// watchNode returns a function that counts the answers of a chain's nodes. It logs which nodes are
// excluded and which return.
func (a *App) watchNode(chain uint64) func(context.Context, string, nodes.HealthChange) {
	return func(ctx context.Context, node string, seen nodes.HealthChange) {
		telemetry.NodeAnswers.Add(ctx, 1, telemetry.NodeResult(chain, node, string(seen.Result)))
		switch {
		case seen.Left:
			a.base.Log.WarnContext(ctx, "node excluded", "chain", chain, "node", node, "result", string(seen.Result), "error", seen.Err.Error())
		case seen.Back:
			a.base.Log.InfoContext(ctx, "node is back", "chain", chain, "node", node)
		}
	}
}

// rulesFor returns the rules of a chain. The extensions' code takes the place of the defaults, where the settings turn
// the feature on.
func (a *App) rulesFor(of config.ServedChain) rules.Rules {
	r := chainRules(a.config, of)
	if r.Bump != nil && a.extensions.Bump != nil {
		r.Bump.Policy = a.extensions.Bump
	}
	if r.Inspection != nil && a.extensions.Mempool != nil {
		r.Inspection.Inspector = a.extensions.Mempool
		r.Inspection.Unused = func(txID, problem string) {
			a.base.Log.Error("a mempool diagnosis is not used", telemetry.TxIDKey, txID, "problem", problem)
		}
	}
	return r
}

// chainOf returns the connector of a submitter's chain.
func (a *App) chainOf(s txmanager.Submitter) (txmanager.ChainConnector, error) {
	c, err := a.base.ChainOf(s)
	if err != nil {
		return nil, err
	}
	if c.Connector == nil {
		return nil, fmt.Errorf("chain %d: the function %s queries no node", c.ID, a.config.Platform.FunctionTarget)
	}
	return c.Connector, nil
}

// workerFor returns the worker for the submitter's chain.
func (a *App) workerFor(s txmanager.Submitter) (*worker.Worker, error) {
	c, err := a.base.ChainOf(s)
	if err != nil {
		return nil, err
	}
	one := a.worker
	one.Rules = c.Rules
	return &one, nil
}

// release releases a submitter from PROTECT.
func (a *App) release(ctx context.Context, s txmanager.Submitter, l txmanager.ReleaseRequest) (txmanager.ReleaseResult, error) {
	worker, err := a.workerFor(s)
	if err != nil {
		return txmanager.ReleaseResult{}, err
	}
	return worker.ReleaseSubmitter(ctx, s, l)
}
