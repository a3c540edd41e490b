package demo

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/chainscan"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

type onChain struct {
	nonce     uint64
	to        *common.Address
	valueWei  *big.Int
	data      []byte
	succeeded bool
}

// readChains reads the transactions of every chain of the stack.
func readChains(ctx context.Context, s *stack.Stack) (map[txmanager.Submitter][]onChain, error) {
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
func readChain(ctx context.Context, url string) (map[txmanager.Submitter][]onChain, error) {
	found := make(map[txmanager.Submitter][]onChain)
	chain, err := chainscan.Read(ctx, url, nil)
	for _, tx := range chain.Txs {
		s := eip155.NewSubmitter(chain.ID, tx.From)
		found[s] = append(found[s], onChain{nonce: tx.Nonce(), to: tx.To(), valueWei: tx.Value(), data: tx.Data(), succeeded: tx.Succeeded()})
	}
	return found, err
}

// account is the result for one submitter.
type account struct {
	submitter   txmanager.Submitter
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
func compare(intents []*posted, chain map[txmanager.Submitter][]onChain) []account {
	requested := make(map[txmanager.Submitter][]txmanager.Call)
	for _, p := range intents {
		requested[p.account] = append(requested[p.account], p.call)
	}
	var out []account
	for s, calls := range requested {
		out = append(out, compareOne(s, calls, chain[s]))
	}
	slices.SortFunc(out, func(a, b account) int { return cmp.Compare(a.submitter, b.submitter) })
	return out
}

func compareOne(s txmanager.Submitter, calls []txmanager.Call, txs []onChain) account {
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

func (tx onChain) carriesOut(c txmanager.Call) bool {
	sameTo := (tx.to == nil) == (c.To == nil) && (tx.to == nil || eip155.Address(*tx.to) == *c.To)
	return sameTo && tx.valueWei.Cmp(cmp.Or(c.Value, new(big.Int))) == 0 && bytes.Equal(tx.data, c.Data)
}
