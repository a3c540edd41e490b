package faults

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Use is one transaction that the foreign signer signed with a submitter's key.
type Use struct {
	Nonce uint64
	Hash  common.Hash
}

// Foreign records the foreign signer's transactions by submitter.
type Foreign struct {
	mu   sync.Mutex
	uses map[txmanager.Submitter][]Use
}

func (f *Foreign) add(s txmanager.Submitter, u Use) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uses[s] = append(f.uses[s], u)
}

// Of returns the foreign signer's uses of one key.
func (f *Foreign) Of(s txmanager.Submitter) []Use {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.uses[s])
}

// Nonces returns the nonces used by the foreign signer. The chain can have any transaction
// there.
func (f *Foreign) Nonces() map[txmanager.Submitter][]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[txmanager.Submitter][]uint64, len(f.uses))
	for s, uses := range f.uses {
		for _, u := range uses {
			all[s] = append(all[s], u.Nonce)
		}
	}
	return all
}

// useKey sends a transaction with a submitter's key as a foreign signer does. Its nonce is the
// account's next one, or one that the deployment has in flight. It takes the first key drawn
// that has such a nonce.
func useKey(inFlight bool) inject {
	return func(ctx context.Context, w *World, r *rand.Rand) int {
		keys := slices.Clone(w.Keys)
		r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		client := steps.Value(ethclient.DialContext(ctx, w.Stack.Chain.URL()))
		defer client.Close()
		return struckOnce(try(ctx, func() error {
			failure := errors.New("no key had a nonce to take")
			for _, key := range keys {
				if n, found := freeNonce(ctx, client, key, inFlight); found {
					if failure = w.takeNonce(ctx, client, key, n, inFlight); failure == nil {
						return nil
					}
				}
			}
			return failure
		}))
	}
}

// freeNonce returns the account's next nonce on chain if the deployment has nothing pending
// there; with inFlight, if it has.
func freeNonce(ctx context.Context, client *ethclient.Client, key devchain.Account, inFlight bool) (n uint64, found bool) {
	n, err := client.NonceAt(ctx, common.Address(eip155.MustBytes(key.Address)), nil)
	if err != nil {
		return 0, false
	}
	pending, err := client.PendingNonceAt(ctx, common.Address(eip155.MustBytes(key.Address)))
	return n, err == nil && (pending > n) == inFlight
}

// takeNonce uses n while mining is stopped, so that n stays as it was found. It outbids the transaction that is pending
// there. The node's suggestion follows the fees paid; a fixed fee would one day be too low.
func (w *World) takeNonce(ctx context.Context, client *ethclient.Client, key devchain.Account, n uint64, inFlight bool) (err error) {
	defer steps.Return(&err)
	defer w.stopMining()()
	if still, found := freeNonce(ctx, client, key, inFlight); !found || still != n {
		steps.Stopf("nonce %d of %s was mined in the meantime", n, key.Address)
	}
	id := new(big.Int).SetUint64(w.Stack.Chain.ChainID())
	tip := steps.Value(client.SuggestGasTipCap(ctx))
	tip.Add(tip.Mul(tip, big.NewInt(2)), big.NewInt(10_000_000_000))
	tx := steps.Value(types.SignNewTx(key.Key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{
		ChainID: id, Nonce: n, To: &common.Address{0xba, 0xd0}, Value: w.foreignValue(key), Gas: 21_000,
		GasTipCap: tip, GasFeeCap: new(big.Int).Mul(tip, big.NewInt(4)),
	}))
	w.Foreign.add(eip155.NewSubmitter(w.Stack.Chain.ChainID(), key.Address), Use{n, tx.Hash()}) // recorded before it can be seen on chain
	steps.OK(client.SendTransaction(ctx, tx), fmt.Sprintf("foreign use of nonce %d of %s", n, key.Address))
	return nil
}

// foreignValue is the value of the foreign signer's transactions, in wei. With the payer's key
// it is 0: the check of conservation rightly reports a payment that no transfer explains.
func (w *World) foreignValue(key devchain.Account) *big.Int {
	if w.Users > 0 && key.Address == w.Stack.PayerAccount().Address {
		return new(big.Int)
	}
	return big.NewInt(7)
}
