package serve

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// collectedEvents lists the submitters for which one invocation has made events.
type collectedEvents struct {
	mu sync.Mutex
	of []txmanager.Submitter
}

type madeKey struct{}

// LogEvents returns what receives from the store the events that a round trip made.
func LogEvents(log *slog.Logger) func(context.Context, store.CommittedEvents) {
	return func(ctx context.Context, news store.CommittedEvents) {
		events.Log(ctx, log, news.Events)
		if made, ok := ctx.Value(madeKey{}).(*collectedEvents); ok {
			made.mu.Lock()
			defer made.mu.Unlock()
			made.of = append(made.of, news.Of...)
		}
	}
}

// CollectEvents returns a context in which events are collected. The function deliver then enqueues
// one publish task for each delivery queue. The sweep enqueues what fails.
func (b *Base) CollectEvents(ctx context.Context) (inner context.Context, deliver func()) {
	made := new(collectedEvents)
	return context.WithValue(ctx, madeKey{}, made), func() {
		made.mu.Lock()
		defer made.mu.Unlock()
		slices.Sort(made.of)
		var streams []events.DeliveryQueue
		for _, s := range slices.Compact(made.of) {
			for _, endpoint := range b.Endpoints {
				streams = append(streams, events.DeliveryQueue{Submitter: s, Endpoint: endpoint})
			}
		}
		if len(streams) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), EnqueueTimeout)
		defer cancel()
		now := time.Now()
		failed, first := MakeTasks(ctx, streams, func(s events.DeliveryQueue) error { return b.Tasks.Publish(ctx, s, now) })
		if failed > 0 {
			b.Log.WarnContext(ctx, "no publish tasks: the sweep will find the events", "deliveryQueues", failed, "of", len(streams), "error", first.Error())
		}
	}
}

// DeliverAfter serves a request by h. After the answer it enqueues delivery of the events that h made.
func (b *Base) DeliverAfter(h Handler) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx, deliver := b.CollectEvents(r.Context())
		err := h(w, r.WithContext(ctx))
		if err == nil && len(b.Endpoints) > 0 {
			_ = http.NewResponseController(w).Flush() // the caller has its answer without waiting for the tasks, if the connection can flush
		}
		deliver()
		return err
	}
}
