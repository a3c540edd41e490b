package evm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// memberOf returns the calls of a random query of submitter i, as [Connector.fetch] makes them, or of a
// later round trip of it.
func memberOf(random *rand.Rand, i int) *member {
	account := fmt.Sprintf("0x%040x", i)
	self := txmanager.Address(account)
	maybe := func(calls ...*call) []*call { return calls[:random.IntN(len(calls)+1)] }
	if random.IntN(4) == 0 {
		again := askBlock(fmt.Sprintf("0x%x", random.IntN(3)))
		again.proof = true
		return &member{calls: slices.Concat(maybe(ask("eth_getTransactionReceipt", account)), []*call{again, askBlock("latest")})}
	}
	return &member{calls: slices.Concat(
		[]*call{askBlock("latest")},
		maybe(ask("eth_getTransactionCount", account, "latest"), ask("eth_getBalance", account, "latest"), ask("eth_maxPriorityFeePerGas"),
			ask("eth_feeHistory", "0x5", "latest", []int{50}), ask("eth_getTransactionReceipt", account)),
		maybe(askBlock("0x1"), askBlock("0x2")), maybe(askBlock("safe")),
		maybe(askEstimate(self, txmanager.Call{To: &self}), ask("eth_getTransactionCount", account, "finalized"), askBlock("finalized")),
		[]*call{askBlock("latest")})}
}

// Each member of a shared request finds answers to all its calls, and they are between its first and its
// last header, in the order that a query relies on. Equal headers and fees are requested once in each part.
func TestMergedCallsStayBetweenTheHeads(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		members := make([]*member, 2+random.IntN(20))
		for i := range members {
			members[i] = memberOf(random, i)
		}
		all, each := merge(members)
		times := map[string]int{}
		for _, a := range all {
			times[fmt.Sprint(a.method, a.args)]++
		}
		for key, n := range times {
			if n > 2 {
				t.Errorf("seed %d: %s: requested %d times, want once or at the beginning and at the end", seed, key, n)
			}
		}
		checkProofs(t, seed, all)
		for i, m := range members {
			checkMember(t, fmt.Sprintf("seed %d, member %d", seed, i), m.calls, each[i], all)
		}
	}
}

// checkProofs checks that the proofs are directly before the last head, with nothing between them.
func checkProofs(t *testing.T, seed uint64, all []*call) {
	t.Helper()
	first := slices.IndexFunc(all, func(a *call) bool { return a.proof })
	if first < 0 {
		return
	}
	for _, a := range all[first : len(all)-1] {
		if !a.proof {
			t.Errorf("seed %d: %s %v is between a proof and the last head", seed, a.method, a.args)
		}
	}
	check.Equal(t, fmt.Sprintf("seed %d: the call after the proofs", seed), fmt.Sprint(all[len(all)-1].args[0]), "latest")
}

func checkMember(t *testing.T, what string, asked, answers, all []*call) {
	t.Helper()
	before := -1
	for i, a := range answers {
		at := slices.Index(all, a)
		if at < 0 || fmt.Sprint(a.method, a.args) != fmt.Sprint(asked[i].method, asked[i].args) {
			t.Fatalf("%s: call %d: got %s %v, want %s %v of the request", what, i, a.method, a.args, asked[i].method, asked[i].args)
		}
		if first, last := slices.Index(all, answers[0]), slices.Index(all, answers[len(answers)-1]); asked[0].header && i > 0 && at <= first || i < len(answers)-1 && at >= last {
			t.Errorf("%s: %s %v at %d, want it between %d and %d", what, a.method, a.args, at, first, last)
		}
		if a.isFee() || a.header && a.args[0] != "finalized" { // their order has no meaning
			continue
		}
		if at <= before {
			t.Errorf("%s: %s %v at %d, want it after %d", what, a.method, a.args, at, before)
		}
		before = at
	}
}

// Only headers and fees are requested once for several: never a transaction that is sent, nor anything of
// one account. A lone round trip is sent as it is.
func TestOnlyHeadersAndFeesAreRequestedOnce(t *testing.T) {
	t.Parallel()
	calls := func() []*call {
		return []*call{askBlock("latest"), ask("eth_sendRawTransaction", "0x02"), ask("eth_getBalance", "0x1", "latest"), ask("eth_gasPrice"), askBlock("latest")}
	}
	texts := func(members ...*member) (all []string) {
		merged, _ := merge(members)
		for _, a := range merged {
			all = append(all, fmt.Sprint(a.method, a.args))
		}
		return all
	}
	latest, raw, balance, price := "eth_getBlockByNumber[latest false]", "eth_sendRawTransaction[0x02]", "eth_getBalance[0x1 latest]", "eth_gasPrice[]"
	check.Same(t, "two", texts(&member{calls: calls()}, &member{calls: calls()}), []string{latest, price, raw, balance, raw, balance, latest})
	check.Same(t, "one", texts(&member{calls: calls()}), []string{latest, raw, balance, price, latest})
}

// A gas estimate that can run code goes alone, with data or without. That of a placeholder may share.
func TestEstimatesThatRunCodeGoAlone(t *testing.T) {
	t.Parallel()
	c := &Connector{maxBatch: 100}
	self, other := txmanager.Address("0x0000000000000000000000000000000000000001"), txmanager.Address("0x0000000000000000000000000000000000000002")
	for name, one := range map[string]struct {
		call  txmanager.Call
		alone bool
	}{
		"data":         {txmanager.Call{To: &other, Data: []byte{1}}, true},
		"no data":      {txmanager.Call{To: &other}, true},
		"creation":     {txmanager.Call{Data: []byte{1}}, true},
		"data to self": {txmanager.Call{To: &self, Data: []byte{1}}, true},
		"placeholder":  {txmanager.Call{To: &self}, false},
	} {
		weight := c.weigh([]*call{askBlock("latest"), askEstimate(self, one.call), askBlock("latest")})
		check.Equal(t, name, weight >= maxRequestBytes, one.alone)
	}
}

// The members that fit one request keep to the limit of its calls. One with a block's receipts goes alone.
func TestMembersKeepToTheLimitOfCalls(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 2))
		c := &Connector{maxBatch: minBatch + random.IntN(100)}
		var members []*member
		for size := 0; ; {
			m := memberOf(random, len(members))
			if size += c.weigh(m.calls); size > maxRequestBytes {
				break
			}
			members = append(members, m)
		}
		if all, _ := merge(members); len(members) > 1 && 1+len(all) > c.maxBatch { // and the chain id
			t.Errorf("seed %d: %d members: got %d calls, want at most %d", seed, len(members), 1+len(all), c.maxBatch)
		}
		check.Equal(t, "part of a query for a block's receipts", c.weigh([]*call{ask(blockReceipts, "0x1"), askBlock("latest")}), maxRequestBytes)
	}
}
