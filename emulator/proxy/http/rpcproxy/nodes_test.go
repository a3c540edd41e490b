package rpcproxy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/chain/nodes"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// several is some nodes of one chain, each behind its own proxy, and a connector over them.
type several struct {
	chain     *devchain.Chain
	proxies   []*rpcproxy.Proxy
	connector *nodes.Connector

	mu   sync.Mutex
	seen []string // "node result", in order, by the number of the node
}

const excludeFor = 100 * time.Millisecond

func severalNodes(t *testing.T, n int, edit func(*nodes.Options, *evm.Options)) *several {
	t.Helper()
	s := &several{chain: devChain(t, 0)}
	check.OK(t)(s.chain.Mine(10))
	each := evm.Options{ChainID: s.chain.ChainID(), Timeout: 5 * time.Second}
	o := nodes.Options{ChainID: each.ChainID, ExcludeFor: excludeFor, Watch: s.watch}
	for range n {
		proxy := check.Value(rpcproxy.Start(rpcproxy.Options{Target: s.chain.URL(), Seed: 1}))(t)
		t.Cleanup(func() { _ = proxy.Close() })
		s.proxies, o.URLs = append(s.proxies, proxy), append(o.URLs, proxy.URL())
	}
	if edit != nil {
		edit(&o, &each)
	}
	o.Open = func(url, name string) (chain.Node, error) { each.URL, each.Node = url, name; return evm.New(each) }
	var err error
	if s.connector, err = nodes.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.connector.Close)
	return s
}

func devChain(t *testing.T, id uint64) *devchain.Chain {
	t.Helper()
	chain := check.Value(devchain.Start(t.Context(), devchain.Options{ChainID: id, Accounts: devchain.DevAccounts(2)}))(t)
	t.Cleanup(func() { _ = chain.Close() })
	return chain
}

func (s *several) watch(_ context.Context, name string, seen nodes.HealthChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, fmt.Sprintf("%d %s", s.number(name), seen.Result))
}

func (s *several) number(name string) int {
	return slices.IndexFunc(s.proxies, func(p *rpcproxy.Proxy) bool { return p.URL() == "http://"+name })
}

func (s *several) saw(i int, result nodes.Result) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.seen, fmt.Sprintf("%d %s", i, result))
}

// query queries the chain and checks that the node answers.
func (s *several) query(t *testing.T, when string, node int) txmanager.ChainObservation {
	t.Helper()
	v := check.Value(s.connector.Query(t.Context(), txmanager.ChainQuery{}))(t)
	if got := s.number(v.Node); got != node {
		t.Fatalf("query %s: got node %d, want %d; excluded: %v", when, got, node, s.connector.Excluded())
	}
	return v
}

func (s *several) queryUntil(t *testing.T, when string, node int, q txmanager.ChainQuery) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		if s.number(check.Value(s.connector.Query(t.Context(), q))(t).Node) == node {
			return
		}
	}
	t.Fatalf("%s: node %d does not answer again; excluded: %v", when, node, s.connector.Excluded())
}

// compared repeats the query until every node has given its head: on a loaded machine one query may
// not wait for all.
func (s *several) compared(t *testing.T) txmanager.ChainObservation {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; {
		v := s.query(t, "before", 0)
		all := true
		for i := range s.proxies {
			all = all && s.saw(i, nodes.OK)
		}
		if all {
			return v
		}
		if time.Now().After(end) {
			t.Fatalf("before: not every node has given its head: %v", s.seen)
		}
	}
}

