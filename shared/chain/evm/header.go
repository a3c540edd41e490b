package evm

import (
	"errors"

	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/nonce"
)

// How a header is asked for. The call that all nodes know gives the hashes of the
// block's transactions too, 70 bytes each. Most know one for the header alone,
// which no standard has; the first round trip asks whether this one does.
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

// askHeader asks whether the node gives headers.
func askHeader() *call { return ask(getHeader, "latest") }

// isHeader says that the answer to askHeader is a header with all that is read of
// one.
func (a *call) isHeader() bool {
	var b block
	return a.into(&b) == nil && b.Hash != nonce.Hash{} && b.Time > 0 && b.BaseFee != nil
}

// elem is the call as the node is asked: for short headers, where it gives them.
func (a *call) elem(short bool) rpc.BatchElem {
	if short && a.header {
		return rpc.BatchElem{Method: getHeader, Args: a.args[:1], Result: &a.raw}
	}
	return rpc.BatchElem{Method: a.method, Args: a.args, Result: &a.raw}
}

// methodNotFound is JSON-RPC's code of a method that there is not.
// Source: https://www.jsonrpc.org/specification#error_object.
const methodNotFound = -32601

// withoutHeader says that the node does not know how to give a header alone.
func (a *call) withoutHeader() bool {
	coded, ok := errors.AsType[rpc.Error](a.err)
	return ok && a.header && coded.ErrorCode() == methodNotFound
}
