package rules

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A queued intent must respect the limit of its caller, and those of a token that the policy
// names. A function that targets lists is also allowed.
func TestBoundsOfCallersAndTokens(t *testing.T) {
	t.Parallel()
	o, token := txtest.Oracle(t), txmanager.Address{19: 10}
	data := func(name string, amount int64) []byte {
		packed, err := o.Pack(name, common.Address{1}, big.NewInt(amount))
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	named := txmanager.Bounds{Tokens: map[string]*big.Int{token.String(): big.NewInt(5)}}
	free := txmanager.Bounds{Tokens: map[string]*big.Int{token.String(): nil}, Targets: []string{token.String(), token.String() + ":0x39509351", token.String() + ":0xa9059cbb"}}
	for name, c := range map[string]struct {
		bounds txmanager.Bounds
		caller *big.Int
		call   txmanager.Call
		want   bool // it is refused
	}{
		"the caller's most":                   {txmanager.Bounds{}, big.NewInt(5), txmanager.Call{To: &token, Value: big.NewInt(5)}, false},
		"more than the caller's most":         {txmanager.Bounds{}, big.NewInt(5), txmanager.Call{To: &token, Value: big.NewInt(6)}, true},
		"the most units":                      {named, nil, txmanager.Call{To: &token, Data: data("transfer", 5)}, false},
		"more units":                          {named, nil, txmanager.Call{To: &token, Data: data("approve", 6)}, true},
		"another function":                    {named, nil, txmanager.Call{To: &token, Data: data("increaseAllowance", 1)}, true},
		"a byte too many":                     {named, nil, txmanager.Call{To: &token, Data: append(data("transfer", 1), 0)}, true},
		"a payment":                           {named, nil, txmanager.Call{To: &token, Value: big.NewInt(1)}, true},
		"another contract":                    {named, nil, txmanager.Call{To: &txmanager.Address{19: 11}, Value: big.NewInt(1)}, false},
		"a deployment":                        {named, nil, txmanager.Call{Data: data("transfer", 9)}, false},
		"a function that targets names":       {free, nil, txmanager.Call{To: &token, Data: data("increaseAllowance", 9)}, false},
		"any amount where none is bounded":    {free, nil, txmanager.Call{To: &token, Data: data("approve", 9)}, false},
		"malformed, though targets names it":  {free, nil, txmanager.Call{To: &token, Data: data("transfer", 9)[:60]}, true},
		"a payment, though targets allows it": {free, nil, txmanager.Call{To: &token}, true},
	} {
		if got := (Rules{}).forbiddenReason(c.bounds, txmanager.Tx{MaxValueWei: c.caller}, c.call); (got != "") != c.want {
			t.Errorf("%s: got %q, want it refused: %t", name, got, c.want)
		}
	}
}
