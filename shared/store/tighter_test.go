package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// Of two equal policies each is as tight as the other; one limit that is lower, missing or
// wider says which way round.
func TestTighterThan(t *testing.T) {
	t.Parallel()
	const one, two = "0x0000000000000000000000000000000000000001", "0x0000000000000000000000000000000000000002"
	full := func() store.Policy {
		return store.Policy{MaxValue: new("100"), MaxValuePerDay: new("100"), MaxPerMinute: new(10), Targets: []string{one, two + ":0xa9059cbb"},
			MaxFeePerTx: new("100"), MaxPriorityFeePerGas: new("100"), MaxGas: new(int64(50_000)), MaxFeesPerDay: new("100")}
	}
	for name, change := range map[string]func(p *store.Policy, amount *string, number *int, gas *int64){
		"maxValue":             func(p *store.Policy, amount *string, _ *int, _ *int64) { p.MaxValue = amount },
		"maxValuePerDay":       func(p *store.Policy, amount *string, _ *int, _ *int64) { p.MaxValuePerDay = amount },
		"maxPerMinute":         func(p *store.Policy, _ *string, number *int, _ *int64) { p.MaxPerMinute = number },
		"maxFeePerTx":          func(p *store.Policy, amount *string, _ *int, _ *int64) { p.MaxFeePerTx = amount },
		"maxPriorityFeePerGas": func(p *store.Policy, amount *string, _ *int, _ *int64) { p.MaxPriorityFeePerGas = amount },
		"maxGas":               func(p *store.Policy, _ *string, _ *int, gas *int64) { p.MaxGas = gas },
		"maxFeesPerDay":        func(p *store.Policy, amount *string, _ *int, _ *int64) { p.MaxFeesPerDay = amount },
	} {
		lower, higher, none := full(), full(), full()
		change(&lower, new("99"), new(9), new(int64(49_999)))
		change(&higher, new("101"), new(11), new(int64(50_001)))
		change(&none, nil, nil, nil)
		for what, p := range map[string]store.Policy{"higher": higher, "none": none} {
			if p.TighterThan(full()) || !full().TighterThan(p) {
				t.Errorf("%s %s: got it as tight as before, or not the other way round", name, what)
			}
		}
		if !lower.TighterThan(full()) || full().TighterThan(lower) {
			t.Errorf("%s lower: got it not as tight as before, or also the other way round", name)
		}
	}
	if !full().TighterThan(full()) || !(store.Policy{}).TighterThan(store.Policy{}) {
		t.Error("equal policies: got no, want each as tight as the other")
	}
	if p := (store.Policy{MaxValue: new("ten")}); p.TighterThan(p) {
		t.Error("an amount that is none: got yes, want no")
	}
	for _, c := range []struct {
		what      string
		now, then []string
		want      bool
	}{
		{"fewer", []string{one}, []string{one, two}, true},
		{"more", []string{one, two}, []string{one}, false},
		{"a function of an address that stood alone", []string{one + ":0xa9059cbb"}, []string{one}, true},
		{"an address of which a function stood", []string{one}, []string{one + ":0xa9059cbb"}, false},
		{"another function", []string{one + ":0x095ea7b3"}, []string{one + ":0xa9059cbb"}, false},
		{"a list where none was", []string{one}, nil, true},
		{"no list any more", nil, []string{one}, false},
		{"deployments too", []string{one, store.TargetDeploy}, []string{one}, false},
		{"no deployments any more", []string{one}, []string{one, store.TargetDeploy}, true},
	} {
		if got := (store.Policy{Targets: c.now}).TighterThan(store.Policy{Targets: c.then}); got != c.want {
			t.Errorf("%s: got %t, want %t", c.what, got, c.want)
		}
	}
}

// policies makes policies and intents at random that often meet at their limits.
type policies struct{ *rand.Rand }

func (r policies) amount() *string {
	if r.IntN(2) == 0 {
		return nil
	}
	return new(fmt.Sprint(r.IntN(4)))
}

