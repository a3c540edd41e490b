package txmanager_test

import (
	"bytes"
	"math/big"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

var bounded = []string{"transfer", "approve", "transferFrom"}

// amountBy is the amount that go-ethereum unpacks, where packing it again gives the same bytes.
func amountBy(o abi.ABI, data []byte) *big.Int {
	if len(data) < txmanager.SelectorSize {
		return nil
	}
	for _, name := range bounded {
		m := o.Methods[name]
		if !bytes.Equal(m.ID, data[:txmanager.SelectorSize]) {
			continue
		}
		values, err := m.Inputs.Unpack(data[txmanager.SelectorSize:])
		if err != nil {
			return nil
		}
		again, err := m.Inputs.Pack(values...)
		if err != nil || !bytes.Equal(again, data[txmanager.SelectorSize:]) {
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
	o, to := txtest.Oracle(t), eip155.Address([20]byte{19: 1})
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
		data := check.Value(o.Pack(name, arguments...))(t)
		got := txmanager.Call{To: &to, Data: data}.TokenAmount()
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
		if got, want := (txmanager.Call{To: &to, Data: data}).TokenAmount(), amountBy(o, data); !sameAmount(got, want) {
			t.Fatalf("%x: got %v, want %v", data, got, want)
		}
	})
	if read == 0 || changed == 0 {
		t.Errorf("%d read and %d changed: too few to tell", read, changed)
	}
}

// For any data, the amount is the one that go-ethereum unpacks.
func FuzzTokenAmount(f *testing.F) {
	o, to := txtest.Oracle(f), eip155.Address([20]byte{19: 1})
	for _, name := range bounded {
		arguments := []any{common.Address{1}, big.NewInt(7)}
		if name == "transferFrom" {
			arguments = []any{common.Address{1}, common.Address{2}, big.NewInt(7)}
		}
		data := check.Value(o.Pack(name, arguments...))(f)
		f.Add(data)
		f.Add(data[:len(data)-1])
		f.Add(append(slices.Clone(data), 0))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, want := (txmanager.Call{To: &to, Data: data}).TokenAmount(), amountBy(o, data); !sameAmount(got, want) {
			t.Errorf("%x: got %v, want %v", data, got, want)
		}
	})
}
