package payout

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
)

var families = chain.NewFamilies(evm.Family{})

const (
	payerWord   = "0x00000000000000000000000000000000000000aa"
	addressWord = "0x00000000000000000000000000000000000000bb"
	tokenWord   = "0x00000000000000000000000000000000000000cc"

	coinPayload  = `{"to": "` + addressWord + `", "value": "7"}`
	tokenPayload = `{"to": "` + tokenWord + `", "function": "transfer(address,uint256)", "args": ["` + addressWord + `", "7"]}`
	coinReceipt  = `{"from": "` + payerWord + `", "to": "` + addressWord + `", "status": "0x1", "logs": []}`
	tokenReceipt = `{"from": "` + payerWord + `", "to": "` + tokenWord + `", "status": "0x1", "logs": [{"address": "` + tokenWord + `",
		"topics": ["0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef",
			"0x00000000000000000000000000000000000000000000000000000000000000aa", "0x00000000000000000000000000000000000000000000000000000000000000bb"],
		"data": "0x0000000000000000000000000000000000000000000000000000000000000007"}]}`
)

// Each part of a proof is required.
func TestEachPartOfAProofIsRequired(t *testing.T) {
	t.Parallel()
	coin := transfer.Payout{Submitter: "eip155:1:" + payerWord, Address: addressWord, BaseUnits: "7", Payload: []byte(coinPayload)}
	token := coin
	token.Token, token.Payload = tokenWord, []byte(tokenPayload)
	with := func(text, old, replaced string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("%s has no %s: a mistake of the test", text, old)
		}
		return strings.Replace(text, old, replaced, 1)
	}
	for name, c := range map[string]struct {
		payout           transfer.Payout
		payload, receipt string
		ok               bool
	}{
		"coin":                     {coin, coinPayload, coinReceipt, true},
		"coin, other spacing":      {coin, strings.ReplaceAll(coinPayload, " ", ""), coinReceipt, true},
		"coin, another amount":     {coin, with(coinPayload, `"7"`, `"8"`), coinReceipt, false},
		"coin, another payload":    {coin, tokenPayload, coinReceipt, false},
		"coin, no payload":         {coin, "", coinReceipt, false},
		"coin, no receipt":         {coin, coinPayload, "", false},
		"coin, no document":        {coin, coinPayload, "7", false},
		"coin, reverted":           {coin, coinPayload, with(coinReceipt, "0x1", "0x0"), false},
		"coin, from another":       {coin, coinPayload, with(coinReceipt, payerWord, tokenWord), false},
		"coin, to another":         {coin, coinPayload, with(coinReceipt, addressWord, tokenWord), false},
		"token":                    {token, tokenPayload, tokenReceipt, true},
		"token, no event":          {token, tokenPayload, with(coinReceipt, addressWord, tokenWord), false},
		"token, another contract":  {token, tokenPayload, with(tokenReceipt, `"address": "`+tokenWord, `"address": "`+payerWord), false},
		"token, from another":      {token, tokenPayload, with(tokenReceipt, `aa", "0x0`, `ab", "0x0`), false},
		"token, to another":        {token, tokenPayload, with(tokenReceipt, `bb"]`, `bc"]`), false},
		"token, another amount":    {token, tokenPayload, with(tokenReceipt, `7"}`, `6"}`), false},
		"token, called by another": {token, tokenPayload, with(tokenReceipt, `"from": "`+payerWord, `"from": "`+addressWord), false},
	} {
		bytesOf := func(text string) []byte {
			if text == "" {
				return nil
			}
			return []byte(text)
		}
		index, err := checkPaid(families, c.payout, bytesOf(c.payload), bytesOf(c.receipt))
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrNotPaid) {
			t.Errorf("%s: got %v, want it paid: %t", name, err, c.ok)
		}
		if c.ok && c.payout.Token == "" {
			check.Equal(t, name+": log index", index, store.CoinMoved)
		}
	}
}

// Of several logs of one transaction only the one that pays is the proof. Logs of another contract,
// recipient or amount before it do not count.
func TestOnlyThePayingLogIsTheProof(t *testing.T) {
	t.Parallel()
	const topic = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
	log := func(contract, to, amount string, index string) string {
		word := func(address string) string { return "0x000000000000000000000000" + address[2:] }
		return `{"address": "` + contract + `", "topics": ["` + topic + `", "` + word(payerWord) + `", "` + word(to) + `"],
			"data": "0x` + strings.Repeat("0", 63) + amount + `", "logIndex": "` + index + `"}`
	}
	receipt := func(logs ...string) []byte {
		return []byte(`{"from": "` + payerWord + `", "to": "` + tokenWord + `", "status": "0x1", "logs": [` + strings.Join(logs, ", ") + `]}`)
	}
	p := transfer.Payout{Submitter: "eip155:1:" + payerWord, Address: addressWord, BaseUnits: "7", Token: tokenWord, Payload: []byte(tokenPayload)}
	others := []string{log(payerWord, addressWord, "7", "0x3"), log(tokenWord, payerWord, "7", "0x4"), log(tokenWord, addressWord, "6", "0x5")}
	check.Err(t, "no log that pays", ErrNotPaid)(checkPaid(families, p, p.Payload, receipt(others...)))
	got, err := checkPaid(families, p, p.Payload, receipt(append(others, log(tokenWord, addressWord, "7", "0x9"), log(tokenWord, addressWord, "7", "0xa"))...))
	if got != 9 || err != nil {
		t.Errorf("the log that pays: got %d, %v; want 9", got, err)
	}
}
