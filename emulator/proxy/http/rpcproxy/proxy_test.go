package rpcproxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// bundle is a chain that mines on request, a client of it, and a client of the proxy before it.
type bundle struct {
	chain           *devchain.Chain
	proxy           *rpcproxy.Proxy
	direct, proxied *ethclient.Client
	account         devchain.Account
}

func setup(t *testing.T) bundle {
	t.Helper()
	chain := check.Value(devchain.Start(t.Context(), devchain.Options{}))(t)
	proxy := check.Value(rpcproxy.Start(rpcproxy.Options{Target: chain.URL(), Seed: 1}))(t)
	b := bundle{chain: chain, proxy: proxy, account: devchain.DevAccounts(1)[0]}
	for url, client := range map[string]**ethclient.Client{chain.URL(): &b.direct, proxy.URL(): &b.proxied} {
		*client = check.Value(ethclient.Dial(url))(t)
	}
	t.Cleanup(func() {
		b.direct.Close()
		b.proxied.Close()
		check.Err(t, "close", nil)(errors.Join(proxy.Close(), proxy.Close(), chain.Close()))
	})
	return b
}

func (b bundle) transfer(t *testing.T, n uint64) *types.Transaction {
	t.Helper()
	return transfer(t, b.chain, n)
}

// transfer returns a transfer by the first account of the chain.
func transfer(t *testing.T, chain *devchain.Chain, n uint64) *types.Transaction {
	t.Helper()
	id := new(big.Int).SetUint64(chain.ChainID())
	return check.Value(types.SignNewTx(devchain.DevAccounts(1)[0].Key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{
		ChainID: id, Nonce: n, To: &common.Address{1}, Value: big.NewInt(1), Gas: 21_000,
		GasFeeCap: big.NewInt(10e9), GasTipCap: big.NewInt(1e9),
	}))(t)
}

// pending is the node's own transaction count, with its pool.
func (b bundle) pending(t *testing.T) uint64 {
	t.Helper()
	return check.Value(b.direct.PendingNonceAt(t.Context(), common.Address(eip155.MustBytes(b.account.Address))))(t)
}

// mined sends a transfer directly to the node and mines it.
func (b bundle) mined(t *testing.T, n uint64) *types.Transaction {
	t.Helper()
	tx := b.transfer(t, n)
	check.OK(t)(b.direct.SendTransaction(t.Context(), tx))
	check.OK(t)(b.chain.Mine(1))
	return tx
}

// Without faults the proxy answers as the node does.
func TestProxyWithoutFaultsPassesEverything(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := b.transfer(t, 0)
	check.OK(t)(b.proxied.SendTransaction(t.Context(), tx))
	if err := b.proxied.SendTransaction(t.Context(), tx); err == nil || err.Error() != "already known" {
		t.Errorf("sent again: got %v, want the node's own words", err)
	}
	check.OK(t)(b.chain.Mine(1))
	own := check.Value(b.direct.TransactionReceipt(t.Context(), tx.Hash()))(t)
	check.Equal(t, "the receipt's block", check.Value(b.proxied.TransactionReceipt(t.Context(), tx.Hash()))(t).BlockHash, own.BlockHash)
	check.Err(t, "receipt of nothing", ethereum.NotFound)(b.proxied.TransactionReceipt(t.Context(), common.Hash{1}))
	check.Same(t, "strikes", b.proxy.Counts(), map[string]int{})
}

// If an answer is lost, the node still has the transaction.
func TestAnswersLostAfterTheNodeAccepted(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]rpcproxy.Faults{
		rpcproxy.DropSendAnswer: {DropSendAnswer: 1}, rpcproxy.Drop: {Drop: 1}, rpcproxy.Hang: {Hang: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.proxy.SetFaults(f)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if name == rpcproxy.Hang { // the client gives up once the node has it
				go func() {
					for n, err := uint64(0), error(nil); n == 0 && err == nil; {
						n, err = b.direct.PendingNonceAt(ctx, common.Address(eip155.MustBytes(b.account.Address)))
					}
					cancel()
				}()
			}
			if err := b.proxied.SendTransaction(ctx, b.transfer(t, 0)); err == nil {
				t.Error("send: got an answer, want none")
			} else if _, said := errors.AsType[rpc.Error](err); said {
				t.Errorf("send: got the node's words %v, want none", err)
			}
			check.Equal(t, "pending count at the node", b.pending(t), 1)
			another, stop := context.WithTimeout(t.Context(), 2*time.Minute)
			if name == rpcproxy.Hang {
				another, stop = context.WithTimeout(t.Context(), 300*time.Millisecond)
			}
			defer stop()
			if _, err := b.proxied.BlockNumber(another); (err == nil) != (name == rpcproxy.DropSendAnswer) {
				t.Errorf("another question under %s: got %v", name, err)
			}
		})
	}
}

