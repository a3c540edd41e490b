package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Many invocations at once, each with a separate intent, either hold the lease or set the
// rerun flag. The next iteration serves a flag set under its token and sees the intent. No
// release under that token misses it.
func TestH25MarkAndReleaseAreAtomic(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 25
	db := storetest.New(t)
	db.Register(t, alice, 1000)
	h := history{loads: map[int64]map[string]bool{}, releases: map[int64]bool{}}
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for i := range each {
				if err := h.invocation(t.Context(), db, fmt.Sprintf("%d/%d", worker, i)); err != nil {
					t.Errorf("invocation %d/%d: %v", worker, i, err)
					return
				}
			}
		})
	}
	all.Wait()
	h.check(t)
	end := value[string](t, db, `select owner_node || ' ' || rerun_requested from submitter_lease`)
	if end != " false" {
		t.Errorf("owner and mark at the end: got %q, want no owner and no mark", end)
	}
}

// history is what invocations saw, by token.
type history struct {
	sync.Mutex
	loads    map[int64]map[string]bool // the queue that was loaded
	releases map[int64]bool
	marks    []mark
}

// mark is a rerun flag set under a token by an invocation that had stored an intent.
type mark struct {
	token int64
	txID  string
}

// invocation posts an intent and serves the queue, or leaves it to the holder.
func (h *history) invocation(ctx context.Context, db storetest.Bundle, name string) error {
	created, err := db.Create(ctx, intent(alice, name), 10_000)
	if err != nil {
		return err
	}
	taken, err := db.Acquire(ctx, alice, name, true)
	if err != nil {
		return err
	}
	if !taken.Held {
		h.Lock()
		defer h.Unlock()
		h.marks = append(h.marks, mark{taken.Token, created.TxID})
		return nil
	}
	for w := taken.State; ; {
		if err := h.recordLoad(w); err != nil {
			return err
		}
		done, err := db.Commit(ctx, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})
		if err != nil {
			return err
		}
		if done.Released {
			h.Lock()
			defer h.Unlock()
			h.releases[done.Token] = true
			return nil
		}
		if w, err = db.BeginIteration(ctx, w.Lease, true); err != nil {
			return err
		}
	}
}

func (h *history) recordLoad(w txmanager.SubmitterState) error {
	h.Lock()
	defer h.Unlock()
	if h.loads[w.Lease.Token] != nil {
		return fmt.Errorf("token %d was given twice: %w", w.Lease.Token, lease.ErrFenced)
	}
	seen := map[string]bool{}
	for _, q := range w.Queue {
		seen[q.ID] = true
	}
	h.loads[w.Lease.Token] = seen
	return nil
}

func (h *history) check(t *testing.T) {
	t.Helper()
	if len(h.marks) == 0 || len(h.releases) < 2 {
		t.Fatalf("got %d marks and %d releases: nothing met", len(h.marks), len(h.releases))
	}
	for _, m := range h.marks {
		if h.releases[m.token] {
			t.Errorf("a mark was left under token %d, and the lease was released under it", m.token)
		}
		if !h.loads[m.token+1][m.txID] {
			t.Errorf("the look after the mark under token %d missed the intent it was left for", m.token)
		}
	}
	t.Logf("%d loads, %d marks, %d releases", len(h.loads), len(h.marks), len(h.releases))
}
