package admin

import (
	"cmp"
	"context"
	"math/big"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/nodes"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// chainPatience is how long a call that shows a chain waits for its nodes.
const chainPatience = 3 * time.Second

// askNodes asks all nodes at once, and returns their answers and errors in the order of the nodes. The answer best has the
// highest head; -1: no node answered.
func askNodes(ctx context.Context, nodes []chain.Node, q txmanager.ChainQuery) (seen []txmanager.ChainObservation, failures []error, best int) {
	ctx, cancel := context.WithTimeout(ctx, chainPatience)
	defer cancel()
	seen, failures, best = make([]txmanager.ChainObservation, len(nodes)), make([]error, len(nodes)), -1
	serve.Each(len(nodes), nodes, func(i int, n chain.Node) { seen[i], failures[i] = n.Query(ctx, q) })
	for i := range seen {
		if failures[i] == nil && (best < 0 || seen[i].Head.Number > seen[best].Head.Number) {
			best = i
		}
	}
	return seen, failures, best
}

// textOf is the text of an error; nil: there is none.
func textOf(err error) *string {
	if err == nil {
		return nil
	}
	return new(err.Error())
}

type chainsResponse struct {
	Instance string      `json:"instance"` // the process that answers: the nodes' exclusions are its own
	Chains   []chainView `json:"chains"`
}

type chainView struct {
	client.Chain
	Nodes []nodeView `json:"nodes"`
}

// nodeView is a node with null, where the client has an empty text.
type nodeView struct {
	client.Node
	Error     *string `json:"error"`
	Excluded  *string `json:"excluded"`
	LastError *string `json:"lastError"`
}

// listChains shows each chain with its nodes, which it asks.
func (a *Server) listChains(r *http.Request) (chainsResponse, error) {
	out := chainsResponse{a.Node, make([]chainView, len(a.Chains))}
	serve.Each(len(a.Chains), a.Chains, func(i int, c *serve.Chain) { out.Chains[i] = viewChain(r.Context(), c) })
	return out, nil
}

func viewChain(ctx context.Context, c *serve.Chain) chainView {
	shown := client.Chain{ChainID: c.ID, Namespace: c.Namespace, Finality: string(c.Finality), Quorum: 1, BlockTime: c.BlockTime.Milliseconds()}
	out := chainView{Chain: shown, Nodes: make([]nodeView, len(c.Nodes))}
	if c.Finality == txmanager.ByConfirmations {
		out.Confirmations = new(uint64(c.Confirmations))
	}
	seen, failures, best := askNodes(ctx, c.Nodes, txmanager.ChainQuery{Finality: string(txmanager.ByFinalized)})
	for i, n := range c.Nodes {
		out.Nodes[i] = nodeView{Node: client.Node{Name: n.Name()}, Error: textOf(failures[i])}
		if failures[i] == nil {
			out.Nodes[i].observe(seen[i], seen[best].Head.Number)
		}
	}
	if c.Several != nil {
		out.Quorum = c.Several.Quorum()
		for i, h := range c.Several.Health() {
			out.Nodes[i].remember(h)
		}
	}
	if best >= 0 {
		out.BaseFeePerGas = weiText(seen[best].BaseFeeWei)
		out.MeasuredBlockTime = measureBlocks(ctx, c.Nodes[best], seen[best].Head.Number)
	}
	return out
}

// observe adds what the node answered, beside the highest head of all nodes.
func (v *nodeView) observe(o txmanager.ChainObservation, highest uint64) {
	v.Head, v.HeadAt, v.Lag = &o.Head.Number, new(time.Unix(int64(o.Head.Time), 0).UTC()), new(highest-o.Head.Number)
	if o.Tagged != nil {
		v.Finalized = &o.Tagged.Number
	}
}

// remember adds what this process knows of the node.
func (v *nodeView) remember(h nodes.Health) {
	if h.Excluded != "" {
		v.Excluded, v.ExcludedUntil = new(string(h.Excluded)), new(h.Until.UTC())
	}
	if h.Failure != "" {
		v.LastError, v.LastErrorAt = &h.Failure, new(h.FailedAt.UTC())
	}
}

// measuredBlocks is over how many of the last blocks their time is measured.
const measuredBlocks = 20

// measureBlocks is the mean time between the last blocks, in milliseconds; nil: it is not known.
func measureBlocks(ctx context.Context, n chain.Node, head uint64) *int64 {
	ctx, cancel := context.WithTimeout(ctx, chainPatience)
	defer cancel()
	o, err := n.Query(ctx, txmanager.ChainQuery{FromBlock: head - min(head, measuredBlocks), ToBlock: head})
	if err != nil || len(o.Headers) < 2 {
		return nil
	}
	first, last := o.Headers[0], o.Headers[len(o.Headers)-1]
	if last.Number <= first.Number || last.Time < first.Time { // a node can answer anything
		return nil
	}
	return new(int64(1000 * (last.Time - first.Time) / (last.Number - first.Number)))
}

// accountView is what a submitter's chain shows of its account now, with null, where the client has an empty text.
type accountView struct {
	client.ChainAccount
	Balance *string           `json:"balance"`
	Error   *string           `json:"error"`
	Nodes   []nodeAccountView `json:"nodes"`
}

type nodeAccountView struct {
	client.NodeAccount
	Balance *string `json:"balance"`
	Error   *string `json:"error"`
}

// viewAccount asks the nodes of the submitter's chain. A failure is shown, and fails nothing.
func (a *Server) viewAccount(ctx context.Context, s txmanager.Submitter) *accountView {
	out := &accountView{ChainAccount: client.ChainAccount{ChainID: s.ChainID()}, Nodes: []nodeAccountView{}}
	on, err := a.ChainOf(s)
	if err != nil {
		out.Error = new("this process does not serve the chain")
		return out
	}
	seen, failures, best := askNodes(ctx, on.Nodes, txmanager.ChainQuery{Submitter: s, Account: true, FinalCount: true})
	for i, n := range on.Nodes {
		v := nodeAccountView{NodeAccount: client.NodeAccount{Name: n.Name()}, Error: textOf(failures[i])}
		if o := &seen[i]; failures[i] == nil {
			v.Head, v.Latest, v.Pending, v.Finalized, v.Balance = &o.Head.Number, &o.Account.LatestCount, &o.Account.PendingCount, o.FinalCount, new(o.Account.BalanceWei.String())
		}
		out.Nodes = append(out.Nodes, v)
	}
	var balance *big.Int
	if best >= 0 {
		of := out.Nodes[best]
		out.Latest, out.Pending, out.Finalized, out.Balance, balance = of.Latest, of.Pending, of.Finalized, of.Balance, seen[best].Account.BalanceWei
	}
	out.Spending = a.viewSpending(ctx, s, balance)
	return out
}

// viewSpending shows what the submitter's last transactions cost, and how long the balance lasts if it goes on
// so. Nil: it is not known.
func (a *Server) viewSpending(ctx context.Context, s txmanager.Submitter, balance *big.Int) *client.Spending {
	family, err := a.Families.Of(s)
	reader, ok := family.(chain.CostReader)
	if err != nil || !ok {
		return nil
	}
	spent, now, err := a.Store.Spending(ctx, s)
	if err != nil {
		a.Log.WarnContext(ctx, "the spending of a submitter could not be read", "submitter", s, "error", err.Error())
		return nil
	}
	return spendingOf(reader, spent, now, balance)
}

// spendingOf adds up the costs of transactions, the newest first.
func spendingOf(reader chain.CostReader, spent []store.Spent, now time.Time, balance *big.Int) *client.Spending {
	out, sum := client.Spending{}, new(big.Int)
	for _, one := range spent {
		fee, err := reader.ReadCost(one.Receipt)
		value, ok := new(big.Int).SetString(cmp.Or(one.Value, "0"), 10)
		if err != nil || !ok {
			continue
		}
		out.Transactions, out.Since = out.Transactions+1, one.At.UTC()
		sum.Add(sum, fee.Add(fee, value))
	}
	if sum.Sign() == 0 {
		return nil
	}
	out.Wei = sum.String()
	if past := int64(now.Sub(out.Since) / time.Second); balance != nil && past > 0 {
		lasts := new(big.Int).Mul(balance, big.NewInt(past))
		if lasts.Quo(lasts, sum); lasts.IsInt64() {
			out.LastsSeconds = new(lasts.Int64())
		}
	}
	return &out
}