// A node that lags, returns errors, does not answer, or is on another chain is excluded, and the next
// one answers the same query. Once it is healthy it is asked first again.
func TestUnhealthyNodesAreExcludedAndReturn(t *testing.T) {
	t.Parallel()
	other := devChain(t, 1338)
	check.OK(t)(other.Mine(200)) // far ahead
	for name, c := range map[string]struct {
		result nodes.Result
		inject func(s *several)
	}{
		"lagging":  {nodes.Lags, func(s *several) { s.proxies[0].SetFaults(rpcproxy.Faults{Lag: 8, LagShare: 1}) }},
		"erring":   {nodes.Failed, func(s *several) { s.proxies[0].SetFaults(rpcproxy.Faults{Unavailable: 1}) }},
		"dropping": {nodes.Failed, func(s *several) { s.proxies[0].SetFaults(rpcproxy.Faults{Drop: 1}) }},
		"another":  {nodes.WrongChain, func(s *several) { s.proxies[0].SetTarget(other.URL()) }},
	} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s from the first query %v", name, first), func(t *testing.T) {
				t.Parallel()
				s := severalNodes(t, 3, nil)
				if !first {
					s.query(t, "before", 0)
				}
				c.inject(s)
				s.queryUntil(t, "while it is "+name, 1, txmanager.ChainQuery{})
				if !s.saw(0, c.result) {
					t.Errorf("results: got %v, want %q of node 0", s.seen, c.result)
				}
				s.query(t, "while it is "+name, 1)
				check.Equal(t, "excluded nodes", len(s.connector.Excluded()), 1)
				s.proxies[0].SetFaults(rpcproxy.Faults{})
				s.proxies[0].SetTarget(s.chain.URL())
				s.queryUntil(t, "once it is well", 0, txmanager.ChainQuery{})
				check.Equal(t, "excluded nodes at the end", len(s.connector.Excluded()), 0)
			})
		}
	}
}

