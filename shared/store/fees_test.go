package store_test

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// asking is an intent with these gas and fee members; "" omits a member.
func asking(request, gas, cap, tip string) store.Intent {
	in := intent(alice, request)
	text := `{"to":"0x0000000000000000000000000000000000000001"`
	for name, value := range map[string]string{"gas": gas, "maxFeePerGas": cap, "maxPriorityFeePerGas": tip} {
		if value != "" {
			text += fmt.Sprintf(`,%q:%q`, name, value)
		}
	}
	in.Payload = []byte(text + `}`)
	return in
}

// A caller's gas and fees pass up to the exact limit. An omitted value is checked by its
// lowest possible value, and again when a nonce is bound.
func TestFeesOfAPolicyAtTheCreate(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 10)
	limit(t, db, store.Policy{MaxGas: new(int64(30_000)), MaxPriorityFeePerGas: new("5"), MaxFeePerTx: new("300000")})
	posts(t, db, "all at their bounds", asking("r-1", "30000", "10", "5"), "")
	posts(t, db, "more gas", asking("r-2", "30001", "1", ""), store.RuleGas)
	posts(t, db, "a higher tip", asking("r-3", "", "", "6"), store.RuleTip)
	posts(t, db, "a higher fee", asking("r-4", "30000", "11", ""), store.RuleFee)
	posts(t, db, "a high cap, and gas to be estimated", asking("r-5", "", "1000", ""), "")
	posts(t, db, "gas alone", asking("r-6", "30000", "", ""), "")
	limit(t, db, store.Policy{MaxFeesPerDay: new("0")})
	posts(t, db, "nothing given, in a locked account", asking("r-7", "", "", ""), store.RuleFee)
	posts(t, db, "known", asking("r-1", "30000", "10", "5"), "")
	refused := asking("r-8", "30000", "10", "")
	refused.Refused = errors.New("too much for this deployment")
	limit(t, db, store.Policy{})
	for range 2 { // as of a submitter with a policy, and as of one without
		if _, err := db.Store.Create(t.Context(), refused, 1000); !errors.Is(err, refused.Refused) || stored(t, db, refused) != 0 {
			t.Errorf("refused by the deployment: got %v, want that, and nothing stored", err)
		}
	}
	known := asking("r-1", "30000", "10", "5")
	known.Refused = refused.Refused
	if got, err := db.Store.Create(t.Context(), known, 1000); err != nil || got.New {
		t.Errorf("known, and refused by now: got %+v, %v; want it as it is stored", got, err)
	}
}

// The fees of a day are the highest costs of all versions bound and stored under the lease.
// They are read with the state, counted once in the commit that binds, and expire after 24
// hours.
func TestFeesOfAPolicy(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 10)
	limit(t, db, store.Policy{MaxFeesPerDay: new("100000"), MaxFeePerTx: new("90000"), MaxPriorityFeePerGas: new("3"), MaxGas: new(int64(50_000))})
	for i := range 3 {
		posts(t, db, "an intent", asking(fmt.Sprint("r-", i), "", "", ""), "")
	}
	w := take(t, db, alice, "a/1")
	if b := w.Bounds; b.Gas != 50_000 || b.TipWei.Int64() != 3 || b.FeeWei.Int64() != 90_000 || b.FeesPerDayWei.Int64() != 100_000 || b.FeesUsedWei.Sign() != 0 {
		t.Fatalf("bounds: got %+v", b)
	}
	all := allocations(w, true)[:2] // of 21000 wei each
	var uses []txmanager.FeeUse
	for _, a := range all {
		uses = append(uses, txmanager.FeeUse{TxID: a.Tx.ID, AddedWei: big.NewInt(21_000)})
	}
	uses = append(uses, txmanager.FeeUse{TxID: w.Queue[2].ID, AddedWei: big.NewInt(50_000)}) // not bound
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: all, Fees: uses})
	used := func(what string, want int64) {
		t.Helper()
		again, err := db.BeginIteration(t.Context(), w.Lease, true)
		if err != nil {
			t.Fatal(err)
		}
		w.Lease = again.Lease
		if got := again.Bounds.FeesUsedWei; got == nil || got.Int64() != want {
			t.Errorf("%s: got %s used, want %d", what, got, want)
		}
	}
	used("two bound", 42_000)
	posts(t, db, "more than is left", asking("r-4", "29001", "2", ""), store.RuleFees)
	posts(t, db, "all that is left", asking("r-5", "29000", "2", ""), "")
	run(t, db, `alter table submitter_fee disable trigger user`)
	run(t, db, `update submitter_fee set at = at - interval '24 hours' where number = 1`)
	used("a day after the first", 21_000)
	run(t, db, `update submitter_fee set at = at - interval '24 hours' where number = 2`)
	used("a day after both", 0)
	limit(t, db, store.Policy{})
	if after := take(t, db, alice, "b/1"); after.Bounds.FeesPerDayWei != nil || after.Bounds.Gas != 0 {
		t.Errorf("without limits: got %+v", after.Bounds)
	}
}

// The database and the rules reach the same verdict on a caller's values.
func TestPropertyTheCreateJudgesAsTheBinding(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 10)
	rnd := rand.New(rand.NewPCG(18, 1))
	some := func(least, most int64) (*string, *big.Int) {
		if rnd.IntN(3) == 0 {
			return nil, nil
		}
		n := big.NewInt(least + rnd.Int64N(most))
		return new(n.String()), n
	}
	chain, err := evm.New(evm.Options{ChainID: 1337, URL: "http://127.0.0.1:9"})
	if err != nil {
		t.Fatal(err)
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	passed, refused := 0, 0
	for i := range 150 {
		var p store.Policy
		var b txmanager.Bounds
		p.MaxFeePerTx, b.FeeWei = some(0, 500_000)
		p.MaxPriorityFeePerGas, b.TipWei = some(1, 10)
		p.MaxFeesPerDay, b.FeesPerDayWei = some(0, 900_000)
		if gas, n := some(21_000, 20_000); gas != nil {
			p.MaxGas, b.Gas = new(n.Int64()), n.Uint64()
		}
		limit(t, db, p)
		gas, _ := some(21_000, 20_000)
		cap, capWei := some(8, 20)
		tip, tipWei := some(1, 12)
		if tipWei != nil && capWei != nil && tipWei.Cmp(capWei) > 0 {
			tip = cap
		}
		in := asking(fmt.Sprint("r-", i), text(gas), text(cap), text(tip))
		call, err := chain.ParsePayload(in.Payload)
		if err != nil {
			t.Fatal(err)
		}
		want := rules.Rules{}.RefusalReason(b, call) == ""
		if _, err := db.Store.Create(t.Context(), in, 1000); (err == nil) != want {
			t.Fatalf("%s under %+v: got %v, and the rules say that it passes: %v", in.Payload, b, err, want)
		}
		if want {
			passed++
		} else {
			refused++
		}
	}
	if passed < 20 || refused < 20 {
		t.Errorf("%d passed and %d were refused: too few to tell", passed, refused)
	}
}
