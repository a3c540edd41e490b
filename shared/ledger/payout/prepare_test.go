package payout_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/transfer"
)

const (
	payerAddress = "0xabed6bd9ec382975f0d1ba42f925c3edf46be6ad"
	contract     = "0x00000000000000000000000000000000000000ee"

	// An example of EIP-55.
	checksummed = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
)

func payable(token string) transfer.Asset {
	return transfer.Asset{ID: 1, Name: "X", Precision: 6, Payout: &transfer.PayoutTerms{
		Submitter: "eip155:1337:" + payerAddress, ChainID: 1337, Token: token, Decimals: 18,
	}}
}

// A prepared payout is canonical: the manager stores exactly what the chain executes.
func TestPrepareReturnsCanonicalPayout(t *testing.T) {
	t.Parallel()
	lower := strings.ToLower(checksummed)
	for name, c := range map[string]struct{ token, payload string }{
		"coin": {"", `{"to":"` + lower + `","value":"1500000000000000000","maxGas":"300000"}`},
		"token": {contract, `{"to":"` + contract + `","data":"0xa9059cbb000000000000000000000000` + lower[2:] +
			`00000000000000000000000000000000000000000000000014d1120d7b160000","maxGas":"300000"}`},
	} {
		for _, text := range []string{checksummed, lower, "0x" + strings.ToUpper(lower[2:])} {
			got, err := payout.Prepare(families, payable(c.token), 1_500_000, text, maxGas)
			if err != nil {
				t.Fatalf("%s to %s: %v", name, text, err)
			}
			want := &transfer.Payout{
				Submitter: "eip155:1337:" + payerAddress, ChainID: 1337, Token: c.token, Address: lower,
				BaseUnits: "1500000000000000000", Payload: []byte(c.payload),
			}
			check.Same(t, name+" to "+text, got, want)
		}
	}
}

// An address that is malformed, mistyped or cannot be paid is INVALID_ADDRESS.
func TestPrepareRefusesAddresses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "0x", "alice.eth", checksummed[2:], checksummed + "0", checksummed[:41], "0X" + checksummed[2:], " " + checksummed,
		"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD", "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0x" + strings.Repeat("g", 40), "0x\x00\"" + strings.Repeat("0", 38),
		"0x0000000000000000000000000000000000000000", payerAddress, "0x" + strings.ToUpper(payerAddress[2:]), contract,
	} {
		_, err := payout.Prepare(families, payable(contract), 1, text, maxGas)
		refused, _ := errors.AsType[transfer.RefusedError](err)
		address, _ := errors.AsType[payout.AddressError](err)
		if refused.Reason != transfer.InvalidAddress || address.Problem == "" {
			t.Errorf("%q: got %v, want INVALID_ADDRESS with its problem", text, err)
		}
	}
	check.Err(t, "a contract that is not the token's", nil)(payout.Prepare(families, payable(""), 1, contract, maxGas))
}

// Contradictory terms are the operator's mistake, not the user's.
func TestPrepareRefusesTerms(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*transfer.PayoutTerms){
		"another chain":    func(p *transfer.PayoutTerms) { p.ChainID = 1 },
		"no payer":         func(p *transfer.PayoutTerms) { p.Submitter = "" },
		"a bare payer":     func(p *transfer.PayoutTerms) { p.Submitter = payerAddress },
		"too few decimals": func(p *transfer.PayoutTerms) { p.Decimals = 5 },
		"an upper token":   func(p *transfer.PayoutTerms) { p.Token = strings.ToUpper(contract) },
		"no token":         func(p *transfer.PayoutTerms) { p.Token = "0x00" },
	} {
		a := payable(contract)
		change(a.Payout)
		_, err := payout.Prepare(families, a, 1, checksummed, maxGas)
		if _, refused := errors.AsType[transfer.RefusedError](err); err == nil || refused {
			t.Errorf("%s: got %v, want an error that is no refusal", name, err)
		}
	}
	for reason, a := range map[transfer.Reason]transfer.Asset{transfer.TransferNotAllowed: {Name: "X"}, transfer.InvalidAmount: payable("")} {
		_, err := payout.Prepare(families, a, 0, checksummed, maxGas)
		if refused, ok := errors.AsType[transfer.RefusedError](err); !ok || refused.Reason != reason {
			t.Errorf("got %v, want %s", err, reason)
		}
	}
}
