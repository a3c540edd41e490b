package rpcproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/ethereum/go-ethereum/common/hexutil"
)

// behind is the view of a node whose head, or whose tags, are lower than the real node's.
type behind struct {
	head uint64            // the largest number if only the tags are lower
	tags map[string]uint64 // the height of each tag
}

// newBehind queries the node's heights and lowers them.
func (p *Proxy) newBehind(ctx context.Context, lag, tagsBehind uint64) (*behind, error) {
	tags := []string{"latest", "safe", "finalized"}
	calls := make([]*call, len(tags))
	for i, tag := range tags {
		calls[i] = &call{Version: "2.0", ID: fmt.Append(nil, i), Method: "eth_getBlockByNumber", Params: params(tag, false)}
	}
	if err := p.ask(ctx, calls); err != nil {
		return nil, err
	}
	heights := make(map[string]uint64, len(tags))
	for i, tag := range tags {
		var block struct{ Number hexutil.Uint64 }
		if a := calls[i].got; !a.empty() && json.Unmarshal(a.Result, &block) == nil {
			heights[tag] = uint64(block.Number)
		}
	}
	head := lower(heights["latest"], lag)
	b := &behind{head: head, tags: map[string]uint64{
		"safe": min(head, lower(heights["safe"], tagsBehind)), "finalized": min(head, lower(heights["finalized"], tagsBehind)),
	}}
	if lag == 0 {
		b.head = math.MaxUint64
		return b, nil
	}
	b.tags["latest"], b.tags["pending"] = head, head
	return b, nil
}

func lower(height, by uint64) uint64 { return height - min(by, height) }

func params(list ...any) []json.RawMessage {
	raw := make([]json.RawMessage, len(list))
	for i, v := range list {
		raw[i], _ = json.Marshal(v) // strings and booleans: never fails
	}
	return raw
}

// blockParameter is the index of each method's block parameter.
var blockParameter = map[string]int{
	"eth_getBlockByNumber": 0, "eth_getHeaderByNumber": 0, getBlockReceipts: 0, "eth_getTransactionCount": 1, "eth_getBalance": 1, "eth_getCode": 1, "eth_call": 1, "eth_estimateGas": 1,
}

// atTag reports whether the call is for, or at, the safe or the finalized block.
func (c *call) atTag() bool {
	at, ok := blockParameter[c.Method]
	if !ok || len(c.Params) <= at {
		return false
	}
	name := strings.Trim(string(c.Params[at]), `"`)
	return name == "safe" || name == "finalized"
}

// prepare replaces a tag in the call by the height that the tag has for such a node.
func (b *behind) prepare(c *call) {
	if c.Method == "eth_blockNumber" && b.head != math.MaxUint64 {
		c.answer(fmt.Appendf(nil, "%q", hexutil.EncodeUint64(b.head)))
		return
	}
	at, ok := blockParameter[c.Method]
	if !ok || len(c.Params) < at {
		return
	}
	if len(c.Params) == at {
		c.Params = append(c.Params, params("latest")...)
	}
	name := strings.Trim(string(c.Params[at]), `"`)
	height, tagged := b.tags[name]
	if tagged {
		c.Params[at] = params(hexutil.EncodeUint64(height))[0]
		return
	}
	asked, err := hexutil.DecodeUint64(name)
	c.above = err == nil && asked > b.head
}

// hides reports whether such a node would not have the answer: a block, or a transaction in a
// block, above its head.
func (b *behind) hides(c *call, a response) bool {
	if c.above {
		return c.Method == "eth_getBlockByNumber" || c.Method == "eth_getHeaderByNumber" || c.Method == getBlockReceipts
	}
	var placed struct{ Number, BlockNumber hexutil.Uint64 }
	switch c.Method {
	case getReceipt, "eth_getTransactionByHash", "eth_getBlockByHash":
		if json.Unmarshal(a.Result, &placed) != nil { // it is in no block
			return false
		}
	}
	return uint64(max(placed.Number, placed.BlockNumber)) > b.head
}