// These faults keep the transaction from the node, with or without an error.
func TestSendsThatNeverReachTheNode(t *testing.T) {
	t.Parallel()
	refusal := func(tx *types.Transaction) string {
		if tx.Nonce() == 0 {
			return "txpool is full"
		}
		return ""
	}
	for name, c := range map[string]struct {
		faults rpcproxy.Faults
		want   string // text of the error; "": none
	}{
		rpcproxy.Unavailable: {rpcproxy.Faults{Unavailable: 1}, "503"},
		rpcproxy.LoseSend:    {rpcproxy.Faults{LoseSend: 1}, ""},
		rpcproxy.Refuse:      {rpcproxy.Faults{Refuse: refusal}, "txpool is full"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.proxy.SetFaults(c.faults)
			err := b.proxied.SendTransaction(t.Context(), b.transfer(t, 0))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("send: got %v, want %q", err, c.want)
			}
			check.Equal(t, "pending count at the node", b.pending(t), 0)
			check.Same(t, "strikes", b.proxy.Counts(), map[string]int{name: 1})
		})
	}
}

// In a batch each call is struck separately.
func TestBatchIsStruckCallByCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.proxy.SetFaults(rpcproxy.Faults{Refuse: func(tx *types.Transaction) string {
		if tx.Nonce() == 1 {
			return "nonce too high"
		}
		return ""
	}})
	var calls []rpc.BatchElem
	for n := range uint64(3) {
		raw := check.Value(b.transfer(t, n).MarshalBinary())(t)
		calls = append(calls, rpc.BatchElem{Method: "eth_sendRawTransaction", Args: []any{"0x" + common.Bytes2Hex(raw)}, Result: new(common.Hash)})
	}
	check.OK(t)(b.proxied.Client().BatchCallContext(t.Context(), calls))
	for n, c := range calls {
		if refused := n == 1; (c.Error != nil) != refused {
			t.Errorf("send of nonce %d: got %v, want an error: %v", n, c.Error, refused)
		}
		if want := b.transfer(t, uint64(n)).Hash(); n != 1 && *c.Result.(*common.Hash) != want {
			t.Errorf("hash of nonce %d: got %v, want %v", n, c.Result, want)
		}
	}
	check.Equal(t, "calls", b.proxy.Calls("eth_sendRawTransaction"), 3)
	check.OK(t)(b.chain.Mine(1))
	check.Equal(t, "count without nonce 1", check.Value(b.direct.NonceAt(t.Context(), common.Address(eip155.MustBytes(b.account.Address)), nil))(t), 1)
}

// A receipt can be unknown or forgotten although the transaction is mined. A missing receipt does not
// count as forgotten.
func TestReceiptsCanBeUnknownOrForgotten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := b.mined(t, 0)
	b.proxy.SetFaults(rpcproxy.Faults{NotIndexed: 1})
	if _, err := b.proxied.TransactionReceipt(t.Context(), tx.Hash()); err == nil || err.Error() != "transaction indexing is in progress" {
		t.Errorf("receipt without an index: got %v, want the node's words for that", err)
	}
	b.proxy.SetFaults(rpcproxy.Faults{ForgetReceipt: 1})
	for _, hash := range []common.Hash{tx.Hash(), {1}} {
		check.Err(t, "forgotten receipt", ethereum.NotFound)(b.proxied.TransactionReceipt(t.Context(), hash))
	}
	block := rpc.BlockNumberOrHashWithNumber(rpc.BlockNumber(b.chain.Head()))
	check.Err(t, "forgotten receipts of a block", ethereum.NotFound)(b.proxied.BlockReceipts(t.Context(), block))
	check.Same(t, "strikes", b.proxy.Counts(), map[string]int{rpcproxy.NotIndexed: 1, rpcproxy.ForgetReceipt: 2})
}

