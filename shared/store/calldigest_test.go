package store_test

import (
	"math/big"
	"testing"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/memchain"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The digest of an intent's call is that of the call which its family reads from the stored payload. Without one, an
// intent would not be compared with the foreign transaction that may have done its work.
func TestEachStoredPayloadHasItsCallsDigest(t *testing.T) {
	t.Parallel()
	const to = "0x00000000000000000000000000000000000000aa"
	for _, c := range []struct {
		family  chain.Family
		payload string
	}{
		{evm.Family{}, `{"to": "` + to + `"}`},
		{evm.Family{}, `{"to": "` + to + `", "value": "115792089237316195423570985008687907853269984665640564039457584007913129639935"}`},
		{evm.Family{}, `{"to": "` + to + `", "data": "0x", "gas": 30000}`},
		{evm.Family{}, `{"to": "` + to + `", "data": "0xABCD", "maxGas": 60000, "maxFeePerGas": "7", "maxPriorityFeePerGas": "1"}`},
		{evm.Family{}, `{"to": "` + to + `", "function": "transfer(address,uint256)", "args": ["` + to + `", "5"]}`},
		{evm.Family{}, `{"data": "0x6000"}`},
		{memchain.Family{}, `{"to": "` + memchain.AddressOf(make([]byte, 32)).String() + `", "value": "3", "data": "abcd", "fee": "9"}`},
	} {
		canonical, _, err := c.family.ParsePayload([]byte(c.payload))
		check.OK(t)(err)
		wantDigest(t, c.family, canonical)
	}
	token := txmanager.Address("0x00000000000000000000000000000000000000bb")
	for _, of := range []*txmanager.Address{nil, &token} {
		wantDigest(t, evm.Family{}, check.Value(evm.Family{}.PaymentPayload(of, token, big.NewInt(12), 300_000))(t))
	}
	check.Equal(t, "the digest of a call that the handler makes", len(store.CallDigest(store.Intent{Handler: "shop"})), 0)
}

func wantDigest(t *testing.T, family chain.Family, canonical []byte) {
	t.Helper()
	want := check.Value(family.StoredCall(canonical))(t).Digest()
	check.Equal(t, string(canonical), string(store.CallDigest(store.Intent{Payload: canonical})), string(want[:]))
}