// A node that does not answer costs a query half of its time only.
func TestUnresponsiveNodeLeavesTimeForOthers(t *testing.T) {
	t.Parallel()
	s := severalNodes(t, 2, nil)
	s.proxies[0].SetFaults(rpcproxy.Faults{Hang: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	check.Equal(t, "the node that answers", s.number(check.Value(s.connector.Query(ctx, txmanager.ChainQuery{}))(t).Node), 1)
	if !s.saw(0, nodes.Failed) {
		t.Errorf("results: got %v, want node 0 failed", s.seen)
	}
}

// If all nodes lag or fail, the highest one answers. If none answers, the query fails, and the next
// one asks all again.
func TestHighestNodeAnswersWhenAllAreExcluded(t *testing.T) {
	t.Parallel()
	s := severalNodes(t, 3, nil)
	check.OK(t)(s.chain.Mine(10))
	want := s.compared(t).Head.Number
	s.proxies[0].SetFaults(rpcproxy.Faults{Unavailable: 1})
	s.proxies[1].SetFaults(rpcproxy.Faults{Lag: 13, LagShare: 1}) // behind the third too
	s.proxies[2].SetFaults(rpcproxy.Faults{Lag: 6, LagShare: 1})
	check.Equal(t, "head", s.query(t, "while two lag and one fails", 2).Head.Number, want-6)
	for _, p := range s.proxies {
		p.SetFaults(rpcproxy.Faults{Unavailable: 1})
	}
	if v, err := s.connector.Query(t.Context(), txmanager.ChainQuery{}); err == nil {
		t.Errorf("query while all fail: got %+v, want an error", v)
	}
	s.proxies[2].SetFaults(rpcproxy.Faults{})
	s.query(t, "once one is well", 2)
}

// A single node with an implausible height does not make the others count as lagging.
func TestSingleHighNodeIsNotFollowed(t *testing.T) {
	t.Parallel()
	s := severalNodes(t, 3, nil)
	fork := devChain(t, 0)
	check.OK(t)(fork.Mine(100))
	s.proxies[2].SetTarget(fork.URL())
	for range 3 {
		s.query(t, "beside a high node", 0)
	}
	check.Equal(t, "excluded nodes", len(s.connector.Excluded()), 0)
}

func (s *several) transfer(t *testing.T, n uint64) []byte {
	t.Helper()
	return check.Value(transfer(t, s.chain, n).MarshalBinary())(t)
}

// A send goes to every node and succeeds if one takes it. It is refused only if all refuse it for the
// same reason; otherwise its result is unknown.
func TestSendsGoToAll(t *testing.T) {
	t.Parallel()
	refusing := func(text string) rpcproxy.Faults {
		return rpcproxy.Faults{Refuse: func(*types.Transaction) string { return text }}
	}
	for name, c := range map[string]struct {
		faults [3]rpcproxy.Faults
		want   []txmanager.SendClass // any of them
	}{
		"all well":               {[3]rpcproxy.Faults{}, []txmanager.SendClass{txmanager.SendAccepted}},
		"one takes it":           {[3]rpcproxy.Faults{{Unavailable: 1}, {}, refusing("txpool is full")}, []txmanager.SendClass{txmanager.SendAccepted}},
		"a silent one has it":    {[3]rpcproxy.Faults{{DropSendAnswer: 1}, {DropSendAnswer: 1}, {}}, []txmanager.SendClass{txmanager.SendAccepted, txmanager.SendAlreadyKnown}},
		"one hangs":              {[3]rpcproxy.Faults{{}, {Hang: 1}, {}}, []txmanager.SendClass{txmanager.SendAccepted, txmanager.SendAlreadyKnown}},
		"all refuse it alike":    {[3]rpcproxy.Faults{refusing("txpool is full"), refusing("txpool is full"), refusing("out of capacity")}, []txmanager.SendClass{txmanager.SendPoolFull}},
		"all refuse, not alike":  {[3]rpcproxy.Faults{refusing("txpool is full"), refusing("nonce too low"), refusing("txpool is full")}, []txmanager.SendClass{txmanager.SendUnknown}},
		"two refuse, one silent": {[3]rpcproxy.Faults{refusing("nonce too low"), {Unavailable: 1}, refusing("nonce too low")}, []txmanager.SendClass{txmanager.SendUnknown}},
		"all silent":             {[3]rpcproxy.Faults{{Unavailable: 1}, {Unavailable: 1}, {Unavailable: 1}}, []txmanager.SendClass{txmanager.SendUnknown}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := severalNodes(t, 3, nil)
			s.query(t, "before", 0)
			for i, f := range c.faults {
				s.proxies[i].SetFaults(f)
			}
			began := time.Now()
			got := s.connector.Send(t.Context(), [][]byte{s.transfer(t, 0)})
			if len(got) != 1 || !slices.Contains(c.want, got[0].Class) || got[0].Node == "" {
				t.Errorf("got %+v, want one of %v by a node", got, c.want)
			}
			s.wantAnswers(t, got[0], c.faults[2].Refuse == nil && c.faults[2].Unavailable == 0)
			if took := time.Since(began); took > 4*time.Second { // the time-out is 5 s
				t.Errorf("took %s: it waited for a node that hangs", took)
			}
		})
	}
}

// wantAnswers holds the answers of all nodes against the result of a send. Each node has one, by its name. The third
// takes the transaction, or not.
func (s *several) wantAnswers(t *testing.T, got txmanager.SendResult, takes bool) {
	t.Helper()
	classes := make(map[string]txmanager.SendClass)
	for _, a := range got.Answers {
		classes[a.Node] = a.Class
	}
	third, answered := classes[s.proxies[2].URL()[len("http://"):]]
	if len(classes) != len(got.Answers) || len(classes) == 0 || !answered || takes != (third == txmanager.SendAccepted || third == txmanager.SendAlreadyKnown) {
		t.Errorf("answers: got %+v, want one for each node, the third taking it: %t", got.Answers, takes)
	}
}

// Every node gets a send, including the ones not used for reads. An excluded one gets it if the others
// do not take it.
func TestSendReachesEachNode(t *testing.T) {
	t.Parallel()
	s := severalNodes(t, 3, nil)
	s.query(t, "before", 0)
	var got [3]atomic.Int64
	for i, p := range s.proxies {
		p.SetFaults(rpcproxy.Faults{Refuse: func(*types.Transaction) string { got[i].Add(1); return "" }})
	}
	if r := s.connector.Send(t.Context(), [][]byte{s.transfer(t, 0), s.transfer(t, 1)}); !r[0].Acknowledged() || !r[1].Acknowledged() {
		t.Fatalf("got %+v, want both taken", r)
	}
	for i := range got {
		check.Equal(t, fmt.Sprint("transactions sent to node ", i), got[i].Load(), 2)
	}
	s.proxies[0].SetFaults(rpcproxy.Faults{Unavailable: 1})
	s.query(t, "without the first", 1)
	s.proxies[0].SetFaults(rpcproxy.Faults{})
	for _, p := range s.proxies[1:] {
		p.SetFaults(rpcproxy.Faults{Refuse: func(*types.Transaction) string { return "txpool is full" }})
	}
	if r := s.connector.Send(t.Context(), [][]byte{s.transfer(t, 2)}); !r[0].Acknowledged() {
		t.Errorf("got %+v, want it taken by the excluded node", r)
	}
}

// rpc.maxInFlight bounds the requests to all nodes of all chains that share its slots.
func TestMaxInFlightHoldsOverAllNodes(t *testing.T) {
	t.Parallel()
	const limit = 2
	var now, peak atomic.Int64
	track := func(context.Context) func(error) {
		n := now.Add(1)
		for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
		}
		return func(error) { now.Add(-1) }
	}
	slots, other := chain.NewRequestSlots(limit), devChain(t, 1338)
	s := severalNodes(t, 3, func(_ *nodes.Options, each *evm.Options) { each.RequestSlots, each.OnRoundTrip = slots, track })
	second := check.Value(evm.New(evm.Options{URL: other.URL(), ChainID: other.ChainID(), RequestSlots: slots, OnRoundTrip: track}))(t)
	t.Cleanup(second.Close)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 5 {
				for _, chain := range []txmanager.ChainConnector{s.connector, second} {
					if _, err := chain.Query(t.Context(), txmanager.ChainQuery{}); err != nil {
						t.Errorf("query: %v", err)
					}
				}
				s.connector.QueryOthers(t.Context(), txmanager.ChainQuery{}, 9)
			}
		})
	}
	group.Wait()
	check.Equal(t, "round trips at once", peak.Load(), limit)
}