// some is n different ones of all, at least one, or none at all.
func (r policies) some(all []string) (some []string) {
	if r.IntN(2) == 0 {
		return nil
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	some = slices.Clone(all[:1+r.IntN(len(all))])
	return some
}

func (r policies) one() (p store.Policy) {
	p.MaxValue, p.MaxValuePerDay, p.Targets = r.amount(), r.amount(), r.some(targetsAtRandom())
	if r.IntN(3) == 0 {
		p.MaxPerMinute = new(1 + r.IntN(3))
	}
	if r.IntN(3) == 0 {
		p.MaxPriorityFeePerGas = new(fmt.Sprint(1 + r.IntN(3)))
	}
	if r.IntN(3) == 0 {
		p.MaxGas = new(int64(21_000 + r.IntN(3)))
	}
	if r.IntN(3) == 0 {
		p.MaxFeePerTx = new(fmt.Sprint(r.IntN(4) * 21_000))
	}
	if r.IntN(3) == 0 {
		p.MaxFeesPerDay = new(fmt.Sprint(r.IntN(4) * 21_000))
	}
	return p
}

// near is another policy that differs from p in little.
func (r policies) near(p store.Policy) store.Policy {
	other := r.one()
	for _, change := range []func(){
		func() { p.MaxValue = other.MaxValue },
		func() { p.MaxValuePerDay = other.MaxValuePerDay },
		func() { p.MaxPerMinute = other.MaxPerMinute },
		func() { p.Targets = other.Targets },
		func() { p.MaxFeePerTx = other.MaxFeePerTx },
		func() { p.MaxPriorityFeePerGas = other.MaxPriorityFeePerGas },
		func() { p.MaxGas = other.MaxGas },
		func() { p.MaxFeesPerDay = other.MaxFeesPerDay },
	} {
		if r.IntN(4) == 0 {
			change()
		}
	}
	return p
}

func targetsAtRandom() []string {
	return []string{tokenOne, tokenOne + ":0xa9059cbb", tokenOne + ":0x095ea7b3", tokenTwo, tokenTwo + ":0xa9059cbb", store.TargetDeploy}
}

const tokenOne, tokenTwo = "0x0000000000000000000000000000000000000001", "0x0000000000000000000000000000000000000002"

func (r policies) intent(request string) store.Intent {
	in := intent(alice, request)
	in.Payload = []byte(`{`)
	if to := r.IntN(3); to > 0 {
		in.Payload = fmt.Appendf(in.Payload, `"to":"0x%040x",`, to)
	}
	in.Payload = fmt.Appendf(in.Payload, `"data":%q,"value":"%d"`, []string{"0x", "0xa9059cbb", "0x095ea7b3"}[r.IntN(3)], r.IntN(4))
	if r.IntN(2) == 0 {
		in.Payload = fmt.Appendf(in.Payload, `,"gas":"%d","maxFeePerGas":"3","maxPriorityFeePerGas":"%d"`, 21_000+r.IntN(3), 1+r.IntN(3))
	}
	in.Payload = append(in.Payload, '}')
	return in
}

// Where a policy is as tight as the one before, it refuses what that one refuses, whatever was
// used by then.
func TestPropertyATighterPolicyRefusesNoLess(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 10)
	r := policies{rand.New(rand.NewPCG(18, 2))}
	said := map[store.PolicyRule]int{}
	for i := 0; i < 4000; i++ {
		old := r.one()
		tighter := r.near(old)
		if !tighter.TighterThan(old) {
			continue
		}
		in := r.intent(fmt.Sprint("r-", i))
		limit(t, db, old)
		_, err := db.Store.Create(t.Context(), in, 100_000)
		var refused store.ErrPolicy
		if !errors.As(err, &refused) {
			if err != nil {
				t.Fatal(err)
			}
			if i%50 == 0 {
				shift(t, db, "13 hours")
			}
			continue
		}
		said[refused.Rule]++
		limit(t, db, tighter)
		if _, err := db.Store.Create(t.Context(), in, 100_000); !errors.As(err, new(store.ErrPolicy)) {
			t.Fatalf("%s by %+v is refused by %s, and by the tighter %+v: got %v, want it refused", in.Payload, old, refused.Rule, tighter, err)
		}
		if i%20 == 0 {
			shift(t, db, "13 hours")
		}
	}
	for _, rule := range []store.PolicyRule{store.RuleValue, store.RuleTarget, store.RuleGas, store.RuleTip, store.RuleFee, store.RuleRate, store.RuleDay} {
		if said[rule] < 5 {
			t.Errorf("%s refused %d: too few to tell", rule, said[rule])
		}
	}
}
