package transfer

import (
	"math/big"
	"strconv"
	"strings"
)

// MaxPrecision is the largest number of decimals that an asset can have.
const MaxPrecision = 8

// maxAmountText bounds the characters of an amount, so that arithmetic on it is cheap.
const maxAmountText = 64

// Amount is an exact decimal number above 0. The zero value has no amount.
type Amount struct {
	unscaled string // its digits without the point and without leading zeros
	decimals int    // as written: 1.50 has two
}

// ParseAmount reads digits with at most one point between them, at most 64 characters in all.
// Any other text, such as one with a sign, an exponent or a space, and 0 are INVALID_AMOUNT: ok is
// false.
func ParseAmount(text string) (a Amount, ok bool) {
	whole, fraction, point := strings.Cut(text, ".")
	digits := whole + fraction
	if len(text) > maxAmountText || whole == "" || point && fraction == "" || strings.Trim(digits, "0123456789") != "" {
		return Amount{}, false
	}
	a = Amount{strings.TrimLeft(digits, "0"), len(fraction)}
	return a, a.unscaled != ""
}

// Decimals returns the number of decimals as written, trailing zeros included.
func (a Amount) Decimals() int { return a.decimals }

// String returns the number without trailing zeros.
func (a Amount) String() string { return scaled(a.unscaled, a.decimals) }

// Units returns the amount in units of 10^-precision. The reason is [PrecisionOverflow] if the
// amount has more decimals, and [Overflow] if it exceeds 64 bits.
func (a Amount) Units(precision int) (uint64, Reason) {
	if a.decimals > precision {
		return 0, PrecisionOverflow
	}
	units, err := strconv.ParseUint(a.unscaled+strings.Repeat("0", precision-a.decimals), 10, 64)
	if err != nil {
		return 0, Overflow
	}
	return units, ""
}

// FormatUnits formats an amount in units of 10^-precision as a decimal number without trailing
// zeros.
func FormatUnits(units uint64, precision int) string {
	return scaled(strconv.FormatUint(units, 10), precision)
}

// scaled inserts the decimal point before the last decimals digits.
func scaled(digits string, decimals int) string {
	if missing := decimals + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	whole, fraction := digits[:len(digits)-decimals], strings.TrimRight(digits[len(digits)-decimals:], "0")
	if fraction == "" {
		return whole
	}
	return whole + "." + fraction
}

// timesTenTo returns units · 10^n.
func timesTenTo(units uint64, n int) *big.Int {
	factor := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
	return factor.Mul(factor, new(big.Int).SetUint64(units))
}
