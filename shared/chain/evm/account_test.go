package evm_test

import (
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/shared/chain/chaintest"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// noMethod is the response of a node without the method that is called.
var noMethod = map[string]any{"error": map[string]any{"code": -32601, "message": "the method does not exist"}}

// Tips follow the tips paid in blocks, in the same round trip: the median of non-empty blocks. Without
// a history the node's suggestion is used.
func TestTipsFollowHistory(t *testing.T) {
	t.Parallel()
	chain, proxy := startBehindProxy(t)
	s := eip155.NewSubmitter(chain.ChainID(), devchain.DevAccounts(1)[0].Address)
	tip := func(what string, blocks int) int64 {
		t.Helper()
		c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID(), Fees: evm.Fees{HistoryBlocks: blocks, Percentile: 50}})
		before := proxy.RoundTrips()
		v := check.Value(c.Query(t.Context(), txmanager.ChainQuery{Submitter: s, Account: true}))(t)
		check.Equal(t, what+": round trips", proxy.RoundTrips()-before, 1)
		if v.Account.TipWei == nil || v.Account.GasPriceWei != nil {
			t.Fatalf("%s: got %+v, want a tip and no price", what, v.Account)
		}
		return v.Account.TipWei.Int64()
	}
	check.Equal(t, "no block was paid", tip("no block was paid", 5), tip("advice", 0))
	for n, paid := range []int64{5e9, 7e9, 6e9} {
		check.OK(t)(chain.MineExactly(transfer(t, chain, uint64(n), paid).Raw))
	}
	check.OK(t)(chain.Mine(1)) // empty
	for blocks, want := range map[int]int64{4: 6e9, 2: 6e9, 20: 6e9, 3: 7e9} {
		check.Equal(t, fmt.Sprintf("the last %d blocks", blocks), tip("history", blocks), want)
	}
	for name, response := range map[string]map[string]any{
		"no such method":  noMethod,
		"not that form":   chaintest.Result("0x1"),
		"rewards missing": chaintest.Result(map[string]any{"gasUsedRatio": []int{1}}),
		"negative":        chaintest.Result(map[string]any{"gasUsedRatio": []int{1}, "reward": [][]string{{"-0x1"}}}),
	} {
		proxy.Set(chaintest.FaultyMethod("eth_feeHistory", response))
		check.Equal(t, name, tip(name, 4), tip("advice", 0))
	}
}

// On a chain without EIP-1559 the node's gas price replaces the tip, no base fee is needed, and a
// transaction with that price is accepted.
func TestLegacyChainUsesTheGasPrice(t *testing.T) {
	t.Parallel()
	chain, proxy := startBehindProxy(t)
	proxy.Set(chaintest.Fault{Answer: func(call chaintest.Call, own json.RawMessage) map[string]any {
		if call.Method == "eth_maxPriorityFeePerGas" || call.Method == "eth_feeHistory" {
			return maps.Clone(noMethod)
		}
		var answer struct{ Result map[string]any }
		if json.Unmarshal(own, &answer) != nil {
			return nil
		}
		delete(answer.Result, "baseFeePerGas")
		return chaintest.Result(answer.Result)
	}})
	account := devchain.DevAccounts(1)[0]
	s := eip155.NewSubmitter(chain.ChainID(), account.Address)
	q := txmanager.ChainQuery{Submitter: s, Account: true}
	if v, err := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID()}).Query(t.Context(), q); err == nil {
		t.Errorf("as a chain with EIP-1559: got %+v, want an error", v.Account)
	}
	c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID(), Fees: evm.Fees{Legacy: true}})
	before := proxy.RoundTrips()
	v := check.Value(c.Query(t.Context(), q))(t)
	check.Equal(t, "round trips of a query", proxy.RoundTrips()-before, 1)
	a := v.Account
	if a.GasPriceWei == nil || a.GasPriceWei.Sign() <= 0 || a.TipWei != nil || a.BaseFeeWei == nil || a.BaseFeeWei.Sign() != 0 {
		t.Fatalf("got price %v, tip %v, base fee %v; want a price, none, 0", a.GasPriceWei, a.TipWei, a.BaseFeeWei)
	}
	price := new(big.Int).Lsh(a.GasPriceWei, 1)
	keys := check.Value(signer.NewLocal(map[txmanager.Submitter]*ecdsa.PrivateKey{s: account.Key}))(t)
	signed, err := keys.Sign(t.Context(), s, txmanager.Unsigned{
		ChainID: chain.ChainID(), To: new(eip155.Address([20]byte{1})), Value: big.NewInt(1), Gas: 21_000, Legacy: true, FeeCapWei: price, TipCapWei: price,
	})
	check.OK(t)(err)
	if res := c.Send(t.Context(), [][]byte{signed.Raw}); !res[0].Acknowledged() {
		t.Fatalf("send: got %+v, want it accepted", res[0])
	}
	check.OK(t)(chain.Mine(1))
	client := check.Value(ethclient.DialContext(t.Context(), chain.URL()))(t)
	defer client.Close()
	tx, _, err := client.TransactionByHash(t.Context(), common.Hash(signed.Hash))
	if err != nil || tx.Type() != types.LegacyTxType || tx.GasPrice().Cmp(price) != 0 || tx.ChainId().Uint64() != chain.ChainID() {
		t.Errorf("mined: got %+v, %v; want it of legacy form at %s, for the chain", tx, err, price)
	}
}

