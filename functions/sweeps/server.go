// Package sweeps finds the work of lost tasks and enqueues it again. It signs nothing and moves nothing
// itself.
package sweeps

import (
	"context"
	"math/big"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// Server serves the function sweep.
type Server struct {
	*serve.Base
	Store     *store.Store
	Chains    []Chain                                        // all that are served
	RulesOf   func(txmanager.Submitter) (rules.Rules, error) // fails for a chain that is not served
	Transfers *transfers.Store
	Unread    func(context.Context) (map[uint64]time.Duration, error) // since each payers' chain was read; nil: none is

	Rules            transfer.Rules
	Grace            time.Duration // how long overdue work waits for its task
	Batch            int           // of submitters or delivery queues
	MaxQueued        int           // per submitter
	ShownBalances    int           // submitters whose balance a gauge shows
	EventsKeep       time.Duration
	UnusualPerMinute int // transfers of one user
}

// Chain is a served chain.
type Chain struct {
	Namespace string
	ID        uint64
	Connector interface {
		Query(context.Context, txmanager.ChainQuery) (txmanager.ChainObservation, error)
		Balances(ctx context.Context, of []txmanager.Submitter) ([]*big.Int, error)
	}
	Excluded func() int // how many of its nodes are excluded; nil: it has one node
}
