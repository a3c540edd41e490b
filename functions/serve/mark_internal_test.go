package serve

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/mark"
)

// foreignMark is another database's mark, and a database that does not know it.
type foreignMark struct {
	mark.Object
	mark.Store
	judged int
	asked  chan struct{} // closed by the second read; nil: no read waits
	answer chan struct{} // closed to let the second read continue
	reads  int
}

func (f *foreignMark) Read(ctx context.Context) (mark.Observed, error) {
	if f.reads++; f.reads == 2 && f.asked != nil {
		close(f.asked)
		<-f.answer
	}
	return mark.Observed{Mark: mark.Mark{ID: "other"}, Generation: 1}, ctx.Err()
}

func (f *foreignMark) Evaluate(ctx context.Context, _ mark.Observed) (mark.Verdict, error) {
	f.judged++
	return mark.Foreign, ctx.Err()
}

// A caller that disconnects does not stop the process from comparing the database.
func TestComparisonOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	f := &foreignMark{}
	m := &Mark{keeper: mark.Keeper{Object: f, Book: f}}
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	for _, ctx := range []context.Context{gone, t.Context()} {
		if err := m.Compare(ctx, slog.New(slog.DiscardHandler)); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if f.judged == 0 {
		t.Error("the caller hung up: the database was not compared, and the next request was let through")
	}
}

// A storage that does not answer delays only the one request that compares again.
func TestRequestsContinueWhileOneComparesAgain(t *testing.T) {
	t.Parallel()
	f := &foreignMark{asked: make(chan struct{}), answer: make(chan struct{})}
	m := &Mark{keeper: mark.Keeper{Object: f, Book: f}}
	log := slog.New(slog.DiscardHandler)
	check.OK(t)(m.Compare(t.Context(), log))
	m.next = time.Time{}
	var looking sync.WaitGroup
	looking.Go(func() { _ = m.Compare(t.Context(), log) })
	<-f.asked
	if err := m.Compare(t.Context(), log); err != nil || m.mu.TryLock() {
		t.Errorf("a request beside the look: got %v, want it to go on while the look is under way", err)
	}
	close(f.answer)
	looking.Wait()
}
