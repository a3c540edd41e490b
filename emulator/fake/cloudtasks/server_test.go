package cloudtasks_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
)

func TestCloseCancelsDeliveriesInFlight(t *testing.T) {
	t.Parallel()
	b, queue := running(t)
	left := make(chan struct{})
	b.target.answers(func(_ int, _ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(left)
	})
	b.create(queue, b.task(queue, "x"))
	b.wait(1)
	b.server.Close()
	<-left
	b.server.Close()
}

// stubborn is a transport whose requests outlive their cancellation until they
// are let go.
type stubborn struct {
	letGo     chan struct{}
	cancelled chan struct{}
	idle      atomic.Bool // whether idle connections were closed
}

func (s *stubborn) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	close(s.cancelled)
	<-s.letGo
	return nil, r.Context().Err()
}

func (s *stubborn) CloseIdleConnections() { s.idle.Store(true) }

func TestCloseWaitsForDeliveriesAndClosesIdleConnections(t *testing.T) {
	t.Parallel()
	transport := &stubborn{letGo: make(chan struct{}), cancelled: make(chan struct{})}
	b, queue := running(t)
	b.server.SendBy(transport)
	b.create(queue, b.task(queue, "x"))
	b.eventually("a delivery", func() bool { return b.server.Stats()[queue].Dispatched == 1 })
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		b.server.Close()
	}()
	<-transport.cancelled
	select {
	case <-closed:
		t.Error("got Close back with a delivery in flight, want it to wait")
	case <-time.After(50 * time.Millisecond):
	}
	close(transport.letGo)
	<-closed
	if !transport.idle.Load() {
		t.Error("got idle connections left open, want them closed")
	}
}

// BenchmarkDispatch creates and delivers named tasks over eight queues at their
// highest rate. What the project needs is 2,000 a second on one core
// (go test -bench . -benchtime 20000x -cpu 1).
func BenchmarkDispatch(b *testing.B) {
	bn := newBench(b, cloudtasks.Options{})
	queues := make([]string, 8)
	for i := range queues {
		queues[i] = bn.queue(fmt.Sprint("q", i), nil)
	}
	var next atomic.Int64
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := next.Add(1)
			queue := queues[n%int64(len(queues))]
			if err := bn.try(queue, bn.task(queue, fmt.Sprint("t", n))); err != nil {
				b.Error(err)
			}
		}
	})
	for _, queue := range queues {
		bn.settled(queue)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}
