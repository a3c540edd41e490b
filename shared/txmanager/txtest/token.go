package txtest

import (
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"

	"github.com/fencepost/fencepost/shared/check"
)

// Oracle packs and unpacks calls of a token.
func Oracle(t testing.TB) abi.ABI {
	t.Helper()
	return check.Value(abi.JSON(strings.NewReader(`[
		{"type": "function", "name": "transfer", "inputs": [{"type": "address"}, {"type": "uint256"}]},
		{"type": "function", "name": "approve", "inputs": [{"type": "address"}, {"type": "uint256"}]},
		{"type": "function", "name": "transferFrom", "inputs": [{"type": "address"}, {"type": "address"}, {"type": "uint256"}]},
		{"type": "function", "name": "increaseAllowance", "inputs": [{"type": "address"}, {"type": "uint256"}]}
	]`)))(t)
}
