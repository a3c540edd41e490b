// Package google opens the clients of Google's services at their first use.
package google

import (
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// Client is a client that its first use opens. After a failure the next use tries again. It can be
// used concurrently.
type Client[C io.Closer] struct {
	service string
	open    func() (C, error)

	mu     sync.Mutex
	client *C // nil: not opened yet
}

// NewClient returns the client of a service without opening it. The client outlives the request that opens
// it, so open must not use that request's context.
func NewClient[C io.Closer](service string, open func() (C, error)) *Client[C] {
	return &Client[C]{service: service, open: open}
}

// Get returns the opened client.
func (c *Client[C]) Get() (client C, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		return *c.client, nil
	}
	if client, err = c.open(); err != nil {
		return client, fmt.Errorf("connect to %s: %w", c.service, err)
	}
	c.client = &client
	return client, nil
}

// Close closes the client, if it was opened.
func (c *Client[C]) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		return nil
	}
	return (*c.client).Close()
}

// Options are those of a client at an endpoint: host:port of a local service without TLS; "": Google's.
func Options(endpoint string) []option.ClientOption {
	options := []option.ClientOption{option.WithTelemetryDisabled()}
	if endpoint != "" {
		options = append(options, option.WithEndpoint(endpoint), option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	}
	return options
}

// ReconnectSoon bounds the time until a service that is available again is used again. gRPC's own bound is two
// minutes.
var ReconnectSoon = option.WithGRPCDialOption(grpc.WithConnectParams(grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}))
