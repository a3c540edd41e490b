package evm

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// The two ways to request a header. Every node has the call that returns the block, with the hashes of
// its transactions, 70 bytes each. Most have a call for the header alone, which no standard defines.
// Its answer counts only if it is a complete header; otherwise the block is requested.
const (
	getBlock  = "eth_getBlockByNumber"
	getHeader = "eth_getHeaderByNumber"
)

// askBlock requests the header of a block by its number in hex or by tag.
func askBlock(numberOrTag string) *call {
	a := ask(getBlock, numberOrTag, false)
	a.header = true
	return a
}

// askHeight requests the header of the block at a height.
func askHeight(height uint64) *call { return askBlock(hexutil.EncodeUint64(height)) }

// elem returns the call as it is sent to the node.
func (a *call) elem(short bool) rpc.BatchElem {
	if short && a.header {
		return rpc.BatchElem{Method: getHeader, Args: a.args[:1], Result: &a.raw}
	}
	return rpc.BatchElem{Method: a.method, Args: a.args, Result: &a.raw}
}

// withoutHeader reports that the answer to a request for a header has none. A missing block at a
// height, or for a tag other than latest, is an answer; so is a header without base fee on a chain
// without one.
func (a *call) withoutHeader(f Fees) bool {
	if !a.header || a.null() && a.args[0] != "latest" {
		return false
	}
	var h struct {
		Number  *hexutil.Uint64 `json:"number"`
		Hash    *txmanager.Hash `json:"hash"`
		Parent  *txmanager.Hash `json:"parentHash"`
		Time    *hexutil.Uint64 `json:"timestamp"`
		BaseFee *hexutil.Big    `json:"baseFeePerGas"`
	}
	return a.into(&h) != nil || h.Number == nil || h.Hash == nil || h.Parent == nil || h.Time == nil || h.BaseFee == nil && !f.Legacy
}

// refusedWhole reports whether a failed request was read and refused, for example by a gateway that
// rejects a batch with an unknown call.
func refusedWhole(err error) bool {
	if status, ok := errors.AsType[statusError](err); ok {
		return status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
	}
	_, notAList := errors.AsType[*json.UnmarshalTypeError](err)
	return notAList
}