// An outvoted node stays excluded for its time, even with correct answers. Its vote still counts, so
// that two against two is no majority.
func TestOutvotedNodeKeepsItsVote(t *testing.T) {
	t.Parallel()
	s := severalNodes(t, 4, func(o *nodes.Options, _ *evm.Options) { o.ExcludeFor = time.Second })
	name := s.query(t, "before", 0).Node
	s.connector.ReportOutvoted(t.Context(), name, "block 7 is final")
	asked := func() (names []string) {
		for _, v := range s.connector.QueryOthers(t.Context(), txmanager.ChainQuery{}, 9, s.query(t, "while it is left out", 1).Node) {
			names = append(names, v.Node)
		}
		return names
	}
	if got := asked(); len(got) != 3 || !slices.Contains(got, name) {
		t.Errorf("asked: got %v, want all others, %s among them", got, name)
	}
	if got := s.connector.Excluded(); len(got) != 1 || got[name] != nodes.Outvoted {
		t.Errorf("excluded after the query: got %v, want %s outvoted", got, name)
	}
	s.queryUntil(t, "after its time", 0, txmanager.ChainQuery{})
}

// A lagging node is asked too, and reported as lagging. A failed node is not asked if the others are
// enough for a quorum. A node of another chain is never asked.
func TestLaggingNodesAreAskedFailedOnesAreNot(t *testing.T) {
	t.Parallel()
	other := devChain(t, 1338)
	s := severalNodes(t, 4, func(o *nodes.Options, _ *evm.Options) { o.ExcludeFor, o.Quorum = time.Hour, 2 })
	s.proxies[3].SetTarget(other.URL()) // before the first contact, which asks for the chain
	s.query(t, "before", 0)
	s.proxies[1].SetFaults(rpcproxy.Faults{Lag: 8, LagShare: 1})
	s.proxies[2].SetFaults(rpcproxy.Faults{Unavailable: 1})
	s.connector.QueryOthers(t.Context(), txmanager.ChainQuery{}, 9) // detects the other chain
	s.proxies[2].SetFaults(rpcproxy.Faults{})                       // not detected yet
	views := s.connector.QueryOthers(t.Context(), txmanager.ChainQuery{}, 9)
	if len(views) != 2 || s.number(views[0].Node) > 1 || s.number(views[1].Node) > 1 {
		t.Fatalf("got %d views; want those of the first two; excluded: %v", len(views), s.connector.Excluded())
	}
	for _, v := range views {
		check.Equal(t, fmt.Sprintf("node %d lags", s.number(v.Node)), v.Lagging, s.number(v.Node) == 1)
	}
}

