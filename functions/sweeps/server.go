// Package sweeps finds the work of lost tasks and enqueues it again. It signs nothing and moves nothing
// itself.
package sweeps

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Server serves the function sweep.
type Server struct {
	*serve.Base
	Store     *store.Store
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
