package txmanager

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Submitter names one signing account on one chain by its CAIP-10 account id:
// "<namespace>:<chainId>:<address>", such as eip155:1:0x…. The chain id has no leading zeros, and the
// address its family's canonical form. Only this canonical form is stored, hashed or compared.
// Package chain reads it in other forms. The zero value names no account.
//
// Source: https://chainagnostic.org/CAIPs/caip-10
type Submitter string

// NewSubmitter names the account a on a chain of the CAIP-2 namespace.
func NewSubmitter(namespace string, chainID uint64, a Address) Submitter {
	return Submitter(namespace + ":" + strconv.FormatUint(chainID, 10) + ":" + string(a))
}

// Namespace is the CAIP-2 namespace of the submitter's family of chains, such as "eip155".
func (s Submitter) Namespace() string { return s.part(0) }

// ChainID is the number of the submitter's chain in its namespace.
func (s Submitter) ChainID() uint64 {
	n, _ := strconv.ParseUint(s.part(1), 10, 64)
	return n
}

// Address is the submitter's account on its chain.
func (s Submitter) Address() Address { return Address(s.part(2)) }

// part is one of the three parts of the account id.
func (s Submitter) part(i int) string {
	parts := strings.SplitN(string(s), ":", 3)
	if len(parts) != 3 {
		return ""
	}
	return parts[i]
}

// Digest is the first 128 bits of the SHA-256 of the canonical form, as 32 hex
// digits: evenly spread, and short enough for a task's name.
func (s Submitter) Digest() string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// Address is an account's address in the canonical form of its family of chains, such as 0x and 40
// lower-case hex digits. The family reads other forms: see package chain.
type Address string

func (a Address) String() string { return string(a) }

// Hash is the 32-byte hash of a transaction or a block.
type Hash [32]byte

// ParseHash reads 0x and 64 hex digits in any letter case.
func ParseHash(text string) (h Hash, err error) {
	digits, ok := strings.CutPrefix(text, "0x")
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != len(h) {
		return Hash{}, fmt.Errorf("%q is not a hash: want 0x and %d hex digits", text, 2*len(h))
	}
	return Hash(raw), nil
}

// String is 0x and 64 lower-case hex digits.
func (h Hash) String() string { return "0x" + hex.EncodeToString(h[:]) }

func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

func (h *Hash) UnmarshalText(text []byte) (err error) {
	*h, err = ParseHash(string(text))
	return err
}