// An excluded node that has recovered answers a query of the excluded ones, and is used again. A node
// that still fails, or is on another chain, gives no answer. A healthy one is not asked.
func TestRecoveredNodeIsUsedAgain(t *testing.T) {
	t.Parallel()
	other := devChain(t, 1338)
	s := severalNodes(t, 5, func(o *nodes.Options, _ *evm.Options) { o.ExcludeFor, o.Quorum = time.Hour, 2 })
	s.proxies[3].SetTarget(other.URL()) // before the first contact, which asks for the chain
	s.proxies[4].SetTarget(other.URL())
	s.query(t, "before", 0)
	s.proxies[1].SetFaults(rpcproxy.Faults{Unavailable: 1})
	s.proxies[2].SetFaults(rpcproxy.Faults{Unavailable: 1})
	s.connector.QueryOthers(t.Context(), txmanager.ChainQuery{}, 9) // detects the other chain
	check.Equal(t, "excluded nodes (all but the first)", len(s.connector.Excluded()), 4)
	s.proxies[2].SetFaults(rpcproxy.Faults{}) // not detected yet
	s.proxies[3].SetTarget(s.chain.URL())
	names := namesOf(s.connector)
	well := names[2:4]
	views := s.connector.QueryExcluded(t.Context(), txmanager.ChainQuery{})
	if len(views) != 2 || views[0].NoAnswer || views[1].NoAnswer || !slices.Contains(well, views[0].Node) || !slices.Contains(well, views[1].Node) {
		t.Errorf("down nodes: got %+v, want the views of %v", views, well)
	}
	want := map[string]nodes.Result{names[1]: nodes.Failed, names[4]: nodes.WrongChain}
	check.Same(t, "excluded", s.connector.Excluded(), want)
	s.proxies[1].SetFaults(rpcproxy.Faults{})
	if views := s.connector.QueryExcluded(t.Context(), txmanager.ChainQuery{}, names[1]); len(views) != 0 {
		t.Errorf("down nodes but one: got %+v, want none", views)
	}
	s.proxies[1].SetTarget(other.URL()) // it was of this chain when it failed
	if views := s.connector.QueryExcluded(t.Context(), txmanager.ChainQuery{}); len(views) != 0 {
		t.Errorf("down nodes, all of another chain: got %+v, want none", views)
	}
}

// A query about an account of another chain is the caller's error and excludes no node.
func TestQueryOfAnotherChainExcludesNoNode(t *testing.T) {
	t.Parallel()
	s := severalNodes(t, 2, nil)
	_, err := s.connector.Query(t.Context(), txmanager.ChainQuery{Submitter: eip155.NewSubmitter(7, devchain.DevAccounts(1)[0].Address), Account: true})
	if !errors.Is(err, chain.ErrWrongChain) || len(s.connector.Excluded()) != 0 {
		t.Errorf("got %v, excluded %v; want a wrong chain and no node excluded", err, s.connector.Excluded())
	}
}

// Invalid options are refused with the reason, and no name of a node has credentials.
func TestInvalidNodesOptionsAreRefused(t *testing.T) {
	t.Parallel()
	open := func(url, name string) (chain.Node, error) {
		return evm.New(evm.Options{URL: url, Node: name, ChainID: 1})
	}
	for name, o := range map[string]nodes.Options{
		"no URL":        {ChainID: 1, Open: open},
		"quorum of 3":   {ChainID: 1, Open: open, URLs: []string{"http://a", "http://b"}, Quorum: 3},
		"no http":       {ChainID: 1, Open: open, URLs: []string{"http://a", "ws://b"}},
		"too many":      {ChainID: 1, Open: open, URLs: slices.Repeat([]string{"http://a"}, 10)},
		"negative time": {ChainID: 1, Open: open, URLs: []string{"http://a"}, ExcludeFor: -1},
	} {
		if c, err := nodes.New(o); err == nil {
			t.Errorf("%s: got %+v, want an error", name, c)
		}
	}
	for n, want := range map[int]int{1: 1, 2: 1, 3: 2, 4: 3, 5: 3, 9: 5} {
		check.Equal(t, fmt.Sprintf("quorum of %d nodes", n), nodes.DefaultQuorum(n), want)
	}
	c := check.Value(nodes.New(nodes.Options{ChainID: 1, Open: open, URLs: []string{"https://me:secret@a.example/v1/key", "https://a.example/v1/other", "http://b.example:8545"}}))(t)
	if got, want := namesOf(c), []string{"a.example", "a.example#2", "b.example:8545"}; !slices.Equal(got, want) || c.Quorum() != 2 {
		t.Errorf("got %v with a quorum of %d, want %v and 2", got, c.Quorum(), want)
	}
}

func namesOf(c *nodes.Connector) (names []string) {
	for _, n := range c.Members() {
		names = append(names, n.Name())
	}
	return names
}
