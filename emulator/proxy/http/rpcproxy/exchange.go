package rpcproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
)

type call struct {
	Version string            `json:"jsonrpc"`
	ID      json.RawMessage   `json:"id"`
	Method  string            `json:"method"`
	Params  []json.RawMessage `json:"params"`

	got   *response // the proxy's answer, or the node's; nil: none yet
	above bool      // asks for a block that a lagging node does not have
}

type response struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

var null = json.RawMessage("null")

func (a *response) empty() bool { return a == nil || len(a.Result) == 0 || bytes.Equal(a.Result, null) }

type exchange struct {
	proxy  *Proxy
	faults *Faults
	calls  []*call
	single bool    // not a batch
	behind *behind // the lagging node that answers; nil: the node itself
}

// run returns the answer to the request. A body that is not JSON-RPC goes to the node unchanged.
func (x *exchange) run(ctx context.Context, body []byte) ([]byte, error) {
	if !x.read(body) {
		return x.proxy.forward(ctx, body)
	}
	x.proxy.countCalls(x.calls)
	if err := x.choose(ctx); err != nil {
		return nil, err
	}
	for _, c := range x.calls {
		x.prepare(c)
	}
	if err := x.proxy.ask(ctx, x.calls); err != nil {
		return nil, err
	}
	return x.write()
}

// choose decides which node answers: the real one, or one that is behind.
func (x *exchange) choose(ctx context.Context) (err error) {
	lag := uint64(0)
	if x.faults.Lag > 0 && x.proxy.strikes(Lag, x.faults.LagShare) {
		lag = x.faults.Lag
	}
	if lag > 0 || x.faults.TagsBehind > 0 {
		x.behind, err = x.proxy.newBehind(ctx, lag, x.faults.TagsBehind)
	}
	return err
}

// read parses a call, or a batch of calls. It returns false if one has no id, or for other bodies.
func (x *exchange) read(body []byte) bool {
	if x.single = !bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")); x.single {
		body = slices.Concat([]byte("["), body, []byte("]"))
	}
	without := func(c *call) bool { return c == nil || len(c.ID) == 0 }
	if json.Unmarshal(body, &x.calls) != nil || len(x.calls) == 0 || slices.ContainsFunc(x.calls, without) {
		x.calls = nil
		return false
	}
	return true
}

// hasSend reports whether one of the calls sends a raw transaction.
func (x *exchange) hasSend() bool {
	return slices.ContainsFunc(x.calls, func(c *call) bool { return c.Method == sendRaw })
}

const (
	sendRaw          = "eth_sendRawTransaction"
	getReceipt       = "eth_getTransactionReceipt"
	getBlockReceipts = "eth_getBlockReceipts"
)

// prepare applies the faults that strike a call before the node gets it.
func (x *exchange) prepare(c *call) {
	switch {
	case c.Method == sendRaw:
		x.prepareSend(c)
	case c.Method == getReceipt && x.proxy.strikes(NotIndexed, x.faults.NotIndexed):
		c.refuse("transaction indexing is in progress")
	case x.faults.NoTags && c.atTag():
		c.refuse("finalized block not found")
	case x.behind != nil:
		x.behind.prepare(c)
	}
}

func (x *exchange) prepareSend(c *call) {
	tx, err := c.transaction()
	if err != nil {
		return // the node reports the problem
	}
	if x.faults.Refuse != nil {
		if text := x.faults.Refuse(tx); text != "" && x.proxy.strikes(Refuse, 1) {
			c.refuse(text)
			return
		}
	}
	if x.proxy.strikes(LoseSend, x.faults.LoseSend) {
		c.answer(fmt.Appendf(nil, "%q", tx.Hash().Hex()))
	}
}

func (c *call) transaction() (*types.Transaction, error) {
	var raw hexutil.Bytes
	if len(c.Params) != 1 {
		return nil, fmt.Errorf("%d parameters: want 1", len(c.Params))
	}
	if err := json.Unmarshal(c.Params[0], &raw); err != nil {
		return nil, err
	}
	tx := new(types.Transaction)
	return tx, tx.UnmarshalBinary(raw)
}

func (c *call) answer(result json.RawMessage) {
	c.got = &response{Version: "2.0", ID: c.ID, Result: result}
}

// refuse answers with an error and go-ethereum's most common error code.
func (c *call) refuse(text string) {
	message, _ := json.Marshal(text) // never fails for a string
	c.got = &response{Version: "2.0", ID: c.ID, Error: fmt.Appendf(nil, `{"code":-32000,"message":%s}`, message)}
}

// write combines the answers of the node and the proxy in the order of the calls.
func (x *exchange) write() ([]byte, error) {
	list := make([]response, 0, len(x.calls))
	for _, c := range x.calls {
		if c.got != nil {
			list = append(list, x.applyFaults(c, *c.got))
		}
	}
	if x.single && len(list) == 1 {
		return json.Marshal(list[0])
	}
	return json.Marshal(list)
}

// applyFaults applies the faults that strike an answer.
func (x *exchange) applyFaults(c *call, a response) response {
	if x.behind != nil && x.behind.hides(c, a) {
		a.Result = null
	}
	if (c.Method == getReceipt || c.Method == getBlockReceipts) && len(a.Error) == 0 && !a.empty() && x.proxy.strikes(ForgetReceipt, x.faults.ForgetReceipt) {
		a.Result = null
	}
	if c.Method == getReceipt && x.faults.WrongStatus {
		a.Result = turnStatus.ReplaceAllFunc(a.Result, func(status []byte) []byte {
			status[len(status)-2] ^= 1 // '0' and '1'
			return status
		})
	}
	return a
}

var turnStatus = regexp.MustCompile(`"status":"0x[01]"`)
