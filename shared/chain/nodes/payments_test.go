package nodes_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/chaintest"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/chain/nodes"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// paying is a chain with a payer and a token.
type paying struct {
	t     *testing.T
	chain *devchain.Chain
	payer devchain.Account
	token txmanager.Address
	next  uint64
}

var receiver = eip155.Address(common.HexToAddress("0x00000000000000000000000000000000000000c3"))

func newPaying(t *testing.T) *paying {
	t.Helper()
	accounts := devchain.DevAccounts(2)
	chain := check.Value(devchain.Start(t.Context(), devchain.Options{Accounts: accounts}))(t)
	t.Cleanup(func() { _ = chain.Close() })
	token := check.Value(contracts.Deploy(t.Context(), chain, accounts[1], contracts.Token()))(t)
	return &paying{t: t, chain: chain, payer: accounts[0], token: token}
}

// tx returns the payer's next transaction.
func (p *paying) tx(to txmanager.Address, wei int64, data []byte) []byte {
	p.t.Helper()
	p.next++
	return chaintest.Sign(p.t, p.payer.Key, p.chain.ChainID(), &types.DynamicFeeTx{Nonce: p.next - 1, To: (*common.Address)(eip155.Recipient(&to)),
		Value: big.NewInt(wei), Data: data, Gas: 500_000, GasFeeCap: big.NewInt(50e9), GasTipCap: big.NewInt(1)}).Raw
}

// tokens returns the payer's next transaction, which moves tokens.
func (p *paying) tokens(amount int64) []byte {
	p.t.Helper()
	return p.tokensTo(receiver, amount)
}

func (p *paying) tokensTo(to txmanager.Address, amount int64) []byte {
	p.t.Helper()
	data := append([]byte{0xa9, 0x05, 0x9c, 0xbb}, common.HexToHash(string(to)).Bytes()...)
	return p.tx(p.token, 0, append(data, common.LeftPadBytes(big.NewInt(amount).Bytes(), 32)...))
}

func (p *paying) block(raws ...[]byte) {
	p.t.Helper()
	check.OK(p.t)(p.chain.MineExactly(raws...))
}

func (p *paying) mine(n int) {
	p.t.Helper()
	check.OK(p.t)(p.chain.Mine(n))
}

func (p *paying) connector(quorum int, urls ...string) *nodes.Connector {
	p.t.Helper()
	return connect(p.t, nodes.Options{URLs: urls, Quorum: quorum, ChainID: p.chain.ChainID()}, 20*time.Second)
}

// read reads in steps of so many blocks, until each final block was read.
func (p *paying) read(c *nodes.Connector, q chain.PaymentsQuery, step uint64) (paid []string, last chain.Payments) {
	p.t.Helper()
	q.Payer, q.Tokens, q.Depth = p.payer.Address, []txmanager.Address{p.token}, 3
	for {
		q.UpTo = q.After + step
		got := check.Value(c.Payments(p.t.Context(), q))(p.t)
		for _, one := range got.Found {
			kind := "coin"
			if one.Token != nil {
				kind = "token"
			}
			paid = append(paid, fmt.Sprintf("%s %s", kind, one.Amount))
		}
		if got.End == q.After {
			return paid, last
		}
		q.After, q.AfterHash, q.Sent, last = got.End, got.EndHash, got.Sent, got
	}
}

// Each payment in final blocks is read once with any step size: of the coin and of a token, several in
// one block. Payments that reverted, went to the payer itself, have amount 0, or are not final are not
// read.
func TestPaymentsAreReadOnce(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	closed := check.Value(contracts.Deploy(t.Context(), p.chain, devchain.DevAccounts(2)[1], contracts.Closed()))(t)
	p.mine(5)
	p.block(p.tx(receiver, 11, nil))
	p.mine(20)
	p.block(p.tx(receiver, 21, nil), p.tokens(22), p.tx(closed, 23, nil), p.tx(p.payer.Address, 24, nil), p.tx(receiver, 25, nil))
	p.block(p.tokens(31), p.tokensTo(p.payer.Address, 32), p.tokens(0))
	p.mine(7)
	p.block(p.tx(receiver, 41, nil))
	p.mine(2)
	p.block(p.tx(receiver, 51, nil)) // not final
	p.mine(1)
	want := map[string]int{"coin 11": 1, "coin 21": 1, "token 22": 1, "coin 25": 1, "token 31": 1, "coin 41": 1}
	pruned := chaintest.NewProxy(t, p.chain.URL())
	pruned.Set(chaintest.FaultyMethod("eth_getTransactionCount", chaintest.NodeError("missing trie node")))
	for name, c := range map[string]*nodes.Connector{
		"one node": p.connector(0, p.chain.URL()), "two nodes": p.connector(2, p.chain.URL(), p.chain.URL()),
		"without states": p.connector(0, pruned.URL), "one of two without states": p.connector(2, p.chain.URL(), pruned.URL),
	} {
		for _, step := range []uint64{1, 3, 1000} {
			for _, limit := range []int{0, 2} {
				paid, last := p.read(c, chain.PaymentsQuery{MaxBlocks: limit}, step)
				got := map[string]int{}
				for _, one := range paid {
					got[one]++
				}
				if diff := cmp.Diff(want, got); diff != "" || last.Sent < 8 || last.Sent > p.next {
					t.Errorf("%s, steps of %d, %d whole blocks: %d sent (-want +got):\n%s", name, step, limit, last.Sent, diff)
				}
			}
		}
	}
}

