package evm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/chain"
)

// reserved is how many calls a batch may need in addition: the chain id, and the two that show that the
// chain did not change.
const reserved = 3

// call is one JSON-RPC call and, after its round trip, the node's answer.
type call struct {
	method string
	args   []any
	size   int  // approximate bytes of the request
	header bool // only the header of the requested block is read
	proof  bool // directly before the last head; see [chainQuery.closing]

	raw json.RawMessage // the result, may be null
	err error           // why there is no result
}

func ask(method string, args ...any) *call {
	size := 100
	for _, a := range args {
		switch a := a.(type) {
		case string:
			size += len(a)
		case estimateArgs:
			size += 200 + 2*len(a.Data)
		}
	}
	return &call{method: method, args: args, size: size, err: errors.New("not asked")}
}

// askEach returns a call for each of the list.
func askEach[T any](list []T, about func(T) *call) []*call {
	calls := make([]*call, len(list))
	for i, one := range list {
		calls[i] = about(one)
	}
	return calls
}

// into decodes the result. A null result is an error; where null has a meaning, the caller must check
// for it first.
func (a *call) into(v any) error {
	if a.err != nil {
		return fmt.Errorf("%s: %w", a.method, a.err)
	}
	if a.null() {
		return fmt.Errorf("%s: the node answered null", a.method)
	}
	if err := json.Unmarshal(a.raw, v); err != nil {
		return fmt.Errorf("%s: %w", a.method, err)
	}
	return nil
}

func (a *call) null() bool {
	return a.err == nil && bytes.Equal(bytes.TrimSpace(a.raw), []byte("null"))
}

// split divides calls into batches that a node accepts, in order.
func (c *Connector) split(calls []*call) [][]*call {
	var batches [][]*call
	start, size := 0, 0
	for i, a := range calls {
		if i > start && (i-start == c.maxBatch-reserved || size+a.size > maxRequestBytes) {
			batches = append(batches, calls[start:i])
			start, size = i, 0
		}
		size += a.size
	}
	if start < len(calls) {
		batches = append(batches, calls[start:])
	}
	return batches
}

// roundTrip makes calls in one HTTP request of their own. After an error no part of the answer counts:
// there is none, or the node is on another chain.
func (c *Connector) roundTrip(ctx context.Context, calls []*call) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.request(ctx, calls, nil)
}

// roundTrips makes calls in as many HTTP requests as a node needs for them.
func (c *Connector) roundTrips(ctx context.Context, calls []*call) error {
	for _, batch := range c.split(calls) {
		if err := c.roundTrip(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// request makes calls in one HTTP request, once it has a slot. If several members share it, half of the
// time remains for each to repeat its calls.
func (c *Connector) request(ctx context.Context, calls []*call, members []*member) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return c.noSlot(ctx)
	}
	for _, m := range members {
		m.began.Store(true)
	}
	shared := len(members) > 1
	if shared {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout/2)
		defer cancel()
	}
	verified, id := c.verified.Load(), ask("eth_chainId")
	if !verified {
		calls = append([]*call{id}, calls...)
	}
	err := c.exchange(ctx, calls, shared)
	if err == nil && !verified && shared && id.isCutOff() {
		err = id.err
	}
	switch {
	case err != nil && shared:
		return batch.AloneError{Cause: err}
	case err != nil || verified:
		return err
	}
	return c.verify(id)
}

// exchange requests headers, and then whole blocks if the node does not give headers.
func (c *Connector) exchange(ctx context.Context, calls []*call, shared bool) error {
	if !c.headers.offered() || !slices.ContainsFunc(calls, func(a *call) bool { return a.header }) {
		return c.post(ctx, calls, false)
	}
	err := c.post(ctx, calls, true)
	lacks := func(a *call) bool { return a.withoutHeader(c.fees) && !(shared && a.isCutOff()) }
	if err == nil && !slices.ContainsFunc(calls, lacks) || err != nil && (shared || !refusedWhole(err)) {
		return err
	}
	c.headers.refused()
	return c.post(ctx, calls, false)
}

// post makes one HTTP request; short requests headers instead of blocks.
func (c *Connector) post(ctx context.Context, calls []*call, short bool) error {
	elems := make([]rpc.BatchElem, len(calls))
	for i, a := range calls {
		elems[i] = a.elem(short)
	}
	began := time.Now()
	err := c.client.BatchCallContext(ctx, elems)
	c.tellTime(ctx, elems, time.Since(began))
	if err != nil {
		return scrub(err)
	}
	for i, a := range calls {
		a.err = elems[i].Error
	}
	return nil
}

// tellTime tells the time of a round trip, once for each of its methods.
func (c *Connector) tellTime(ctx context.Context, elems []rpc.BatchElem, took time.Duration) {
	for i, e := range elems {
		if !slices.ContainsFunc(elems[:i], func(before rpc.BatchElem) bool { return before.Method == e.Method }) {
			c.took(ctx, e.Method, took)
		}
	}
}

func (c *Connector) verify(chainID *call) error {
	var id hexutil.Uint64
	if err := chainID.into(&id); err != nil {
		return err
	}
	if uint64(id) != c.chainID {
		return fmt.Errorf("the node answers for chain %d, want %d: %w", uint64(id), c.chainID, chain.ErrWrongChain)
	}
	c.verified.Store(true)
	return nil
}

// maxText bounds a node's text in results, in bytes.
const maxText = 300

// shorten bounds a node's text for logs and for a text column, which accepts no NUL.
func shorten(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return strings.ToValidUTF8(text, "")
}
