package conservation

import (
	"fmt"
	"math/big"
	"math/bits"
)

// Sum is a sum of units: a signed whole number of 128 bits, which no real journal can overflow. The
// zero value is 0, and == compares.
type Sum struct {
	hi int64
	lo uint64
}

// Units returns u as a sum.
func Units(u uint64) Sum { return Sum{lo: u} }

// Plus returns s + t.
func (s Sum) Plus(t Sum) Sum {
	lo, carry := bits.Add64(s.lo, t.lo, 0)
	hi, _ := bits.Add64(uint64(s.hi), uint64(t.hi), carry)
	return Sum{int64(hi), lo}
}

// Minus returns s - t.
func (s Sum) Minus(t Sum) Sum {
	lo, borrow := bits.Sub64(s.lo, t.lo, 0)
	hi, _ := bits.Sub64(uint64(s.hi), uint64(t.hi), borrow)
	return Sum{int64(hi), lo}
}

// String returns s as a decimal number.
func (s Sum) String() string { return s.big().String() }

func (s Sum) big() *big.Int {
	b := new(big.Int).Lsh(big.NewInt(s.hi), 64)
	return b.Add(b, new(big.Int).SetUint64(s.lo))
}

// ParseSum is the inverse of String. It rejects text that is not a whole number of at most 127
// bits.
func ParseSum(text string) (Sum, error) {
	b, ok := new(big.Int).SetString(text, 10)
	if !ok || b.BitLen() > 127 {
		return Sum{}, fmt.Errorf("%q is not a sum of units, want a whole number of at most 127 bits", text)
	}
	low := new(big.Int).And(b, new(big.Int).SetUint64(^uint64(0)))
	return Sum{new(big.Int).Rsh(b, 64).Int64(), low.Uint64()}, nil
}
