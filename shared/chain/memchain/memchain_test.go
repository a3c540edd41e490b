package memchain_test

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/chaintest"
	"github.com/fencepost/fencepost/shared/chain/memchain"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The second family fulfils the contract of a connector.
func TestContract(t *testing.T) {
	t.Parallel()
	chaintest.Run(t, func(*testing.T) chaintest.Fixture {
		const id = 7
		keys, made := memchain.Keys{}, 0
		account := func() chaintest.Account {
			made++
			s := keys.Add(id, made)
			return chaintest.Account{Submitter: s, Sign: func(tx txmanager.Unsigned) (txmanager.Signed, error) { return keys.Sign(t.Context(), s, tx) }}
		}
		first := account()
		c := memchain.New(id, first.Submitter)
		return chaintest.Fixture{
			ChainID: id, Mine: c.Mine, DropPool: c.DropPool, Reorg: c.Reorg, ReorgReturns: true, BumpPercent: 10, KeepsStates: true,
			Family: &chaintest.Family{
				Family: memchain.Family{}, Account: first, NewAccount: account, RoundTrips: c.Requests, OneFee: true,
				Failing: txmanager.Call{To: new(first.Submitter.Address()), Value: new(big.Int), Data: []byte("fail")},
			},
			Connect: func(_ *testing.T, _ string, chainID uint64, timeout time.Duration) txmanager.ChainConnector {
				return c.Node(chain.NodeOptions{ChainID: chainID, Timeout: timeout})
			},
		}
	})
}

// Each accepted spelling of an account is one submitter. What names no account of the family is refused.
func TestSpellingsOfOneAccountAreOneSubmitter(t *testing.T) {
	t.Parallel()
	want := memchain.Keys{}.Add(7, 1)
	families := chain.NewFamilies(memchain.Family{})
	address := want.Address().String()
	for _, text := range []string{string(want), "mem:7:" + strings.ToUpper(address), address, strings.ToUpper(address)} {
		check.Equal(t, fmt.Sprintf("%q", text), check.Value(families.ParseSubmitter(text, memchain.Namespace, 7))(t), want)
	}
	last := map[bool]string{true: "1", false: "0"}[strings.HasSuffix(address, "0")]
	for _, text := range []string{
		"", "mem:7:", "mem:07:" + address, "mem:0:" + address, "MEM:7:" + address, "eip155:7:" + address, address[:44], address + "0",
		address[:44] + last, "mem:7:0x00000000000000000000000000000000000a11ce",
	} {
		if got, err := families.ParseSubmitter(text, memchain.Namespace, 7); !errors.Is(err, chain.ErrNotSubmitter) || got != "" {
			t.Errorf("%q: got %q, %v; want nothing, ErrNotSubmitter", text, got, err)
		}
	}
}