// An account that has sent nothing costs two round trips, and one transaction in a long range a few
// more. Only its own block is read whole.
func TestPaymentsCost(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	p.mine(60)
	proxy := chaintest.NewProxy(t, p.chain.URL())
	c := p.connector(0, proxy.URL)
	p.read(c, chain.PaymentsQuery{}, 1000) // verifies the chain, and what the node offers
	before := proxy.RoundTrips()
	p.read(c, chain.PaymentsQuery{}, 1000)
	if got := proxy.RoundTrips() - before; got > 3 { // the third reports that there is no more
		t.Errorf("nothing sent: got %d round trips, want at most 3", got)
	}
	p.block(p.tx(receiver, 1, nil))
	p.mine(30)
	before = proxy.RoundTrips()
	_, last := p.read(c, chain.PaymentsQuery{}, 1000)
	if got := proxy.RoundTrips() - before; got > 12 || last.FullReads != 1 {
		t.Errorf("one payment: got %d round trips and %d whole blocks, want at most 12, and one", got, last.FullReads)
	}
}

// A block that was read and is replaced is reported, and nothing is read.
func TestReplacedBlockIsReported(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	p.mine(10)
	c := p.connector(2, p.chain.URL(), p.chain.URL())
	_, last := p.read(c, chain.PaymentsQuery{}, 1000)
	check.OK(t)(p.chain.Reorg(6, [][]byte{p.tx(receiver, 5, nil)}, nil, nil, nil, nil, nil, nil))
	got, err := c.Payments(t.Context(), chain.PaymentsQuery{Payer: p.payer.Address, Depth: 3, After: last.End, AfterHash: last.EndHash, UpTo: last.End + 5})
	if err != nil || !got.WentBack || got.EndHash == last.EndHash || len(got.Found) > 0 {
		t.Errorf("after a reorg: got %+v, %v; want that the block is another", got, err)
	}
}

// A node that hides a payment is contradicted, and a lagging one has no vote.
func TestPaymentsNeedAQuorum(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	p.block(p.tokens(5))
	p.mine(10)
	lying := chaintest.NewProxy(t, p.chain.URL())
	lying.Set(chaintest.Fault{Answer: func(call chaintest.Call, _ json.RawMessage) map[string]any {
		if call.Method == "eth_getLogs" {
			return map[string]any{"result": []any{}}
		}
		if call.Method == "eth_getTransactionCount" {
			return map[string]any{"result": "0x0"}
		}
		return nil
	}})
	q := chain.PaymentsQuery{Payer: p.payer.Address, Depth: 3, UpTo: 1000, Tokens: []txmanager.Address{p.token}}
	for _, quorum := range []int{1, 2} {
		check.Err(t, fmt.Sprintf("two nodes, quorum %d", quorum), nodes.ErrDisputed)(p.connector(quorum, lying.URL, p.chain.URL()).Payments(t.Context(), q))
	}
	got := check.Value(p.connector(2, lying.URL, p.chain.URL(), p.chain.URL()).Payments(t.Context(), q))(t)
	check.Equal(t, "two of three: payments", len(got.Found), 1)
	got = check.Value(p.connector(1, dead(t), p.chain.URL()).Payments(t.Context(), q))(t)
	check.Equal(t, "one of two is away: payments", len(got.Found), 1)
	if _, err := p.connector(2, dead(t), p.chain.URL()).Payments(t.Context(), q); err == nil {
		t.Error("one of two is away, and both must agree: got no error")
	}
}

// The first block to read is older than the time, found by headers only.
func TestPaymentsStartIsOlderThanTheTime(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	p.mine(20)
	c := p.connector(0, p.chain.URL())
	now, err := c.PaymentsStart(t.Context(), chain.PaymentsQuery{Payer: p.payer.Address, Depth: 3}, time.Now().Add(time.Hour))
	if want := p.chain.Head() - 2; err != nil || now.Block != want || now.Hash == (txmanager.Hash{}) {
		t.Errorf("now: got %+v, %v; want block %d, the last that is final", now, err, want)
	}
	first := check.Value(c.PaymentsStart(t.Context(), chain.PaymentsQuery{Payer: p.payer.Address, Depth: 3}, time.Unix(0, 0)))(t)
	check.Equal(t, "before the chain: block", first.Block, 0)
}
