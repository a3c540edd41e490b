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
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// publishWithin bounds one request with all repetitions of the client. It must end well within a
// lease.
const publishWithin = 4 * time.Second

// Topic is a Pub/Sub topic. Its methods can be called concurrently.
type Topic struct {
	name, endpoint string

	connecting sync.Mutex
	client     *pubsub.Client
	publisher  *pubsub.Publisher
}

// New returns the topic projects/P/topics/T at the endpoint (host:port of a local service without
// TLS; "": Google's). It connects at the first use.
func New(topic, endpoint string) *Topic { return &Topic{name: topic, endpoint: endpoint} }

// Publish implements [txmanager.DomainEventPublisher]. When it returns no message is under way any
// more, unless ctx has ended.
func (t *Topic) Publish(ctx context.Context, all []txmanager.Event) (taken int, err error) {
	p, err := t.connect()
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

// connect opens the client once. After a failure the next call tries again. The client outlives the
// request that opens it, so it does not use that request's context.
func (t *Topic) connect() (*pubsub.Publisher, error) {
	t.connecting.Lock()
	defer t.connecting.Unlock()
	if t.publisher != nil {
		return t.publisher, nil
	}
	options := []option.ClientOption{option.WithTelemetryDisabled()}
	if t.endpoint != "" {
		options = append(options, option.WithEndpoint(t.endpoint), option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	}
	client, err := pubsub.NewClient(context.Background(), strings.Split(t.name, "/")[1], options...)
	if err != nil {
		return nil, fmt.Errorf("connect to Pub/Sub: %w", err)
	}
	t.client, t.publisher = client, client.Publisher(t.name)
	t.publisher.EnableMessageOrdering = true
	t.publisher.PublishSettings.DelayThreshold = time.Millisecond // publish a page at once
	t.publisher.PublishSettings.Timeout = publishWithin
	return t.publisher, nil
}

// Close closes the connection, if there is one.
func (t *Topic) Close() error {
	if t == nil {
		return nil
	}
	t.connecting.Lock()
	defer t.connecting.Unlock()
	if t.client == nil {
		return nil
	}
	t.publisher.Stop()
	return t.client.Close()
}
