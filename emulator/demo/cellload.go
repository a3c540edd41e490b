package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/cells"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/client"
)

// The functions that a transaction goes through: makers once each, watchers once each and again for each
// further poll of a late block.
var (
	makers   = []string{"create", "advance"}
	watchers = []string{"receipt", "confirm", "resubmit"}
)

// load is the load of one cell in one phase: each account posts an intent once the last is final.
type load struct {
	cell    *cells.Cell
	callers *client.Cells
	lists   [][]Intent // by account
	done    *atomic.Int64
	fail    func(error) // ends the demo
	counted bool        // in done, and its errors are failures
	before  phase       // what was counted before it

	mu     sync.Mutex
	posted []*posted
	did    phase // what the load itself sees
}

func (l *load) run(ctx context.Context) {
	var accounts sync.WaitGroup
	for _, list := range l.lists {
		accounts.Go(func() {
			for _, in := range list {
				if err := l.carryOut(ctx, in); err != nil {
					if l.counted {
						l.fail(fmt.Errorf("cell %s: %w", l.cell.Name, err))
					}
					return
				}
			}
		})
	}
	accounts.Wait()
}

// carryOut posts the intent and waits for its end. The account chooses the cell.
func (l *load) carryOut(ctx context.Context, in Intent) (err error) {
	defer steps.Return(&err)
	began := time.Now()
	created := steps.Value(l.callers.CreateTx(ctx, client.Intent{Submitter: in.Submitter, RequestID: in.RequestID, Payload: in.Payload}))
	answered := time.Since(began)
	p := &posted{Intent: in, txID: created.TxID}
	l.mu.Lock()
	l.posted, l.did.answers = append(l.posted, p), append(l.did.answers, answered)
	l.mu.Unlock()
	cell := steps.Value(l.callers.Of(in.Submitter))
	waiting, cancel := context.WithTimeout(ctx, l.endWithin())
	defer cancel()
	tx := steps.Value(cell.WaitTx(waiting, created.TxID))
	l.mu.Lock()
	defer l.mu.Unlock()
	p.state, p.subState = tx.State, tx.SubState
	if tx.State == client.Confirmed {
		l.did.confirmed++
	}
	if tx.ConfirmedAt != nil {
		l.did.ends = append(l.did.ends, tx.ConfirmedAt.Sub(tx.CreatedAt))
	}
	if l.counted {
		l.done.Add(1)
	}
	return nil
}

// endWithin bounds the wait for a transaction. A lost cell ends none.
func (l *load) endWithin() time.Duration {
	if l.counted {
		return time.Minute
	}
	return 2 * refusedWithin
}

// awaitCosts waits until each answered invocation has reported its cost.
func (l *load) awaitCosts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, costsWithin)
	defer cancel()
	retry.Await(ctx, showEvery, func() bool {
		served := l.cell.URLMap.Stats()
		return !slices.ContainsFunc(slices.Concat(makers, watchers), func(f string) bool {
			return served[f].InFlight > 0 || l.cell.Costs.Of(f).Invocations < served[f].Invocations
		})
	})
}

// phase returns what the cell did in this load, which has ended. The argument has the cell's counts at its end.
func (l *load) phase(counted phase) phase {
	p := l.did
	p.made, p.watched = counted.made.Minus(l.before.made), counted.watched.Minus(l.before.watched)
	p.called, p.failed = counted.called-l.before.called, counted.failed-l.before.failed
	return p
}
