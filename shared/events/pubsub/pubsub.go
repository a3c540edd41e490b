// Package pubsub publishes events to a topic of Cloud Pub/Sub, and is the only user of its client.
//
// A message's data is the event's body. Its ordering key is the submitter, so that a subscription
// with message ordering gets each submitter's events in order. Its attributes are txId, type,
// sequence, submitter and caller: subscriptions can filter by them, and subscribers detect
// repetitions.
package pubsub

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencepost/fencepost/shared/google"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// publishWithin bounds one request with all repetitions of the client. It must end well within a
// lease.
const publishWithin = 4 * time.Second

// Topic is a Pub/Sub topic. Its methods can be called concurrently.
type Topic struct{ client *google.Client[connection] }

// connection is an open client with its publisher to the topic.
type connection struct {
	*pubsub.Publisher
	client *pubsub.Client
}

// Close implements [io.Closer].
func (c connection) Close() error {
	c.Stop()
	return c.client.Close()
}

// New returns the topic projects/P/topics/T at the endpoint (host:port of a local service without
// TLS; "": Google's). It connects at the first use.
func New(topic, endpoint string) *Topic {
	return &Topic{google.NewClient("Pub/Sub", func() (connection, error) {
		client, err := pubsub.NewClient(context.Background(), strings.Split(topic, "/")[1], google.Options(endpoint)...)
		if err != nil {
			return connection{}, err
		}
		p := client.Publisher(topic)
		p.EnableMessageOrdering = true
		p.PublishSettings.DelayThreshold = time.Millisecond // publish a page at once
		p.PublishSettings.Timeout = publishWithin
		return connection{p, client}, nil
	})}
}

// Publish implements [txmanager.DomainEventPublisher]. When it returns no message is under way any
// more, unless ctx has ended.
func (t *Topic) Publish(ctx context.Context, all []txmanager.Event) (taken int, err error) {
	p, err := t.client.Get()
	if err != nil {
		return 0, err
	}
	results := make([]*pubsub.PublishResult, len(all))
	for i, e := range all {
		results[i] = p.Publish(ctx, message(e))
	}
	for i, r := range results {
		if _, one := r.Get(ctx); err == nil && one != nil {
			taken, err = i, classify(one)
		}
	}
	if err != nil { // the client rejects further messages with this key until ResumePublish
		p.ResumePublish(string(all[0].Submitter))
		return taken, err
	}
	return len(all), nil
}

func message(e txmanager.Event) *pubsub.Message {
	return &pubsub.Message{
		Data: e.Body, OrderingKey: string(e.Submitter),
		Attributes: map[string]string{
			"txId": e.TxID, "type": string(e.Type), "sequence": strconv.Itoa(e.Sequence),
			"submitter": string(e.Submitter), "caller": e.Caller,
		},
	}
}

// classify returns why a message was not accepted, without the service's own text. Only
// InvalidArgument concerns a single message; every other code concerns the service.
func classify(err error) error {
	switch code := status.Code(err); {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("Pub/Sub did not answer in time: %w", txmanager.ErrNoAnswer)
	case code == codes.InvalidArgument:
		return errors.New("Pub/Sub answered InvalidArgument")
	case code == codes.Unknown:
		return fmt.Errorf("Pub/Sub was not reached: %w", txmanager.ErrNoAnswer)
	default:
		return fmt.Errorf("Pub/Sub answered %s: %w", code, txmanager.ErrNoAnswer)
	}
}

// Close closes the connection, if there is one.
func (t *Topic) Close() error {
	if t == nil {
		return nil
	}
	return t.client.Close()
}
