package txmanager

import (
	"bytes"
	"math/big"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"pgregory.net/rapid"
)

// oracle packs and unpacks calls of a token.
func oracle(t testing.TB) abi.ABI {
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

var bounded = []string{"transfer", "approve", "transferFrom"}

// amountBy is the amount that go-ethereum unpacks, where packing it again gives the same bytes.
func amountBy(o abi.ABI, data []byte) *big.Int {
	if len(data) < selectorSize {
		return nil
	}
	for _, name := range bounded {
		m := o.Methods[name]
		if !bytes.Equal(m.ID, data[:selectorSize]) {
			continue
		}
		values, err := m.Inputs.Unpack(data[selectorSize:])
		if err != nil {
			return nil
		}
		again, err := m.Inputs.Pack(values...)
		if err != nil || !bytes.Equal(again, data[selectorSize:]) {
			return nil
		}
		return values[len(values)-1].(*big.Int)
	}
	return nil
}

func sameAmount(a, b *big.Int) bool { return (a == nil) == (b == nil) && (a == nil || a.Cmp(b) == 0) }

// The amount in data packed by go-ethereum is read exactly. Other data has no amount.
func TestPropertyTokenAmountIsGoEthereums(t *testing.T) {
	t.Parallel()
	o, to := oracle(t), Address{19: 1}
	read, changed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(append(slices.Clone(bounded), "increaseAllowance")).Draw(t, "function")
		address := func(label string) common.Address {
			return common.Address(rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, label))
		}
		amount := new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 32).Draw(t, "amount"))
		arguments := []any{address("first"), amount}
		if name == "transferFrom" {
			arguments = []any{address("first"), address("second"), amount}
		}
		data, err := o.Pack(name, arguments...)
		if err != nil {
			t.Fatal(err)
		}
		got := Call{To: &to, Data: data}.TokenAmount()
		if want := amountBy(o, data); !sameAmount(got, want) || name != "increaseAllowance" && !sameAmount(got, amount) {
			t.Fatalf("%s: got %v, want %v", name, got, amount)
		}
		if got != nil {
			read++
		}
		switch rapid.IntRange(0, 3).Draw(t, "change") {
		case 0:
			data = data[:rapid.IntRange(0, len(data)).Draw(t, "length")]
		case 1:
			data = append(data, rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "more")...)
		default:
			data[rapid.IntRange(0, len(data)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		}
		changed++
		if got, want := (Call{To: &to, Data: data}).TokenAmount(), amountBy(o, data); !sameAmount(got, want) {
			t.Fatalf("%x: got %v, want %v", data, got, want)
		}
	})
	if read == 0 || changed == 0 {
		t.Errorf("%d read and %d changed: too few to tell", read, changed)
	}
}

// For any data, the amount is the one that go-ethereum unpacks.
func FuzzTokenAmount(f *testing.F) {
	o, to := oracle(f), Address{19: 1}
	for _, name := range bounded {
		arguments := []any{common.Address{1}, big.NewInt(7)}
		if name == "transferFrom" {
			arguments = []any{common.Address{1}, common.Address{2}, big.NewInt(7)}
		}
		data, err := o.Pack(name, arguments...)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)-1])
		f.Add(append(slices.Clone(data), 0))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, want := (Call{To: &to, Data: data}).TokenAmount(), amountBy(o, data); !sameAmount(got, want) {
			t.Errorf("%x: got %v, want %v", data, got, want)
		}
	})
}

// A queued intent must respect the limit of its caller, and those of a token that the policy
// names. A function that targets lists is also allowed.
func TestBoundsOfCallersAndTokens(t *testing.T) {
	t.Parallel()
	o, token := oracle(t), Address{19: 10}
	data := func(name string, amount int64) []byte {
		packed, err := o.Pack(name, common.Address{1}, big.NewInt(amount))
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	named := Bounds{Tokens: map[string]*big.Int{token.String(): big.NewInt(5)}}
	free := Bounds{Tokens: map[string]*big.Int{token.String(): nil}, Targets: []string{token.String(), token.String() + ":0x39509351", token.String() + ":0xa9059cbb"}}
	for name, c := range map[string]struct {
		bounds Bounds
		caller *big.Int
		call   Call
		want   bool // it is refused
	}{
		"the caller's most":                   {Bounds{}, big.NewInt(5), Call{To: &token, Value: big.NewInt(5)}, false},
		"more than the caller's most":         {Bounds{}, big.NewInt(5), Call{To: &token, Value: big.NewInt(6)}, true},
		"the most units":                      {named, nil, Call{To: &token, Data: data("transfer", 5)}, false},
		"more units":                          {named, nil, Call{To: &token, Data: data("approve", 6)}, true},
		"another function":                    {named, nil, Call{To: &token, Data: data("increaseAllowance", 1)}, true},
		"a byte too many":                     {named, nil, Call{To: &token, Data: append(data("transfer", 1), 0)}, true},
		"a payment":                           {named, nil, Call{To: &token, Value: big.NewInt(1)}, true},
		"another contract":                    {named, nil, Call{To: &Address{19: 11}, Value: big.NewInt(1)}, false},
		"a deployment":                        {named, nil, Call{Data: data("transfer", 9)}, false},
		"a function that targets names":       {free, nil, Call{To: &token, Data: data("increaseAllowance", 9)}, false},
		"any amount where none is bounded":    {free, nil, Call{To: &token, Data: data("approve", 9)}, false},
		"malformed, though targets names it":  {free, nil, Call{To: &token, Data: data("transfer", 9)[:60]}, true},
		"a payment, though targets allows it": {free, nil, Call{To: &token}, true},
	} {
		if got := (Rules{}).forbiddenReason(c.bounds, Tx{MaxValueWei: c.caller}, c.call); (got != "") != c.want {
			t.Errorf("%s: got %q, want it refused: %t", name, got, c.want)
		}
	}
}
