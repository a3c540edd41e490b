package evm

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/nonce"
)

// How a header is asked for. The call that all nodes know gives the hashes of the
// block's transactions too, 70 bytes each. Most know one for the header alone,
// which no standard has: what a node says to it counts only where it is a whole
// header, and else the same is asked again by the block.
const (
	getBlock  = "eth_getBlockByNumber"
	getHeader = "eth_getHeaderByNumber"
)

// askBlock asks for the header of a block by its number in hex or by tag.
func askBlock(numberOrTag string) *call {
	a := ask(getBlock, numberOrTag, false)
	a.header = true
	return a
}

func (a *call) wantsHeader() bool { return a.header }

// elem is the call as the node is asked.
func (a *call) elem(short bool) rpc.BatchElem {
	if short && a.header {
		return rpc.BatchElem{Method: getHeader, Args: a.args[:1], Result: &a.raw}
	}
	return rpc.BatchElem{Method: a.method, Args: a.args, Result: &a.raw}
}

// withoutHeader says that the answer to a question for a header is none. That
// there is no block at a height, or behind another tag than the latest, is an
// answer; and that one has no base fee is one where the chain has none.
func (a *call) withoutHeader(f Fees) bool {
	if !a.header || a.null() && a.args[0] != "latest" {
		return false
	}
	var h struct {
		Number  *hexutil.Uint64 `json:"number"`
		Hash    *nonce.Hash     `json:"hash"`
		Parent  *nonce.Hash     `json:"parentHash"`
		Time    *hexutil.Uint64 `json:"timestamp"`
		BaseFee *hexutil.Big    `json:"baseFeePerGas"`
	}
	return a.into(&h) != nil || h.Number == nil || h.Hash == nil || h.Parent == nil || h.Time == nil || h.BaseFee == nil && !f.Legacy
}

// refusedWhole says of a failed request that it was read and refused: by a gateway,
// perhaps, that lets none pass with a call that it does not know.
func refusedWhole(err error) bool {
	if status, ok := errors.AsType[httpStatus](err); ok {
		return status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
	}
	_, notAList := errors.AsType[*json.UnmarshalTypeError](err)
	return notAList
}
