package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/nonce"
)

func keyFaults() []Fault {
	return []Fault{
		{"foreign use of the key, nothing in flight", 1, useKey(false)},
		{"foreign use of the key, nonce in flight", 1, useKey(true)},
	}
}

// Use is one transaction that somebody else signed with a submitter's key.
type Use struct {
	Nonce uint64
	Hash  common.Hash
}

// Foreign is what was done with submitters' keys past the house.
type Foreign struct {
	mu   sync.Mutex
	uses map[nonce.Submitter][]Use
}

func newForeign() *Foreign { return &Foreign{uses: make(map[nonce.Submitter][]Use)} }

func (f *Foreign) add(s nonce.Submitter, u Use) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uses[s] = append(f.uses[s], u)
}

// Of lists the uses of one submitter's key.
func (f *Foreign) Of(s nonce.Submitter) []Use {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.uses[s])
}

// Nonces are those that were used, by submitter. The chain may have anything
// there.
func (f *Foreign) Nonces() map[nonce.Submitter][]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[nonce.Submitter][]uint64, len(f.uses))
	for s := range maps.Keys(f.uses) {
		for _, u := range f.uses[s] {
			all[s] = append(all[s], u.Nonce)
		}
	}
	return all
}

// useKey sends a transaction past the house, as somebody else would who has the
// key: at the account's next nonce, or at one that the house has in flight. It takes the
// first key drawn that has such a nonce.
func useKey(inFlight bool) func(context.Context, *World, *rand.Rand) (int, error) {
	return func(ctx context.Context, w *World, r *rand.Rand) (int, error) {
		keys := slices.Clone(w.Keys)
		r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		client, err := ethclient.DialContext(ctx, w.Stack.Chain.URL())
		if err != nil {
			return 0, err
		}
		defer client.Close()
		times, failure := 0, errors.New("no key had a nonce to take")
		until(ctx, targetTimeout, func() bool {
			for _, key := range keys {
				if n, found := freeNonce(ctx, client, key, inFlight); found && times == 0 {
					times, failure = w.takeNonce(ctx, client, key, n, inFlight)
				}
			}
			return times > 0
		})
		return times, failure
	}
}

// freeNonce is the account's next nonce on chain, if the house has nothing
// pending there; or, for inFlight, if it has.
func freeNonce(ctx context.Context, client *ethclient.Client, key devchain.Account, inFlight bool) (n uint64, found bool) {
	n, err := client.NonceAt(ctx, common.Address(key.Address), nil)
	if err != nil {
		return 0, false
	}
	pending, err := client.PendingNonceAt(ctx, common.Address(key.Address))
	return n, err == nil && (pending > n) == inFlight
}

// takeNonce takes n while no block comes, so that what was found there stays.
func (w *World) takeNonce(ctx context.Context, client *ethclient.Client, key devchain.Account, n uint64, inFlight bool) (int, error) {
	w.mining.take()
	defer w.mining.release()
	if still, found := freeNonce(ctx, client, key, inFlight); !found || still != n {
		return 0, fmt.Errorf("nonce %d of %s was mined in the meantime", n, key.Address)
	}
	return w.useNonce(ctx, client, key, n)
}

// foreignValue is what the stranger sends: nothing with the payer's key, since the
// check of conservation rightly finds a payment by the payer that no transfer explains.
func (w *World) foreignValue(key devchain.Account) *big.Int {
	if w.Users > 0 && key.Address == w.Stack.PayerAccount().Address {
		return new(big.Int)
	}
	return big.NewInt(7)
}

// useNonce outbids whatever is pending at the nonce. What it pays goes by the
// node's advice, which follows what is paid: a fixed price would be outbid some
// day.
func (w *World) useNonce(ctx context.Context, client *ethclient.Client, key devchain.Account, n uint64) (int, error) {
	id := new(big.Int).SetUint64(w.Stack.Chain.ChainID())
	tip, err := client.SuggestGasTipCap(ctx)
	if err != nil {
		return 0, err
	}
	tip.Add(tip.Mul(tip, big.NewInt(2)), big.NewInt(10_000_000_000))
	tx, err := types.SignNewTx(key.Key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{
		ChainID: id, Nonce: n, To: &common.Address{0xba, 0xd0}, Value: w.foreignValue(key), Gas: 21_000,
		GasTipCap: tip, GasFeeCap: new(big.Int).Mul(tip, big.NewInt(4)),
	})
	if err != nil {
		return 0, err
	}
	w.Foreign.add(nonce.NewSubmitter(w.Stack.Chain.ChainID(), key.Address), Use{n, tx.Hash()}) // before anybody can see it
	if err := client.SendTransaction(ctx, tx); err != nil {
		return 0, fmt.Errorf("foreign use of nonce %d of %s: %w", n, key.Address, err)
	}
	return 1, nil
}
