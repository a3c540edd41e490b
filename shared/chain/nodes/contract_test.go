package nodes_test

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/chaintest"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/nodes"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/porttest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// dead returns the address of a node that does not run.
func dead(t *testing.T) string { return "http://" + porttest.Refused(t) }

// connect returns a connector to EVM nodes.
func connect(t *testing.T, o nodes.Options, timeout time.Duration) *nodes.Connector {
	t.Helper()
	o.Open = func(url, name string) (chain.Node, error) {
		return evm.New(evm.Options{URL: url, Node: name, ChainID: o.ChainID, Timeout: timeout})
	}
	c := check.Value(nodes.New(o))(t)
	t.Cleanup(c.Close)
	return c
}

// Several nodes fulfil the contract of one, wherever in the list the dead ones are.
func TestContractOverSeveralNodes(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]func(t *testing.T, url string) []string{
		"FirstOfThree": func(t *testing.T, url string) []string { return []string{url, dead(t), dead(t)} },
		"LastOfThree":  func(t *testing.T, url string) []string { return []string{dead(t), dead(t), url} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chaintest.Run(t, func(t *testing.T) chaintest.Fixture {
				chain := check.Value(devchain.Start(t.Context(), devchain.Options{Accounts: devchain.DevAccounts(1)}))(t)
				t.Cleanup(func() { _ = chain.Close() })
				return chaintest.Fixture{
					URL: chain.URL(), ChainID: chain.ChainID(), Key: devchain.DevAccounts(1)[0].Key,
					Mine: chain.Mine, ReorgReturns: true, BumpPercent: 10, EndlessEstimate: txmanager.Refused,
					Reorg:    func(blocks ...[][]byte) error { return chain.Reorg(uint64(len(blocks)), blocks...) },
					DropPool: func() error { chain.DropPool(); return nil }, SyncPool: chain.SyncPool,
					Connect: func(t *testing.T, url string, chainID uint64, timeout time.Duration) txmanager.ChainConnector {
						return connect(t, nodes.Options{URLs: list(t, url), ChainID: chainID}, timeout)
					},
				}
			})
		})
	}
}
