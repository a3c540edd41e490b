package payouts

import (
	"context"
	"maps"
	"math/big"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// paymentTo is the key by which payments are counted. The token is zero for the chain's coin.
type paymentTo struct{ token, address common.Address }

// scanned holds a chain's payments, block by block, below the depth that these tests' reorgs reach.
type scanned struct {
	mu   sync.Mutex
	upTo uint64 // blocks below are counted in paid
	paid map[paymentTo]int
}

// scans are by deployment.
var scans sync.Map

func scansOf(h *deployment) *scanned {
	s, _ := scans.LoadOrStore(h.Deployment, new(scanned))
	return s.(*scanned)
}

// deepestReorg is more than the number of blocks that any test replaces.
const deepestReorg = 16

// payments counts the chain's payments to the user's address. For a token it counts the payer's
// transfer events, for the coin the successful transactions.
func (u *user) payments() int {
	u.T.Helper()
	return must(scansOf(u.deployment).count(u.Ctx, u.Node, u.Chain.Head(), u.Payer.Address(), u.counted()))(u.T)
}

func (u *user) counted() paymentTo {
	k := paymentTo{address: common.Address(eip155.MustBytes(u.address))}
	if u.asset.Payout.Token != "" {
		k.token = common.Address(eip155.MustBytes(tokenOf(u.asset)))
	}
	return k
}

func (s *scanned) count(ctx context.Context, client *ethclient.Client, head uint64, payer txmanager.Address, of paymentTo) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paid == nil {
		s.paid = make(map[paymentTo]int)
	}
	for ; s.upTo+deepestReorg < head; s.upTo++ {
		if err := add(ctx, client, s.upTo, payer, s.paid); err != nil {
			return 0, err
		}
	}
	paid := maps.Clone(s.paid)
	for number := s.upTo; number <= head; number++ {
		if err := add(ctx, client, number, payer, paid); err != nil {
			return 0, err
		}
	}
	return paid[of], nil
}

var transferred = crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))

// add counts one block's payments.
func add(ctx context.Context, client *ethclient.Client, number uint64, payer txmanager.Address, paid map[paymentTo]int) error {
	block, err := client.BlockByNumber(ctx, new(big.Int).SetUint64(number))
	if err != nil || len(block.Transactions()) == 0 {
		return err
	}
	receipts, err := client.BlockReceipts(ctx, rpc.BlockNumberOrHashWithHash(block.Hash(), true))
	if err != nil {
		return err
	}
	for i, tx := range block.Transactions() {
		if to := tx.To(); to != nil && receipts[i].Status == types.ReceiptStatusSuccessful {
			paid[paymentTo{address: *to}]++
		}
		for _, l := range receipts[i].Logs {
			if len(l.Topics) == 3 && l.Topics[0] == transferred && l.Topics[1] == common.HexToHash(string(payer)) {
				paid[paymentTo{l.Address, common.BytesToAddress(l.Topics[2][:])}]++
			}
		}
	}
	return nil
}
