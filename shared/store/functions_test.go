package store_test

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Where a policy names functions of a contract, a create, and what a handler makes, may call
// these and no others.
func TestFunctionsOfAPolicy(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 10)
	token, shop := eip155.Address([20]byte{19: 0xa}), eip155.Address([20]byte{19: 0xb})
	limit(t, db, store.Policy{Targets: []string{token.String() + ":0xa9059cbb", shop.String()}})
	calls := func(request string, to *txmanager.Address, data string) store.Intent {
		in := intent(alice, request)
		in.Payload = fmt.Appendf(nil, `{"to":%q,"data":%q}`, to, data)
		if data == "" {
			in.Payload = fmt.Appendf(nil, `{"to":%q,"value":"1"}`, to)
		}
		return in
	}
	w := take(t, db, alice, "a/1")
	for i, c := range []struct {
		what string
		to   *txmanager.Address
		data []byte
		want store.PolicyRule
	}{
		{"the function", &token, []byte{0xa9, 0x05, 0x9c, 0xbb, 1}, ""},
		{"the function, without arguments", &token, []byte{0xa9, 0x05, 0x9c, 0xbb}, ""},
		{"another function", &token, []byte{0x09, 0x5e, 0xa7, 0xb3, 1}, store.RuleTarget},
		{"no function", &token, nil, store.RuleTarget},
		{"data too short for one", &token, []byte{0xa9, 0x05, 0x9c}, store.RuleTarget},
		{"an address that stands alone", &shop, []byte{0x09, 0x5e, 0xa7, 0xb3}, ""},
		{"payment to one", &shop, nil, ""},
	} {
		data := ""
		if c.data != nil {
			data = fmt.Sprintf("0x%x", c.data)
		}
		posts(t, db, c.what, calls(fmt.Sprint("r-", i), c.to, data), c.want)
		made := txmanager.Call{To: c.to, Data: c.data}
		refused, err := db.Store.CheckPolicy(t.Context(), w.Lease, "00000000-0000-4000-8000-000000000001", made)
		if err != nil || (refused == "") != (c.want == "") {
			t.Errorf("%s, of a handler: got %q, %v; want it refused: %t", c.what, refused, err, c.want != "")
		}
	}
}
