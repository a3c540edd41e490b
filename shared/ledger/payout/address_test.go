package payout_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// lenient is a family that accepts every address.
type lenient struct{ evm.Family }

func (lenient) Namespace() string { return "lenient" }

func (lenient) ParseAddress(text string) (txmanager.Address, error) {
	return txmanager.Address(strings.ToLower(text)), nil
}

// Another family that the deployment serves does not accept an address with a wrong checksum for a payout.
func TestOnlyTheFamilyOfPayoutsReadsTheirAddresses(t *testing.T) {
	t.Parallel()
	families := chain.NewFamilies(evm.Family{}, lenient{})
	const right, wrong = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"
	if a, err := payout.ParseAddress(families, right); err != nil || string(a) != strings.ToLower(right) {
		t.Errorf("with the right checksum: got %q, %v; want it in lower case", a, err)
	}
	a, err := payout.ParseAddress(families, wrong)
	if _, ok := errors.AsType[*chain.FieldError](err); !ok {
		t.Errorf("with a wrong checksum: got %q, %v; want a FieldError", a, err)
	}
	if a, err := payout.ParseAddress(chain.NewFamilies(lenient{}), right); err == nil {
		t.Errorf("without a family for payouts: got %q, want an error", a)
	}
}
