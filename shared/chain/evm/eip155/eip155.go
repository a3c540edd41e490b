// Package eip155 is the form of accounts on EVM chains: CAIP-10 account ids in the namespace eip155.
package eip155

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Namespace is the CAIP-2 namespace of EVM chains.
const Namespace = "eip155"

// Accounts implements [chain.Accounts].
type Accounts struct{}

// Namespace returns [Namespace].
func (Accounts) Namespace() string { return Namespace }

// AddressForm describes an address for callers.
func (Accounts) AddressForm() string { return "0x<40 hex digits>" }

// ParseAccount calls [ParseAddress].
func (Accounts) ParseAccount(text string) (txmanager.Address, error) { return ParseAddress(text) }

// NewSubmitter names the account a on the chain with the EIP-155 id chainID.
func NewSubmitter(chainID uint64, a txmanager.Address) txmanager.Submitter {
	return txmanager.NewSubmitter(Namespace, chainID, a)
}

// ParseSubmitter calls [chain.ParseSubmitter].
func ParseSubmitter(text string, defaultChain uint64) (txmanager.Submitter, error) {
	return chain.ParseSubmitter(Accounts{}, text, defaultChain)
}

// Address returns the canonical form of an address: 0x and 40 lower-case hex digits.
func Address(a [20]byte) txmanager.Address {
	return txmanager.Address("0x" + hex.EncodeToString(a[:]))
}

// ParseAddress reads 0x and 40 hex digits in any letter case.
func ParseAddress(text string) (txmanager.Address, error) {
	a, err := Bytes(txmanager.Address(text))
	if err != nil {
		return "", err
	}
	return Address(a), nil
}

// Bytes returns the 20 bytes of an address.
func Bytes(address txmanager.Address) (a [20]byte, err error) {
	digits, ok := strings.CutPrefix(string(address), "0x")
	if ok && len(digits) == hex.EncodedLen(len(a)) {
		_, err = hex.Decode(a[:], []byte(digits))
	}
	if !ok || len(digits) != hex.EncodedLen(len(a)) || err != nil {
		return [20]byte{}, fmt.Errorf("%q is not an address: want 0x and 40 hex digits", string(address))
	}
	return a, nil
}

// MustBytes is [Bytes] for an address that this family made.
func MustBytes(address txmanager.Address) [20]byte {
	a, err := Bytes(address)
	if err != nil {
		panic(err)
	}
	return a
}

// Recipient is [MustBytes] of an address; nil for nil, which deploys a contract.
func Recipient(to *txmanager.Address) *[20]byte {
	if to == nil {
		return nil
	}
	return new(MustBytes(*to))
}
