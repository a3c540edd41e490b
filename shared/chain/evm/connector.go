// Package evm connects the transaction manager to one EVM chain over JSON-RPC HTTP. A [Connector] uses
// one node, so that one answer never mixes the observations of two.
//
// Calls are sent in JSON-RPC batches (https://www.jsonrpc.org/specification#batch), one HTTP round trip
// for each query of the transaction manager. Concurrent queries share HTTP requests. Only this package interprets the nodes' texts.
package evm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Default limits.
const (
	DefaultTimeout  = 10 * time.Second // rpc.timeout
	DefaultMaxBatch = 1000             // go-ethereum's default limit of calls in one batch
	defaultSlots    = 100              // rpc.maxInFlight
)

// Bytes of one HTTP request and of its answer. go-ethereum refuses requests of more than 5 MiB and
// stops answering a batch at 25 MB.
const (
	maxRequestBytes = 4 << 20
	maxAnswerBytes  = 64 << 20
)

// minBatch has room for one call beside those that every batch may need.
const minBatch = 2 * reserved

// The options of a node, and their parts.
type (
	Options = chain.NodeOptions
	Fees    = chain.Fees
)

// Connector implements [txmanager.ChainConnector]. It can be used concurrently.
type Connector struct {
	chainID  uint64
	fees     Fees
	depth    *uint64 // Options.FinalDepth
	node     string
	timeout  time.Duration
	maxBatch int
	client   *rpc.Client
	took     func(ctx context.Context, method string, took time.Duration)
	idle     interface{ CloseIdleConnections() }
	slots    chain.RequestSlots // one element for each running round trip
	verified atomic.Bool        // the node has reported chainID once
	recent   *recent
	blocks   offer // offers all receipts of a block
	headers  offer // offers a header without its block
	queries  *sharer
	sends    *sharer
}

var _ txmanager.ChainConnector = (*Connector)(nil)

// New returns a connector without connecting; the first query connects. Its error names the invalid
// option.
func New(o Options) (*Connector, error) {
	at, err := url.Parse(o.URL)
	if err != nil || (at.Scheme != "http" && at.Scheme != "https") || at.Host == "" {
		return nil, errors.New("node URL: want http://host:port/… or https://host/…") // may contain credentials, so the URL is not shown
	}
	if o.ChainID == 0 {
		return nil, errors.New("chain id 0: want the chain's EIP-155 id")
	}
	if o, err = withDefaults(o, at); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // the environment's would see the credentials of the URL
	transport.MaxIdleConnsPerHost = cap(o.RequestSlots)
	c := &Connector{chainID: o.ChainID, fees: o.Fees, depth: o.FinalDepth, node: o.Node, timeout: o.Timeout, maxBatch: o.MaxBatch,
		idle: transport, slots: o.RequestSlots, took: o.Took, recent: newRecent()}
	web := &http.Client{
		Transport: &counted{transport, o.OnRoundTrip},
		// A redirect would send the bytes and the credentials to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if c.client, err = rpc.DialOptions(context.Background(), o.URL, rpc.WithHTTPClient(web)); err != nil {
		return nil, fmt.Errorf("node %s: %w", o.Node, scrub(err))
	}
	c.queries, c.sends = c.newSharer(), c.newSharer()
	return c, nil
}

// withDefaults returns the options of the node at an address, with the defaults for those that are not set.
func withDefaults(o Options, at *url.URL) (Options, error) {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.MaxBatch = cmp.Or(o.MaxBatch, DefaultMaxBatch)
	o.Node = cmp.Or(o.Node, at.Host) // without user and password
	if o.Timeout < 0 || o.MaxBatch < minBatch {
		return o, fmt.Errorf("time-out %s, batches of %d: want a positive time-out, and batches of %d or more", o.Timeout, o.MaxBatch, minBatch)
	}
	if o.OnRoundTrip == nil {
		o.OnRoundTrip = func(context.Context) func(error) { return func(error) {} }
	}
	if o.Took == nil {
		o.Took = func(context.Context, string, time.Duration) {}
	}
	if o.RequestSlots == nil {
		o.RequestSlots = chain.NewRequestSlots(defaultSlots)
	}
	return o, nil
}

// Name returns the node's name in evidence.
func (c *Connector) Name() string { return c.node }

// VerifyAgain makes the next round trip verify the node's chain id again, because another node may have
// its address by now.
func (c *Connector) VerifyAgain() { c.verified.Store(false) }

// Close closes idle connections. The connector can still be used.
func (c *Connector) Close() { c.idle.CloseIdleConnections() }

// counted reports each request and limits how much is read of an answer.
type counted struct {
	next        http.RoundTripper
	onRoundTrip func(context.Context) (end func(error))
}

func (t *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	end := t.onRoundTrip(r.Context())
	response, err := t.next.RoundTrip(r)
	end(err)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxAnswerBytes)
	}
	return response, err
}

// scrub removes from an error the URL, which may have credentials in user, path or query, and the
// answer's body, which may repeat it.
func scrub(err error) error {
	if web, ok := errors.AsType[*url.Error](err); ok {
		err = web.Err
	}
	if status, ok := errors.AsType[rpc.HTTPError](err); ok {
		return statusError(status.StatusCode)
	}
	if failed, ok := errors.AsType[*net.OpError](err); ok { // without the address: callers may see this error
		return fmt.Errorf("%s: %w", failed.Op, failed.Err)
	}
	return err
}

// statusError is the status of an answer other than 200.
type statusError int

func (s statusError) Error() string {
	return fmt.Sprintf("HTTP status %d %s", int(s), http.StatusText(int(s)))
}
