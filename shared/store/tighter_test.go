package store_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/store"
)

// Of two equal policies each is as tight as the other. A single limit that is lower, missing
// or wider decides the order.
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

// A policy is not tighter where a caller or a token lost a limit, was given more, or where a
// function of a bounded token is named that was not.
func TestTighterThanOfCallersAndTokens(t *testing.T) {
	t.Parallel()
	callers := func(of map[string]store.CallerLimits) store.Policy { return store.Policy{PerCaller: of} }
	tokens := func(amount, day *string, targets ...string) store.Policy {
		return store.Policy{Tokens: map[string]store.TokenLimits{tokenOne: {MaxAmount: amount, MaxAmountPerDay: day}}, Targets: targets}
	}
	two, one := store.CallerLimits{MaxQueued: new(2), MaxValue: new("2")}, store.CallerLimits{MaxQueued: new(1), MaxValue: new("1")}
	for _, c := range []struct {
		what     string
		now, old store.Policy
		want     bool
	}{
		{"a caller is named", callers(map[string]store.CallerLimits{ann: one}), store.Policy{}, true},
		{"no caller is named any more", store.Policy{}, callers(map[string]store.CallerLimits{ann: one}), false},
		{"lower", callers(map[string]store.CallerLimits{ann: one}), callers(map[string]store.CallerLimits{ann: two}), true},
		{"higher", callers(map[string]store.CallerLimits{ann: two}), callers(map[string]store.CallerLimits{ann: one}), false},
		{"one limit less", callers(map[string]store.CallerLimits{ann: {MaxQueued: new(1)}}), callers(map[string]store.CallerLimits{ann: one}), false},
		{"another caller in its place", callers(map[string]store.CallerLimits{ben: one}), callers(map[string]store.CallerLimits{ann: two}), false},
		{"one more, as everybody", callers(map[string]store.CallerLimits{ann: one, "*": one}), callers(map[string]store.CallerLimits{"*": one}), true},
		{"one more, above everybody", callers(map[string]store.CallerLimits{ann: two, "*": one}), callers(map[string]store.CallerLimits{"*": one}), false},
		{"everybody, beside one", callers(map[string]store.CallerLimits{ann: two, "*": one}), callers(map[string]store.CallerLimits{ann: two}), true},
		{"a token is named", tokens(new("1"), nil), store.Policy{}, true},
		{"no token is named any more", store.Policy{}, tokens(new("1"), nil), false},
		{"a lower amount", tokens(new("1"), new("2")), tokens(new("2"), new("2")), true},
		{"a higher amount of the day", tokens(new("1"), new("3")), tokens(new("2"), new("2")), false},
		{"no amount of the day", tokens(new("1"), nil), tokens(new("2"), new("2")), false},
		{"a function of the token", tokens(new("1"), nil, tokenOne+":0x39509351"), tokens(new("1"), nil), false},
		{"a function, where the address was", tokens(new("1"), nil, tokenOne+":0x39509351"), tokens(new("1"), nil, tokenOne), false},
		{"the same function", tokens(new("1"), nil, tokenOne+":0x39509351"), tokens(new("1"), nil, tokenOne+":0x39509351"), true},
		{"a bounded function", tokens(new("1"), nil, tokenOne+":0xa9059cbb"), tokens(new("1"), nil), true},
		{"a function of another contract", tokens(new("1"), nil, tokenTwo+":0x39509351"), tokens(new("1"), nil), true},
	} {
		if got := c.now.TighterThan(c.old); got != c.want {
			t.Errorf("%s: got %t, want %t", c.what, got, c.want)
		}
	}
}

// policies makes policies and intents at random that often meet at their limits.
type policies struct{ *rand.Rand }

func newRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

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
	for _, name := range []string{ann, ben, store.AnyCaller} {
		if limits := (store.CallerLimits{MaxValue: r.amount(), MaxValuePerDay: r.amount(), MaxPerMinute: r.number(), MaxQueued: r.number()}); r.IntN(3) == 0 && limits != (store.CallerLimits{}) {
			p.PerCaller = with(p.PerCaller, name, limits)
		}
	}
	for _, address := range []string{tokenOne, tokenTwo} {
		if limits := (store.TokenLimits{MaxAmount: r.amount(), MaxAmountPerDay: r.amount()}); r.IntN(3) == 0 && limits != (store.TokenLimits{}) {
			p.Tokens = with(p.Tokens, address, limits)
		}
	}
	return p
}

