package demo

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"math/big"
	"slices"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/chainscan"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// readChains returns each submitter's transactions in the order of its chain. It queries only the chains' nodes, not
// the database.
func readChains(ctx context.Context, urls ...string) map[txmanager.Submitter][]chainscan.Tx {
	found := make(map[txmanager.Submitter][]chainscan.Tx)
	for _, url := range urls {
		chain := steps.Value(chainscan.Read(ctx, url, nil))
		for _, tx := range chain.Txs {
			s := eip155.NewSubmitter(chain.ID, tx.From)
			found[s] = append(found[s], tx)
		}
	}
	return found
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
func compare(intents []*posted, chain map[txmanager.Submitter][]chainscan.Tx) []account {
	requested := make(map[txmanager.Submitter][]txmanager.Call)
	for _, p := range intents {
		requested[p.account] = append(requested[p.account], p.call)
	}
	var out []account
	for _, s := range slices.Sorted(maps.Keys(requested)) {
		out = append(out, compareOne(s, requested[s], chain[s]))
	}
	return out
}

func compareOne(s txmanager.Submitter, calls []txmanager.Call, txs []chainscan.Tx) account {
	a := account{submitter: s, intents: len(calls), mined: len(txs)}
	nonces := make(map[uint64]bool)
	left := slices.Clone(calls)
	for _, tx := range txs {
		nonces[tx.Nonce()] = true
		a.last = max(a.last, tx.Nonce())
		if !tx.Succeeded() {
			a.failed++
		}
		i := slices.IndexFunc(left, func(c txmanager.Call) bool { return carriesOut(tx, c) })
		if i < 0 {
			a.duplicates++
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	a.missing = len(left)
	if len(txs) > 0 {
		a.first = slices.Min(slices.Collect(maps.Keys(nonces)))
		a.gaps = int(a.last) + 1 - len(nonces)
	}
	return a
}

func carriesOut(tx chainscan.Tx, c txmanager.Call) bool {
	sameTo := (tx.To() == nil) == (c.To == nil) && (c.To == nil || eip155.Address(*tx.To()) == *c.To)
	return sameTo && tx.Value().Cmp(cmp.Or(c.Value, new(big.Int))) == 0 && bytes.Equal(tx.Data(), c.Data)
}