// A share between 0 and 1 strikes some requests and not others.
func TestShareStrikesSomeRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.proxy.SetFaults(rpcproxy.Faults{Unavailable: 0.5})
	failed := 0
	for range 100 {
		if _, err := b.proxied.BlockNumber(t.Context()); err != nil {
			failed++
		}
	}
	if failed < 25 || failed > 75 {
		t.Errorf("requests struck at a share of 0.5: got %d of 100", failed)
	}
	check.Same(t, "strikes", b.proxy.Counts(), map[string]int{rpcproxy.Unavailable: failed})
}

// A lagging node is consistent for the connector: its head is lower.
func TestLaggingNodeIsConsistent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	check.OK(t)(b.chain.Mine(67)) // the finalized block is 32
	tx := b.mined(t, 0)
	connector := check.Value(evm.New(evm.Options{URL: b.proxy.URL(), ChainID: b.chain.ChainID()}))(t)
	t.Cleanup(connector.Close)
	hash, head := txmanager.Hash(tx.Hash()), b.chain.Head()
	query := func(lag uint64) txmanager.ChainObservation {
		b.proxy.SetFaults(rpcproxy.Faults{Lag: lag, LagShare: 1})
		return check.Value(connector.Query(t.Context(), txmanager.ChainQuery{
			Submitter: eip155.NewSubmitter(b.chain.ChainID(), b.account.Address), Account: true, Finality: "finalized", FinalCount: true,
			Receipts: []txmanager.Hash{hash}, Known: []txmanager.Hash{hash}, FromBlock: head - 2, ToBlock: head,
		}))(t)
	}
	now, before := query(0), query(1)
	if now.Head.Number != head || now.Account.LatestCount != 1 || now.Receipts[hash].Answer != txmanager.AnswerFound || len(now.Headers) != 3 {
		t.Errorf("without a lag: got %+v, want head %d with the receipt", now, head)
	}
	if before.Head.Number != head-1 || before.Account.LatestCount != 0 || before.Account.PendingCount != 0 || len(before.Headers) != 2 ||
		before.Receipts[hash].Answer != txmanager.AnswerNotFound || before.Known[hash] != txmanager.AnswerNotFound {
		t.Errorf("a block behind: got %+v, want head %d without the transaction", before, head-1)
	}
	if before.Tagged.Number != 32 || *before.FinalCount != 0 {
		t.Errorf("finalized, a block behind: got %d, count %d; want the real one, 32, count 0", before.Tagged.Number, *before.FinalCount)
	}
	if far := query(40); far.Tagged.Number != far.Head.Number || far.Head.Number != head-40 {
		t.Errorf("finalized, behind it: got %d at head %d, want the head %d", far.Tagged.Number, far.Head.Number, head-40)
	}
	if err := b.proxied.SendTransaction(t.Context(), b.transfer(t, 1)); err != nil || b.pending(t) != 2 {
		t.Errorf("send to a lagging node: got %v, pending %d; want it taken", err, b.pending(t))
	}
	check.Err(t, "a block above its head", ethereum.NotFound)(b.proxied.HeaderByNumber(t.Context(), new(big.Int).SetUint64(head-39)))
	for number, want := range map[uint64]string{head - 40: "[]", head - 39: "null"} {
		var got json.RawMessage
		check.OK(t)(b.proxied.Client().CallContext(t.Context(), &got, "eth_getBlockReceipts", hexutil.EncodeUint64(number)))
		check.Equal(t, fmt.Sprintf("receipts of block %d by a node at %d", number, head-40), string(got), want)
	}
	check.Equal(t, "its block number", check.Value(b.proxied.BlockNumber(t.Context()))(t), head-40)
}

// The tags can be lowered without any other change.
func TestTagsCanLagAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	check.OK(t)(b.chain.Mine(67))
	tx := b.mined(t, 0)
	b.proxy.SetFaults(rpcproxy.Faults{TagsBehind: 5})
	for tag, want := range map[rpc.BlockNumber]uint64{rpc.SafeBlockNumber: 64, rpc.FinalizedBlockNumber: 27, rpc.LatestBlockNumber: 69} {
		check.Equal(t, fmt.Sprintf("block %s", tag), check.Value(b.proxied.HeaderByNumber(t.Context(), big.NewInt(int64(tag))))(t).Number.Uint64(), want)
	}
	check.OK(t)(b.proxied.TransactionReceipt(t.Context(), tx.Hash()))
	check.Equal(t, "block number", check.Value(b.proxied.BlockNumber(t.Context()))(t), b.chain.Head())
	check.Same(t, "strikes", b.proxy.Counts(), map[string]int{})
}