func (r policies) number() *int {
	if r.IntN(2) == 0 {
		return nil
	}
	return new(1 + r.IntN(3))
}

// with is the map with one entry more.
func with[V any](of map[string]V, name string, value V) map[string]V {
	if of = maps.Clone(of); of == nil {
		of = map[string]V{}
	}
	of[name] = value
	return of
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
		func() { p.Targets = []string{tokenOne + ":0x39509351", tokenTwo} },
		func() { p.PerCaller = other.PerCaller },
		func() { p.Tokens = other.Tokens },
		func() {
			for name, limits := range p.PerCaller {
				limits.MaxValue, limits.MaxQueued = new("1"), new(1)
				p.PerCaller = with(p.PerCaller, name, limits)
			}
		},
		func() {
			for name, limits := range other.PerCaller {
				p.PerCaller = with(p.PerCaller, name, limits)
			}
		},
		func() {
			for name, limits := range other.Tokens {
				p.Tokens = with(p.Tokens, name, limits)
			}
		},
	} {
		if r.IntN(4) == 0 {
			change()
		}
	}
	return p
}

func targetsAtRandom() []string {
	return []string{tokenOne, tokenOne + ":0xa9059cbb", tokenOne + ":0x39509351", tokenTwo + ":0x39509351", tokenTwo, tokenTwo + ":0xa9059cbb", store.TargetDeploy}
}

const tokenOne, tokenTwo = "0x0000000000000000000000000000000000000001", "0x0000000000000000000000000000000000000002"

func (r policies) intent(request string) store.Intent {
	in := of([]string{ann, ben, "sub:cia"}[r.IntN(3)], intent(alice, request))
	in.Payload = []byte(`{`)
	if to := r.IntN(3); to > 0 {
		in.Payload = fmt.Appendf(in.Payload, `"to":"0x%040x",`, to)
	}
	in.Payload = fmt.Appendf(in.Payload, `"data":%q,"value":"%d"`,
		[]string{"0x", "0xa9059cbb", "0x39509351", transfers(fmt.Sprint(r.IntN(4))), approves(fmt.Sprint(r.IntN(4))), transfers("1")}[r.IntN(6)], r.IntN(3))
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
	db := at(t, ann, ben, "sub:cia")
	r := policies{newRand(18, 2)}
	said := map[store.PolicyRule]int{}
	for i := range 4_000 {
		old := r.one()
		tighter := r.near(old)
		if !tighter.TighterThan(old) {
			continue
		}
		in := r.intent(fmt.Sprint("r-", i))
		limit(t, db, old)
		_, err := db.Store.Create(t.Context(), in, 100_000)
		var refused store.PolicyError
		if !errors.As(err, &refused) {
			if err != nil {
				t.Fatal(err)
			}
			if i%50 == 0 {
				later(t, db, "13 hours")
			}
			if i%7 == 0 {
				cancels(t, db, in)
			}
			continue
		}
		said[refused.Rule]++
		limit(t, db, tighter)
		if _, err := db.Store.Create(t.Context(), in, 100_000); !errors.As(err, new(store.PolicyError)) {
			t.Fatalf("%s by %+v is refused by %s, and by the tighter %+v: got %v, want it refused", in.Payload, old, refused.Rule, tighter, err)
		}
		if i%20 == 0 {
			later(t, db, "13 hours")
		}
		if i%40 == 0 {
			if _, err := db.Store.CancelQueue(t.Context(), store.QueueCancel{Submitter: alice, By: "olga", Reason: "a test", Limit: 1000}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, rule := range []store.PolicyRule{store.RuleValue, store.RuleTarget, store.RuleGas, store.RuleTip, store.RuleFee, store.RuleRate, store.RuleDay,
		store.RuleCallerValue, store.RuleCallerRate, store.RuleCallerQueue, store.RuleCallerDay, store.RuleToken, store.RuleAmount, store.RuleAmountDay} {
		if said[rule] < 2 {
			t.Errorf("%s refused %d: too few to tell", rule, said[rule])
		}
	}
}
