// Package evm connects the transaction manager to one EVM chain over JSON-RPC
// HTTP. A [Connector] speaks to one node: what it says in one answer comes from
// one place, so that a judgement never mixes the views of two.
//
// Calls travel in JSON-RPC batches (https://www.jsonrpc.org/specification#batch),
// one HTTP round trip for each question of the transaction manager. Node texts
// are turned into meaning here and nowhere else.
package evm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/nonce"
)

// Limits that hold where [Options] say nothing.
const (
	DefaultTimeout     = 10 * time.Second // rpc.timeout
	DefaultMaxInFlight = 100              // rpc.maxInFlight
	DefaultMaxBatch    = 1000             // go-ethereum's default limit of calls in one batch
)

// Bytes of one HTTP request and of its answer. go-ethereum refuses requests of
// more than 5 MiB and stops answering a batch at 25 MB.
const (
	maxRequestBytes = 4 << 20
	maxAnswerBytes  = 64 << 20
)

// minBatch leaves room for one question beside those that every batch may need.
const minBatch = 2 * reserved

// ErrWrongChain reports a node, or a submitter, of another chain than the
// connector's.
var ErrWrongChain = errors.New("wrong chain")

// ErrNoPlace reports a round trip that got none of rpc.maxInFlight's places in its time.
// No node was asked.
var ErrNoPlace = errors.New("no free place for a round trip")

// Options say which node to speak to.
type Options struct {
	URL         string                // http or https; may hold credentials, which are never shown
	ChainID     uint64                // EIP-155 id that the node must answer for
	Timeout     time.Duration         // of one round trip, waiting for a free place included; 0: [DefaultTimeout]
	MaxInFlight int                   // round trips at once, further ones wait; 0: [DefaultMaxInFlight]
	Places      Places                // shared with other connectors, in place of MaxInFlight; nil: its own
	MaxBatch    int                   // calls in one round trip; a question of more takes several; 0: [DefaultMaxBatch]
	Fees        Fees                  // how gas is priced
	FinalDepth  *uint64               // of a chain that has no tag "finalized": how many blocks below the head a count is final; nil: the tag says so
	OnRoundTrip func(context.Context) // called before each HTTP request is sent; nil: nothing is
	Trace       Trace                 // begins a span of each HTTP request; nil: nothing does
	Node        string                // the node's name as evidence; "": host and port of URL
}

// Places are taken by round trips, one each: those of all connectors that share them
// are never more at once.
type Places chan struct{}

// NewPlaces makes n of them.
func NewPlaces(n int) Places { return make(Places, n) }

// Trace begins a span in ctx, and gives its context and what ends it.
type Trace func(ctx context.Context, name string) (context.Context, func(error))

// Connector implements [nonce.ChainConnector]. It may be used from many
// goroutines.
type Connector struct {
	chainID  uint64
	fees     Fees
	depth    *uint64 // Options.FinalDepth
	node     string
	timeout  time.Duration
	maxBatch int
	client   *rpc.Client
	idle     interface{ CloseIdleConnections() }
	places   Places      // one element for each round trip under way
	verified atomic.Bool // the node has answered for chainID once
	recent   recent
	blocks   offer // of all receipts of a block
	headers  offer // of a header without its block
}

var _ nonce.ChainConnector = (*Connector)(nil)

// New makes a connector without connecting: the first question does. Its error
// names the option that is wrong.
func New(o Options) (*Connector, error) {
	at, err := url.Parse(o.URL)
	if err != nil || (at.Scheme != "http" && at.Scheme != "https") || at.Host == "" {
		return nil, errors.New("node URL: want http://host:port/… or https://host/…") // may hold credentials: not shown
	}
	if o.ChainID == 0 {
		return nil, errors.New("chain id 0: want the chain's EIP-155 id")
	}
	if err := o.setDefaults(at); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // the environment's would see the credentials of the URL
	transport.MaxIdleConnsPerHost = o.MaxInFlight
	c := &Connector{chainID: o.ChainID, fees: o.Fees, depth: o.FinalDepth, node: o.Node, timeout: o.Timeout, maxBatch: o.MaxBatch,
		idle: transport, places: o.Places}
	web := &http.Client{
		Transport: &counted{transport, o.OnRoundTrip, o.Trace},
		// A redirect would take the bytes, and the credentials, elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if c.client, err = rpc.DialOptions(context.Background(), o.URL, rpc.WithHTTPClient(web)); err != nil {
		return nil, fmt.Errorf("node %s: %w", o.Node, scrub(err))
	}
	return c, nil
}

func (o *Options) setDefaults(at *url.URL) error {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = DefaultMaxInFlight
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = DefaultMaxBatch
	}
	if o.Timeout < 0 || o.MaxInFlight < 0 || o.MaxBatch < minBatch {
		return fmt.Errorf("time-out %s, %d in flight, batches of %d: want a positive time-out and number in flight, and batches of %d or more",
			o.Timeout, o.MaxInFlight, o.MaxBatch, minBatch)
	}
	if o.OnRoundTrip == nil {
		o.OnRoundTrip = func(context.Context) {}
	}
	if o.Places == nil {
		o.Places = NewPlaces(o.MaxInFlight)
	}
	if o.Trace == nil {
		o.Trace = func(ctx context.Context, _ string) (context.Context, func(error)) { return ctx, func(error) {} }
	}
	if o.Node == "" {
		o.Node = at.Host // without user and password
	}
	return nil
}

// Node is the node's name, as in evidence.
func (c *Connector) Node() string { return c.node }

// VerifyAgain has the next round trip ask the node anew which chain it is on: behind
// its address there may be another by now.
func (c *Connector) VerifyAgain() { c.verified.Store(false) }

// Close frees the connections that are not in use. The connector stays usable.
func (c *Connector) Close() { c.idle.CloseIdleConnections() }

// counted counts requests and bounds what is read of an answer.
type counted struct {
	next        http.RoundTripper
	onRoundTrip func(context.Context)
	trace       Trace
}

func (t *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	t.onRoundTrip(r.Context())
	_, end := t.trace(r.Context(), "chain")
	response, err := t.next.RoundTrip(r)
	end(err)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxAnswerBytes)
	}
	return response, err
}

// scrub takes the URL, which may hold credentials in user, path or query, and
// the answer's body, which may repeat it, out of an error.
func scrub(err error) error {
	if web, ok := errors.AsType[*url.Error](err); ok {
		err = web.Err
	}
	if status, ok := errors.AsType[rpc.HTTPError](err); ok {
		return httpStatus(status.StatusCode)
	}
	if failed, ok := errors.AsType[*net.OpError](err); ok { // without the address: callers may read this
		return fmt.Errorf("%s: %w", failed.Op, failed.Err)
	}
	return err
}

// httpStatus is the status of an answer that is none.
type httpStatus int

func (s httpStatus) Error() string {
	return fmt.Sprintf("HTTP status %d %s", int(s), http.StatusText(int(s)))
}
