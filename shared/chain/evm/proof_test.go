package evm_test

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

var family evm.Family

const (
	event = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
	ofA   = "0x000000000000000000000000" + "00000000000000000000000000000000000000aa"
	ofB   = "0x000000000000000000000000" + "00000000000000000000000000000000000000bb"
	seven = "0x0000000000000000000000000000000000000000000000000000000000000007"
)

// receiptWith returns a node's receipt with these logs.
func receiptWith(logs ...string) string {
	return `{"from": "0x00000000000000000000000000000000000000aa", "to": "0x00000000000000000000000000000000000000cc", "status": "0x1",
		"gasUsed": "0x5208", "logs": [` + strings.Join(logs, ",") + `]}`
}

func transferLog(data string, topics ...string) string {
	return `{"address": "0x00000000000000000000000000000000000000cc", "topics": ["` + strings.Join(topics, `", "`) + `"], "data": "` + data + `", "removed": false}`
}

// Only an exact ERC-20 Transfer is read as one.
func TestOnlyERC20TransfersAreRead(t *testing.T) {
	t.Parallel()
	one := chain.TokenTransfer{Token: eip155.Address([20]byte{19: 0xcc}), From: eip155.Address([20]byte{19: 0xaa}), To: eip155.Address([20]byte{19: 0xbb}), Amount: big.NewInt(7)}
	for name, c := range map[string]struct {
		logs []string
		want []chain.TokenTransfer
	}{
		"none":                   {nil, nil},
		"one":                    {[]string{transferLog(seven, event, ofA, ofB)}, []chain.TokenTransfer{one}},
		"two":                    {[]string{transferLog(seven, event, ofA, ofB), transferLog(seven, event, ofA, ofB)}, []chain.TokenTransfer{one, one}},
		"another event":          {[]string{transferLog(seven, seven, ofA, ofB)}, nil},
		"ERC-721's":              {[]string{transferLog("0x", event, ofA, ofB, seven)}, nil},
		"nothing indexed":        {[]string{transferLog("0x"+ofA[2:]+ofB[2:]+seven[2:], event)}, nil},
		"more data":              {[]string{transferLog(seven+"00", event, ofA, ofB)}, nil},
		"more than an address":   {[]string{transferLog(seven, event, "0x01"+ofA[4:], ofB)}, nil},
		"more than an addressee": {[]string{transferLog(seven, event, ofA, "0x01"+ofB[4:])}, nil},
		"of an odd block":        {[]string{strings.Replace(transferLog(seven, event, ofA, ofB), `"removed"`, `"blockNumber": null, "blockHash": "0x", "removed"`, 1)}, []chain.TokenTransfer{one}},
		"removed by a reorg":     {[]string{strings.Replace(transferLog(seven, event, ofA, ofB), "false", "true", 1)}, nil},
	} {
		want := chain.PaymentProof{From: eip155.Address([20]byte{19: 0xaa}), To: eip155.Address([20]byte{19: 0xcc}), Succeeded: true, Transfers: c.want}
		got := check.Value(family.ReadProof([]byte(receiptWith(c.logs...))))(t)
		check.Same(t, name, got, want, check.BigInts)
	}
	failed := check.Value(family.ReadProof([]byte(strings.Replace(receiptWith(), "0x1", "0x0", 1))))(t)
	check.Equal(t, "a revert: succeeded", failed.Succeeded, false)
	for _, text := range []string{"", "null", "[]", `{}`, strings.Replace(receiptWith(), "status", "root", 1), strings.Replace(receiptWith(), "from", "of", 1),
		receiptWith(`{"topics": ["0x01"]}`), receiptWith(`7`)} {
		if got, err := family.ReadProof([]byte(text)); err == nil {
			t.Errorf("%s: got %+v, want an error", text, got)
		}
	}
}

// Any answer of a node is read or refused.
func FuzzReadProof(f *testing.F) {
	f.Add([]byte(receiptWith(transferLog(seven, event, ofA, ofB))))
	f.Add([]byte(`{"from":null,"status":"0x01","logs":[{"topics":[],"data":null}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := family.ReadProof(text)
		for _, moved := range p.Transfers {
			if moved.Amount.Sign() < 0 || moved.Amount.BitLen() > 256 {
				t.Errorf("amount: got %s, want it in 256 bits", moved.Amount)
			}
		}
		if err != nil && len(p.Transfers) > 0 {
			t.Errorf("got transfers beside %v", err)
		}
	})
}

// A payment becomes the canonical payload of its call.
func TestPaymentPayloadIsCanonical(t *testing.T) {
	t.Parallel()
	to, token := eip155.Address([20]byte{19: 0xbb}), eip155.Address([20]byte{19: 0xcc})
	limit := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1))
	for _, c := range []struct {
		token  *txmanager.Address
		amount *big.Int
		same   string // another payload with the same meaning
	}{
		{nil, big.NewInt(7), `{"to": "` + to.String() + `", "value": "7", "maxGas": 300000}`},
		{&token, big.NewInt(7), `{"to": "` + token.String() + `", "function": "transfer(address,uint256)", "args": ["` + to.String() + `", 7], "maxGas": 300000}`},
		{&token, limit, `{"to": "` + token.String() + `", "function": "transfer(address,uint256)", "args": ["` + to.String() + `", "` + limit.String() + `"], "maxGas": 300000}`},
	} {
		want, _, err := evm.Family{}.ParsePayload([]byte(c.same))
		check.OK(t)(err)
		check.Equal(t, c.amount.String(), string(check.Value(family.PaymentPayload(c.token, to, c.amount, 300_000))(t)), string(want))
	}
	if got, err := family.PaymentPayload(&token, to, limit.Add(limit, big.NewInt(1)), 300_000); err == nil {
		t.Errorf("2^256: got %s, want an error", got)
	}
}

// The letter case of an address is its checksum, or it is uniform.
func TestParseAddressChecksTheChecksum(t *testing.T) {
	t.Parallel()
	const good = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
	for _, text := range []string{good, strings.ToLower(good), "0x" + strings.ToUpper(good[2:])} {
		check.Equal(t, text, check.Value(family.ParseAddress(text))(t).String(), strings.ToLower(good))
	}
	for _, text := range []string{"", good[2:], good + "0", "0x5aaeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "\"" + good, "0x\xff" + good[3:]} {
		_, err := family.ParseAddress(text)
		if _, ok := errors.AsType[*chain.FieldError](err); !ok {
			t.Errorf("%q: got %v, want a FieldError", text, err)
		}
	}
}

// The fees of a receipt are its gas at its price, and a rollup's fee of the chain below.
func TestCostOfAReceipt(t *testing.T) {
	t.Parallel()
	for receipt, want := range map[string]string{
		`{"gasUsed": "0x5208", "effectiveGasPrice": "0x3b9aca00"}`:                  "21000000000000",
		`{"gasUsed": "0x5208", "effectiveGasPrice": "0x3b9aca00", "l1Fee": "0x10"}`: "21000000000016",
	} {
		check.Equal(t, receipt, check.Value(family.ReadCost([]byte(receipt)))(t).String(), want)
	}
	for _, receipt := range []string{receiptWith(), `{"effectiveGasPrice": "0x1"}`, `{"gasUsed": "1", "effectiveGasPrice": "0x1"}`, `[]`} {
		if got, err := family.ReadCost([]byte(receipt)); err == nil {
			t.Errorf("%s: got %v, want an error", receipt, got)
		}
	}
}
