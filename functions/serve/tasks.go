package serve

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// Task serves a task with a body of type Body. The function do has until a second before the deadline. The answer is 204 if the
// task has done its part. Any other answer makes Cloud Tasks retry the task.
func Task[Body any](b *Base, do func(r *http.Request, body Body) error) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		body, err := web.Decode[Body](w, r, b.MaxBodyBytes)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(r.Context(), b.Deadline-time.Second)
		defer cancel()
		if err := do(r.WithContext(ctx), body); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// EnqueueAdvance enqueues an advance, even if the caller has disconnected. If that fails, the sweep finds the submitter's queue, and
// the log has the attributes.
func (b *Base) EnqueueAdvance(ctx context.Context, s txmanager.Submitter, token int64, attributes ...any) {
	if err := b.Tasks.EnqueueAdvance(context.WithoutCancel(ctx), s, token); err != nil {
		b.Log.WarnContext(ctx, "no advance task: the sweep will find the intent",
			slices.Concat([]any{telemetry.SubmitterKey, s}, attributes, []any{"error", err.Error()})...)
	}
}

// EnqueueTimeout bounds all CreateTask calls of one batch. The sweep enqueues the submitters that have
// no task by then.
const EnqueueTimeout = 5 * time.Second

// tasksAtOnce bounds the concurrent CreateTask calls of one request.
const tasksAtOnce = 16

// MakeTasks calls one for each element, several at once. It continues after a failure and starts no
// further call once ctx has ended. It returns how many elements got no task, and the first error.
func MakeTasks[T any](ctx context.Context, found []T, one func(T) error) (failed int, first error) {
	var mu sync.Mutex
	Each(tasksAtOnce, found, func(_ int, of T) {
		err := ctx.Err()
		if err == nil {
			err = one(of)
		}
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed, first = failed+1, cmp.Or(first, err)
		}
	})
	return failed, first
}

// Each calls do for each element, at most limit calls at once, and returns when all have returned.
func Each[T any](limit int, all []T, do func(i int, of T)) {
	var group sync.WaitGroup
	places := make(chan struct{}, limit)
	for i, of := range all {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			do(i, of)
		})
	}
	group.Wait()
}
