package txtest

import (
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
)

// Oracle packs and unpacks calls of a token.
func Oracle(t testing.TB) abi.ABI {
	t.Helper()
	function := func(name string, types ...string) abi.Method {
		var in abi.Arguments
		for _, of := range types {
			kind, err := abi.NewType(of, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			in = append(in, abi.Argument{Type: kind})
		}
		return abi.NewMethod(name, name, abi.Function, "nonpayable", false, false, in, nil)
	}
	return abi.ABI{Methods: map[string]abi.Method{
		"transfer": function("transfer", "address", "uint256"), "approve": function("approve", "address", "uint256"),
		"transferFrom":      function("transferFrom", "address", "address", "uint256"),
		"increaseAllowance": function("increaseAllowance", "address", "uint256"),
	}}
}
