package serve

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/nodes"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// Chain is a chain that the deployment serves, with its settings.
type Chain struct {
	config.ServedChain
	Connector // nil in a function that queries no node

	Rules   rules.Rules      // of its submitters
	Nodes   []chain.Node     // that the connector queries
	Several *nodes.Connector // nil: the chain has one node
}

// ChainOf returns the chain of a submitter. The error wraps [store.ErrUnknownSubmitter], since a
// chain that is not served has no submitters.
func (b *Base) ChainOf(s txmanager.Submitter) (*Chain, error) {
	for _, c := range b.Chains {
		if c.ID == s.ChainID() && c.Namespace == s.Namespace() {
			return c, nil
		}
	}
	return nil, fmt.Errorf("%s: chain %d is not served here: %w", s, s.ChainID(), store.ErrUnknownSubmitter)
}

// Connector queries a chain through one node or several.
type Connector interface {
	txmanager.ChainConnector
	Balances(ctx context.Context, of []txmanager.Submitter) ([]*big.Int, error)
	Transaction(ctx context.Context, hash txmanager.Hash) (txmanager.SignedTransaction, error)
	Payments(ctx context.Context, q chain.PaymentsQuery) (chain.Payments, error)
	PaymentsStart(ctx context.Context, q chain.PaymentsQuery, before time.Time) (chain.PaymentsStart, error)
	Close()
}
