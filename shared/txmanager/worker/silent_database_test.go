package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/session/sessiontest"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// silentStore is a database behind a network that loses all packets.
type silentStore struct{ txmanager.Store }

func (silentStore) Commit(ctx context.Context, _ txmanager.Commit) (txmanager.CommitResult, error) {
	<-ctx.Done()
	return txmanager.CommitResult{}, ctx.Err()
}

func (silentStore) BeginIteration(ctx context.Context, _ lease.Lease, _ bool) (txmanager.SubmitterState, error) {
	<-ctx.Done()
	return txmanager.SubmitterState{}, ctx.Err()
}

func (silentStore) Renew(ctx context.Context, l lease.Lease) (lease.Lease, error) {
	<-ctx.Done()
	return l, ctx.Err()
}

// An invocation without an answer from the database stops one lease duration after its lease
// began, long before its deadline: another could take over by then.
func TestASilentDatabaseIsGivenUpByTheLease(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(context.Context, *invocation) error{
		"write": func(ctx context.Context, t *invocation) error {
			_, err := t.commit(ctx, txmanager.Commit{Allocations: []txmanager.Allocation{{}}}, false)
			return err
		},
		"next round": func(ctx context.Context, t *invocation) error { return t.beginIteration(ctx) },
		"renew":      func(ctx context.Context, t *invocation) error { return t.RenewLease(ctx) },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := txtest.StateOf(1, 5)
			w.Lease = lease.New("alice", "node-1/a", 7, time.Now().Add(-4*time.Second), sessiontest.Timing.Lease.Duration)
			tn := invocationBy(&Worker{Service: sessiontest.Service(rulesOf(3), silentStore{})}, session.Session{Kind: txmanager.KindAdvance, State: w})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // the invocation's
			defer cancel()
			began := time.Now()
			err := ask(ctx, tn)
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 16*time.Second {
				t.Errorf("%s, 6 s before a lease of 10 s ends: got %v after %v, want a time-out after 16s", name, err, took)
			}
		})
	}
}
