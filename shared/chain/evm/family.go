package evm

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Family is the family of EVM chains.
type Family struct{ eip155.Accounts }

var (
	_ chain.Family     = Family{}
	_ chain.CostReader = Family{}
	_ chain.Node       = (*Connector)(nil)
)

// Open calls [New].
func (Family) Open(o chain.NodeOptions) (chain.Node, error) {
	c, err := New(o)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Verify calls [signer.Verify].
func (Family) Verify(s txmanager.Submitter, tx txmanager.Unsigned, raw []byte) (txmanager.Signed, error) {
	return signer.Verify(s, tx, raw)
}

// Unpayable refuses the zero address.
func (Family) Unpayable(a txmanager.Address) string {
	if a == eip155.Address([20]byte{}) {
		return "is the zero address, which no key controls"
	}
	return ""
}

// selectorHex matches a selector as an operator can write it.
var selectorHex = regexp.MustCompile(`^0x[0-9a-fA-F]{8}$`)

// ParseFunction returns the selector of a function, such as "transfer(address,uint256)", in lower case: "0xa9059cbb".
func (Family) ParseFunction(text string) (string, error) {
	if selectorHex.MatchString(text) {
		return strings.ToLower(text), nil
	}
	if _, err := parseSignature(text); err != nil {
		return "", err
	}
	return fmt.Sprintf("0x%x", crypto.Keccak256([]byte(text))[:selectorSize]), nil
}
