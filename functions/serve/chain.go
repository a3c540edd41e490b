package serve

import (
	"context"
	"math/big"
	"time"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/nodes"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Chain is a chain that the deployment serves, with its settings.
type Chain struct {
	config.ServedChain
	Connector // nil in a function that queries no node

	Nodes   []chain.Node     // that the connector queries
	Several *nodes.Connector // nil: the chain has one node
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
