package demo

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/nonce"
)

// onChain is one transaction on the chain.
type onChain struct {
	nonce     uint64
	to        *common.Address
	valueWei  *big.Int
	data      []byte
	succeeded bool
}

// readChains reads the transactions of every chain of the stack.
func readChains(ctx context.Context, s *stack.Stack) (map[nonce.Submitter][]onChain, error) {
	found, err := readChain(ctx, s.Chain.URL())
	if err != nil || s.Second == nil {
		return found, err
	}
	more, err := readChain(ctx, s.Second.URL())
	maps.Copy(found, more) // a submitter is on one chain only
	return found, err
}

// readChain returns each submitter's transactions in the chain's order. It queries only the node, not the
// database.
func readChain(ctx context.Context, url string) (map[nonce.Submitter][]onChain, error) {
	client, err := ethclient.DialContext(ctx, url)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	chainID, err := client.ChainID(ctx)
	if err != nil {
		return nil, err
	}
	head, err := client.BlockNumber(ctx)
	if err != nil {
		return nil, err
	}
	found := make(map[nonce.Submitter][]onChain)
	signer := types.LatestSignerForChainID(chainID)
	for n := range head + 1 {
		block, err := client.BlockByNumber(ctx, new(big.Int).SetUint64(n))
		if err != nil {
			return nil, fmt.Errorf("read block %d: %w", n, err)
		}
		for _, tx := range block.Transactions() {
			receipt, err := client.TransactionReceipt(ctx, tx.Hash())
			if err != nil {
				return nil, fmt.Errorf("read receipt of %s: %w", tx.Hash(), err)
			}
			from, err := types.Sender(signer, tx)
			if err != nil {
				return nil, err
			}
			s := nonce.NewSubmitter(chainID.Uint64(), nonce.Address(from))
			found[s] = append(found[s], onChain{
				nonce: tx.Nonce(), to: tx.To(), valueWei: tx.Value(), data: tx.Data(),
				succeeded: receipt.Status == types.ReceiptStatusSuccessful,
			})
		}
	}
	return found, nil
}

// account is the result for one submitter.
type account struct {
	submitter   nonce.Submitter
	intents     int
	mined       int
	first, last uint64
	gaps        int // nonces below the last one without a transaction
	duplicates  int // transactions without an intent, or a second one for an intent
	missing     int // intents without a transaction
	failed      int // transactions that reverted
}

func (a account) ok() bool {
	return a.gaps+a.duplicates+a.missing+a.failed == 0 && a.intents == a.mined
}

// compare compares the intents with the chain, per submitter.
func compare(intents []*posted, chain map[nonce.Submitter][]onChain) []account {
	asked := make(map[nonce.Submitter][]nonce.Call)
	for _, p := range intents {
		asked[p.account] = append(asked[p.account], p.call)
	}
	var out []account
	for s, calls := range asked {
		out = append(out, compareOne(s, calls, chain[s]))
	}
	slices.SortFunc(out, func(a, b account) int { return cmp.Compare(a.submitter, b.submitter) })
	return out
}

func compareOne(s nonce.Submitter, calls []nonce.Call, txs []onChain) account {
	a := account{submitter: s, intents: len(calls), mined: len(txs)}
	nonces := make(map[uint64]bool)
	left := slices.Clone(calls)
	for _, tx := range txs {
		nonces[tx.nonce] = true
		a.last = max(a.last, tx.nonce)
		if !tx.succeeded {
			a.failed++
		}
		i := slices.IndexFunc(left, tx.carriesOut)
		if i < 0 {
			a.duplicates++
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	a.missing = len(left)
	a.first = a.last
	for n := range nonces {
		a.first = min(a.first, n)
	}
	if len(txs) > 0 {
		a.gaps = int(a.last) + 1 - len(nonces)
	}
	return a
}

// carriesOut reports whether tx does what the call asks.
func (tx onChain) carriesOut(c nonce.Call) bool {
	sameTo := (tx.to == nil) == (c.To == nil) && (tx.to == nil || nonce.Address(*tx.to) == *c.To)
	value := c.Value
	if value == nil {
		value = new(big.Int)
	}
	return sameTo && tx.valueWei.Cmp(value) == 0 && bytes.Equal(tx.data, c.Data)
}
