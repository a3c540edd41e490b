package events

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// TestEvent is the type of the event that an operator sends to try an endpoint. No transaction made it.
const TestEvent txmanager.EventType = "EndpointTest"

// TestWithin is the age from which on a test is not sent any more.
const TestWithin = 5 * time.Minute

// Test sends the test event of that number to the endpoint, and records the answer. It ignores the endpoint's
// pause, its callers and its failures. A test that was answered before is not sent again.
func (w *Worker) Test(ctx context.Context, endpoint string, test int64) error {
	p := w.Publishers[endpoint]
	if p == nil { // it was configured when the test was requested
		w.Log.WarnContext(ctx, "no test event is sent: the endpoint is no longer configured", "endpoint", endpoint)
		return nil
	}
	at, open, err := w.Book.OpenTest(ctx, endpoint, test)
	if err != nil || !open {
		return err
	}
	if only, ok := p.(filter); ok {
		p = only.next
	}
	e := txmanager.Event{TxID: fmt.Sprintf("test-%d", test), Sequence: 1, Type: TestEvent}
	e.Body, _ = json.Marshal(map[string]any{ // strings: cannot fail
		"type": TestEvent, "timestamp": at.UTC().Format("2006-01-02T15:04:05.000000Z"), "data": map[string]any{"endpoint": endpoint},
	})
	calling, last := withAnswer(ctx)
	_, err = publish(calling, p, []txmanager.Event{e})
	switch {
	case *last != nil:
	case err != nil:
		*last = &Answer{Text: err.Error()}
	default:
		*last = new(Answer)
	}
	return w.Book.AnswerTest(ctx, endpoint, test, **last)
}
