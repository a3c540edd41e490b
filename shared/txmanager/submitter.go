package txmanager

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Submitter names one signing account on one chain by its CAIP-10 account id:
// "eip155:<chainId>:0x<40 lower-case hex digits>", the chain id without leading zeros. Only this
// canonical form is stored, hashed or compared. Make one with [ParseSubmitter]; the zero value
// names no account.
//
// Source: https://chainagnostic.org/CAIPs/caip-10 and CAIP-2's namespace eip155.
type Submitter string

// ErrNotSubmitter reports a text that names no account.
var ErrNotSubmitter = errors.New("not an account: want eip155:<chainId>:0x<40 hex digits>, or 0x<40 hex digits> for the default chain")

// ParseSubmitter turns an account id, or a bare address on defaultChain, into
// its canonical form. Letter case of the address does not matter. The error
// wraps [ErrNotSubmitter].
func ParseSubmitter(text string, defaultChain uint64) (Submitter, error) {
	chain, address := defaultChain, text
	if rest, ok := strings.CutPrefix(text, "eip155:"); ok {
		id, after, _ := strings.Cut(rest, ":")
		n, err := strconv.ParseUint(id, 10, 64)
		if err != nil || id != strconv.FormatUint(n, 10) {
			return "", fmt.Errorf("chain id %q: %w", id, ErrNotSubmitter)
		}
		chain, address = n, after
	}
	if chain == 0 {
		return "", fmt.Errorf("chain id 0: %w", ErrNotSubmitter)
	}
	a, err := ParseAddress(address)
	if err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNotSubmitter, err)
	}
	return NewSubmitter(chain, a), nil
}

// NewSubmitter names the account a on the chain with the EIP-155 id chainID.
func NewSubmitter(chainID uint64, a Address) Submitter {
	return Submitter("eip155:" + strconv.FormatUint(chainID, 10) + ":" + a.String())
}

// ChainID is the EIP-155 id of the submitter's chain.
func (s Submitter) ChainID() uint64 {
	parts := strings.SplitN(string(s), ":", 3)
	if len(parts) != 3 {
		return 0
	}
	n, _ := strconv.ParseUint(parts[1], 10, 64)
	return n
}

// Address is the submitter's account on its chain.
func (s Submitter) Address() Address {
	a, _ := ParseAddress(string(s[strings.LastIndexByte(string(s), ':')+1:]))
	return a
}

// Digest is the first 128 bits of the SHA-256 of the canonical form, as 32 hex
// digits: evenly spread, and short enough for a task's name.
func (s Submitter) Digest() string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// Address is a 20-byte account address.
type Address [20]byte

// ParseAddress reads 0x and 40 hex digits in any letter case.
func ParseAddress(text string) (a Address, err error) {
	return a, parseHex(a[:], text, "an address")
}

// String is 0x and 40 lower-case hex digits.
func (a Address) String() string { return "0x" + hex.EncodeToString(a[:]) }

// MarshalText writes the form of [Address.String].
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads the form of [ParseAddress].
func (a *Address) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAddress(string(text))
	return err
}

// Hash is the 32-byte hash of a transaction or a block.
type Hash [32]byte

// ParseHash reads 0x and 64 hex digits in any letter case.
func ParseHash(text string) (h Hash, err error) {
	return h, parseHex(h[:], text, "a hash")
}

// String is 0x and 64 lower-case hex digits.
func (h Hash) String() string { return "0x" + hex.EncodeToString(h[:]) }

// MarshalText writes the form of [Hash.String].
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads the form of [ParseHash].
func (h *Hash) UnmarshalText(text []byte) (err error) {
	*h, err = ParseHash(string(text))
	return err
}

func parseHex(into []byte, text, what string) error {
	digits, ok := strings.CutPrefix(text, "0x")
	if !ok || len(digits) != 2*len(into) {
		return fmt.Errorf("%q is not %s: want 0x and %d hex digits", text, what, 2*len(into))
	}
	if _, err := hex.Decode(into, []byte(digits)); err != nil {
		return fmt.Errorf("%q is not %s: want 0x and %d hex digits", text, what, 2*len(into))
	}
	return nil
}
