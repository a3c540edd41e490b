package serve

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// EnqueueTimeout bounds all CreateTask calls of one batch. The sweep enqueues the submitters that have
// no task by then.
const EnqueueTimeout = 5 * time.Second

// tasksAtOnce bounds the concurrent CreateTask calls of one request.
const tasksAtOnce = 16

// MakeTasks calls one for each element, several at once. It continues after a failure and starts no
// further call once ctx has ended. It returns how many elements got no task, and the first error.
func MakeTasks[T any](ctx context.Context, found []T, one func(T) error) (failed int, first error) {
	var (
		group sync.WaitGroup
		next  atomic.Int64
		mu    sync.Mutex
	)
	for range min(tasksAtOnce, len(found)) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(found); i = int(next.Add(1)) - 1 {
				err := ctx.Err()
				if err == nil {
					err = one(found[i])
				}
				if err != nil {
					mu.Lock()
					failed, first = failed+1, cmp.Or(first, err)
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return failed, first
}