// A version of one form replaces one of the other if it pays a tenth more of both fees: a deployment
// may change chain.feeKind while transactions wait. A lower bid is refused as underpriced and for no
// other reason.
func TestFeeFormsReplaceEachOther(t *testing.T) {
	t.Parallel()
	chain := startChain(t)
	account := devchain.DevAccounts(1)[0]
	s := eip155.NewSubmitter(chain.ChainID(), account.Address)
	c := connect(t, evm.Options{URL: chain.URL(), ChainID: chain.ChainID()})
	keys := check.Value(signer.NewLocal(map[txmanager.Submitter]*ecdsa.PrivateKey{s: account.Key}))(t)
	for i, v := range []struct {
		legacy   bool
		cap, tip int64
		want     txmanager.SendClass
	}{
		{true, 10e9, 10e9, txmanager.SendAccepted},
		{false, 30e9, 10.9e9, txmanager.SendUnderpriced}, // both count
		{false, 11e9, 11e9, txmanager.SendAccepted},
		{true, 12e9, 12e9, txmanager.SendUnderpriced},
		{true, 12.1e9, 12.1e9, txmanager.SendAccepted},
		{false, 40e9, 13.31e9, txmanager.SendAccepted},
		{true, 43e9, 43e9, txmanager.SendUnderpriced},
		{true, 44e9, 44e9, txmanager.SendAccepted},
	} {
		signed, err := keys.Sign(t.Context(), s, txmanager.Unsigned{ChainID: chain.ChainID(), To: new(eip155.Address([20]byte{1})), Value: big.NewInt(1),
			Gas: 21_000, Legacy: v.legacy, FeeCapWei: big.NewInt(v.cap), TipCapWei: big.NewInt(v.tip)})
		check.OK(t)(err)
		got := c.Send(t.Context(), [][]byte{signed.Raw})[0]
		check.Equal(t, fmt.Sprintf("version %d (%s)", i+1, got.Text), got.Class, v.want)
	}
}

// Balances of many accounts arrive in one round trip, in their order. An account of another chain fails
// the call.
func TestBalancesArriveInOneRoundTrip(t *testing.T) {
	t.Parallel()
	chain, proxy := startBehindProxy(t)
	c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID()})
	rich := eip155.NewSubmitter(chain.ChainID(), devchain.DevAccounts(1)[0].Address)
	poor := eip155.NewSubmitter(chain.ChainID(), eip155.Address([20]byte{0xee}))
	before := proxy.RoundTrips()
	got, err := c.Balances(t.Context(), []txmanager.Submitter{poor, rich, poor})
	if err != nil || len(got) != 3 || got[0].Sign() != 0 || got[2].Sign() != 0 || got[1].String() != "1000000000000000000000000" {
		t.Errorf("got %v, %v; want 0, a million ether, 0", got, err)
	}
	check.Equal(t, "round trips", proxy.RoundTrips()-before, 1)
	if got, err := c.Balances(t.Context(), []txmanager.Submitter{eip155.NewSubmitter(7, rich.Address())}); err == nil {
		t.Errorf("of another chain: got %v, want an error", got)
	}
}

// On a chain that is declared to have no tag "finalized", an account's final count is that of depth
// blocks below the head, and none with too few blocks. On other chains only the tag decides.
func TestFinalCountOfAChainWithoutTheTag(t *testing.T) {
	t.Parallel()
	chain := startChain(t)
	raws, q := windowOf(t, chain, 1)
	q.FinalCount = true
	final := func(depth *uint64) *uint64 {
		t.Helper()
		c := check.Value(evm.New(evm.Options{URL: chain.URL(), ChainID: chain.ChainID(), FinalDepth: depth}))(t)
		defer c.Close()
		v := check.Value(c.Query(t.Context(), q))(t)
		return v.FinalCount
	}
	check.OK(t)(chain.MineExactly(raws[0]))
	mined := chain.Head()
	check.Equal(t, "more blocks wanted than there are: count", final(new(mined+1)), nil)
	for _, c := range []struct{ above, depth, want uint64 }{{0, 0, 1}, {0, 1, 0}, {3, 3, 1}, {3, 4, 0}} {
		check.OK(t)(chain.Mine(int(mined + c.above - chain.Head())))
		if got := final(&c.depth); got == nil || *got != c.want {
			t.Errorf("%d blocks below the head, mined %d below it: got %v, want %d", c.depth, c.above, got, c.want)
		}
	}
	if got := final(nil); got != nil && *got != 0 {
		t.Errorf("by the tag: got %d, want what the tag's block says, 0 or none", *got)
	}
}
