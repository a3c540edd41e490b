package store_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const ann, ben, token = "sub:ann", "sub:ben", "0x000000000000000000000000000000000000000a"

// of has the intent posted by the caller.
func of(caller string, in store.Intent) store.Intent {
	in.Caller, in.Names = caller, []string{caller}
	return in
}

// called is an intent that calls the token with the data.
func called(request, data string) store.Intent {
	in := intent(alice, request)
	in.Payload = fmt.Appendf(nil, `{"to":%q,"data":%q,"value":"0"}`, token, data)
	return in
}

func word(n string) string {
	v, ok := new(big.Int).SetString(n, 10)
	if !ok {
		panic(n)
	}
	return fmt.Sprintf("%064x", v)
}

func transfers(amount string) string { return "0xa9059cbb" + word("11") + word(amount) }
func approves(amount string) string  { return "0x095ea7b3" + word("11") + word(amount) }
func transfersFrom(amount string) string {
	return "0x23b872dd" + word("11") + word("12") + word(amount)
}

// shared is a database whose alice has two callers and handlers.
func shared(t *testing.T) storetest.Bundle {
	t.Helper()
	return at(t, ann, ben, "handler:wage", "hooks")
}

// later moves all uses back in time, and the released amounts.
func later(t *testing.T, db storetest.Bundle, by string) {
	t.Helper()
	for table, column := range map[string]string{"submitter_use": "at", "policy_use": "at", "policy_released_use": "minute"} {
		db.Run(t, `alter table `+table+` disable trigger user`)
		for _, far := range []string{"-", "+"} { // first where no row stands in another's way
			value[int](t, db, `with moved as (update `+table+` set `+column+` = `+column+` `+far+` interval '9000000 hours' - $1::interval / 2 returning 1) select count(*)::int from moved`, by)
		}
		db.Run(t, `alter table `+table+` enable trigger user`)
	}
}

// cancels has an operator cancel the intent.
func cancels(t *testing.T, db storetest.Bundle, in store.Intent) {
	t.Helper()
	id := value[string](t, db, `select tx_id::text from managed_tx where request_id = $1`, in.RequestID)
	if d, err := decide(t, db, id, operator, txmanager.ActionCancel); err != nil || d.SubState != txmanager.Cancelled {
		t.Fatalf("cancel %s: got %+v, %v", in.RequestID, d, err)
	}
}

// Each caller has its own share: one that has used it up is refused, and others are not. A caller
// that is not named has the share of "*".
func TestLimitsOfACaller(t *testing.T) {
	t.Parallel()
	db := shared(t)
	limit(t, db, store.Policy{MaxValuePerDay: new("100"), PerCaller: map[string]store.CallerLimits{
		ann:             {MaxValue: new("6"), MaxValuePerDay: new("10"), MaxPerMinute: new(4), MaxQueued: new(3)},
		store.AnyCaller: {MaxValuePerDay: new("50")},
	}})
	posts(t, db, "too much for her", of(ann, paying(alice, "a-1", "7", 1)), store.RuleCallerValue)
	posts(t, db, "the most", of(ann, paying(alice, "a-2", "6", 1)), "")
	posts(t, db, "too much for her day", of(ann, paying(alice, "a-3", "5", 1)), store.RuleCallerDay)
	posts(t, db, "the rest of her day", of(ann, paying(alice, "a-4", "4", 1)), "")
	posts(t, db, "the third that waits", of(ann, paying(alice, "a-5", "0", 1)), "")
	posts(t, db, "the fourth that waits", of(ann, paying(alice, "a-6", "0", 1)), store.RuleCallerQueue)
	posts(t, db, "what waits already", of(ann, paying(alice, "a-5", "0", 1)), "")
	posts(t, db, "another's, more than hers", of(ben, paying(alice, "b-1", "40", 1)), "")
	posts(t, db, "more than everybody's share", of(ben, paying(alice, "b-2", "11", 1)), store.RuleCallerDay)
	cancels(t, db, paying(alice, "a-5", "0", 1))
	posts(t, db, "in the place that is free", of(ann, paying(alice, "a-7", "0", 1)), "")
	cancels(t, db, paying(alice, "a-7", "0", 1))
	posts(t, db, "the fifth in a minute", of(ann, paying(alice, "a-8", "0", 1)), store.RuleCallerRate)
	later(t, db, "1 minute")
	posts(t, db, "a minute later", of(ann, paying(alice, "a-8", "0", 1)), "")
	posts(t, db, "no more that day", of(ann, paying(alice, "a-9", "1", 1)), store.RuleCallerQueue)
	cancels(t, db, paying(alice, "a-8", "0", 1))
	posts(t, db, "no more that day", of(ann, paying(alice, "a-9", "1", 1)), store.RuleCallerDay)
	later(t, db, "24 hours")
	posts(t, db, "a day later", of(ann, paying(alice, "a-9", "6", 1)), "")
	_, err := db.Store.Create(t.Context(), of(ann, paying(alice, "a-10", "7", 1)), 1000)
	if e, ok := errors.AsType[store.PolicyError](err); !ok || e.Limit != "6" || !strings.Contains(e.Error(), "this caller at most 6 wei") {
		t.Errorf("the refusal: got %v, want it to name the caller's limit", err)
	}
}

// A successor gets the former caller's remaining quota and no second one. That also holds
// after further successions, and if the policy names only the old caller.
func TestASuccessorHasNoSecondShare(t *testing.T) {
	t.Parallel()
	for name, named := range map[string]string{"named": ann, "by *": store.AnyCaller} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := at(t, ann)
			limit(t, db, store.Policy{PerCaller: map[string]store.CallerLimits{named: {MaxValuePerDay: new("10"), MaxPerMinute: new(3), MaxQueued: new(2)}}})
			posts(t, db, "the first caller", of(ann, paying(alice, "r-1", "6", 1)), "")
			put(t, db, []string{"sub:bea"}, "sub:bea", ann)
			posts(t, db, "too much for both", of("sub:bea", paying(alice, "r-2", "5", 1)), store.RuleCallerDay)
			posts(t, db, "the rest", of("sub:bea", paying(alice, "r-2", "3", 1)), "")
			put(t, db, []string{"sub:cia"}, "sub:cia", "sub:bea")
			posts(t, db, "too many of all three wait", of("sub:cia", paying(alice, "r-3", "0", 1)), store.RuleCallerQueue)
			cancels(t, db, paying(alice, "r-2", "3", 1))
			posts(t, db, "more than was given back", of("sub:cia", paying(alice, "r-3", "5", 1)), store.RuleCallerDay)
			posts(t, db, "what was given back, and the rest", of("sub:cia", paying(alice, "r-3", "4", 1)), "")
			put(t, db, []string{ann}, ann, "sub:cia")
			cancels(t, db, paying(alice, "r-3", "4", 1))
			posts(t, db, "the fourth of all in a minute", of(ann, paying(alice, "r-4", "0", 1)), store.RuleCallerRate)
			later(t, db, "24 hours")
			posts(t, db, "a day later", of(ann, paying(alice, "r-4", "10", 1)), "")
		})
	}
}

// A caller that was registered before names had kinds is the one that a policy names in full.
func TestLimitsOfACallerOfBefore(t *testing.T) {
	t.Parallel()
	db := at(t, "ann@fencepost.example", "ben")
	limit(t, db, store.Policy{PerCaller: map[string]store.CallerLimits{
		"email:ann@fencepost.example": {MaxValuePerDay: new("10"), MaxQueued: new(2)}, "sub:ben": {MaxValue: new("1")},
	}})
	old := func(in store.Intent, names ...string) store.Intent {
		in.Caller, in.Names = names[0], names
		return in
	}
	both := []string{"email:ann@fencepost.example", "ann@fencepost.example"}
	posts(t, db, "by its short name", old(paying(alice, "r-1", "6", 1), both...), "")
	posts(t, db, "too much for ben", old(paying(alice, "r-2", "2", 1), "sub:ben", "ben"), store.RuleCallerValue)
	put(t, db, []string{"email:ann@fencepost.example"})
	posts(t, db, "too much of both", old(paying(alice, "r-3", "5", 1), both...), store.RuleCallerDay)
	posts(t, db, "the rest", old(paying(alice, "r-3", "4", 1), both...), "")
	posts(t, db, "a third that waits", old(paying(alice, "r-4", "0", 1), both...), store.RuleCallerQueue)
}

// What a handler makes, and what the owner of a reservation signs, counts for who posted it.
func TestLimitsOfACallerWhoseTransactionIsMade(t *testing.T) {
	t.Parallel()
	db := shared(t)
	limit(t, db, store.Policy{PerCaller: map[string]store.CallerLimits{
		ann: {MaxValue: new("6"), MaxValuePerDay: new("10")}, "hooks": {MaxValuePerDay: new("5"), MaxPerMinute: new(2)},
	}})
	wage := of(ann, intent(alice, "wage"))
	wage.Handler = "wage"
	posts(t, db, "a handler's", wage, "")
	posts(t, db, "another's", of(ben, paying(alice, "b-1", "99", 1)), "")
	one := eip155.Address([20]byte{19: 1})
	w := take(t, db, alice, "a/1")
	for _, c := range []struct {
		wei  int64
		want string
	}{{7, "this caller at most 6 wei"}, {6, ""}, {6, ""}} {
		makes(t, db, w, wage.TxID, fmt.Sprint(c.wei, " wei made"), txmanager.Call{To: &one, Value: big.NewInt(c.wei)}, c.want)
	}
	write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseAnyway})
	posts(t, db, "more than the rest", of(ann, paying(alice, "a-1", "5", 1)), store.RuleCallerDay)
	posts(t, db, "the rest", of(ann, paying(alice, "a-1", "4", 1)), "")
	db.Run(t, `update managed_tx set state = 'FAILED', sub_state = 'REJECTED' where state = 'QUEUED'`)
	ids := reserve(t, db, "x", 0, 1)
	third, forGood := store.PolicyError{Rule: store.RuleCallerRate, Limit: "2"}, store.PolicyError{Rule: store.RuleCallerCount, Limit: "2"}
	check.Err(t, "a third nonce", third)(db.Commit(t.Context(), txmanager.Commit{Lease: take(t, db, alice, "h/1").Lease, Reservations: bookings("x", time.Hour, 2)}))
	check.Err(t, "three nonces at once", forGood)(db.Commit(t.Context(), txmanager.Commit{Lease: take(t, db, alice, "h/1").Lease, Reservations: bookings("x", time.Hour, 2, 3, 4)}))
	check.Equal(t, "for good", forGood.IsPermanent(), true)
	for _, c := range []struct {
		wei  int64
		want store.PolicyRule
	}{{6, store.RuleCallerDay}, {5, ""}} {
		handsIn(t, db, fmt.Sprint(c.wei, " wei signed"), usedMark(ids[0], "x", 0), txmanager.Call{To: &one, Value: big.NewInt(c.wei)}, c.want, c.want == "")
	}
}

// However many creates of two callers come at once, to however many processes, neither has
// more in the queue, or more of a day, than its share.
func TestLimitsOfCallersManyAtOnce(t *testing.T) {
	t.Parallel()
	const processes, each, queued, wei = 3, 15, 12, 9
	db := shared(t)
	limit(t, db, store.Policy{PerCaller: map[string]store.CallerLimits{ann: {MaxQueued: new(queued)}, ben: {MaxValuePerDay: new(fmt.Sprint(wei))}}})
	var wg sync.WaitGroup
	for p := range processes {
		s := storetest.At(t, db.URL, storetest.Rules)
		for i := range each {
			for _, caller := range []string{ann, ben} {
				wg.Go(func() {
					_, err := s.Create(t.Context(), of(caller, paying(alice, fmt.Sprintf("%s-%d-%d", caller, p, i), "1", 1)), 1000)
					if refused := (store.PolicyError{}); err != nil && !errors.As(err, &refused) {
						t.Errorf("%s: %v", caller, err)
					}
				})
			}
		}
	}
	wg.Wait()
	check.Equal(t, "taken of ann and ben", value[string](t, db, `select count(*) filter (where caller = 'sub:ann') || ' ' || count(*) filter (where caller = 'sub:ben') from managed_tx`), fmt.Sprint(queued, " ", wei))
}

// Of a token that the policy names only transfer, approve and transferFrom may be called,
// encoded as the ABI has it. One amount is bounded, and their sum in 24 hours.
func TestLimitsOfAToken(t *testing.T) {
	t.Parallel()
	db := shared(t)
	most := "115792089237316195423570985008687907853269984665640564039457584007913129639935"
	limit(t, db, store.Policy{Tokens: map[string]store.TokenLimits{token: {MaxAmount: new("60"), MaxAmountPerDay: new("100")}}})
	for i, c := range []struct {
		what, data string
		want       store.PolicyRule
	}{
		{"transfer above", transfers("61"), store.RuleAmount},
		{"approve above", approves("61"), store.RuleAmount},
		{"approve of all", approves(most), store.RuleAmount},
		{"transferFrom above", transfersFrom("61"), store.RuleAmount},
		{"another function", "0x39509351" + word("11") + word("1"), store.RuleToken},
		{"no data", "0x", store.RuleToken},
		{"three bytes", "0xa9059c", store.RuleToken},
		{"no arguments", "0xa9059cbb", store.RuleToken},
		{"a byte too few", transfers("1")[:136], store.RuleToken},
		{"a byte too many", transfers("1") + "00", store.RuleToken},
		{"a word too many", transfers("1") + word("0"), store.RuleToken},
		{"an address with something before it", "0xa9059cbb" + "01" + word("11")[2:] + word("1"), store.RuleToken},
		{"the second address with something before it", "0x23b872dd" + word("11") + "01" + word("12")[2:] + word("1"), store.RuleToken},
		{"transfer", transfers("60"), ""},
		{"approve, too much for the day", approves("41"), store.RuleAmountDay},
		{"approve", approves("30"), ""},
		{"transferFrom, too much for the day", transfersFrom("11"), store.RuleAmountDay},
		{"transferFrom", transfersFrom("10"), ""},
		{"one unit more", transfers("1"), store.RuleAmountDay},
		{"nothing", approves("0"), ""},
	} {
		posts(t, db, c.what, of(ann, called(fmt.Sprint("r-", i), c.data)), c.want)
	}
	posts(t, db, "another contract", of(ann, paying(alice, "other", "5", 1)), "")
	plainly := of(ann, paying(alice, "plain", "5", 10))
	posts(t, db, "coin to the token", plainly, store.RuleToken)
	later(t, db, "24 hours")
	posts(t, db, "a day later", of(ann, called("later", transfers("60"))), "")
	limit(t, db, store.Policy{Tokens: map[string]store.TokenLimits{token: {MaxAmountPerDay: new("100")}}, Targets: []string{token, token + ":0xa9059cbb", token + ":0x39509351"}})
	posts(t, db, "a function that targets names", of(ann, called("named", "0x39509351"+word("11")+word("999"))), "")
	posts(t, db, "a bounded one that targets names, malformed", of(ann, called("malformed", "0xa9059cbb")), store.RuleToken)
	posts(t, db, "no data, where targets names the address", of(ann, called("empty", "0x")), store.RuleToken)
	posts(t, db, "more than the rest of the day", of(ann, called("rest", transfers("41"))), store.RuleAmountDay)
	limit(t, db, store.Policy{Tokens: map[string]store.TokenLimits{token: {MaxAmount: new("5")}}, Targets: []string{fmt.Sprintf("0x%040x", 1)}})
	posts(t, db, "a token that targets does not name", of(ann, called("absent", transfers("1"))), store.RuleTarget)
}

// A handler's call of a token, and a reservation's, is held to the same limits, and counts once.
func TestLimitsOfATokenThatIsCalledByAHandler(t *testing.T) {
	t.Parallel()
	db := shared(t)
	limit(t, db, store.Policy{Tokens: map[string]store.TokenLimits{token: {MaxAmount: new("60"), MaxAmountPerDay: new("100")}}})
	wage := of(ann, intent(alice, "wage"))
	wage.Handler = "wage"
	posts(t, db, "a handler's", wage, "")
	w := take(t, db, alice, "a/1")
	to := eip155.Address([20]byte{19: 10})
	calls := func(data string) txmanager.Call {
		return txmanager.Call{To: &to, Data: check.Value(hex.DecodeString(data[2:]))(t)}
	}
	for _, c := range []struct{ data, want string }{
		{transfers("61"), "at most 60"}, {"0x39509351" + word("11") + word("1"), "bounds amounts"}, {transfers("1") + "00", "bounds amounts"},
		{transfers("60"), ""}, {transfers("60"), ""}, {approves("50"), ""},
	} {
		makes(t, db, w, wage.TxID, c.data[:10]+" made", calls(c.data), c.want)
	}
	write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseAnyway})
	posts(t, db, "more than the rest", of(ann, called("rest", transfers("41"))), store.RuleAmountDay)
	db.Run(t, `update managed_tx set state = 'FAILED', sub_state = 'REJECTED' where state = 'QUEUED'`)
	ids := reserve(t, db, "x", 0)
	for _, c := range []struct {
		data string
		want store.PolicyRule
	}{{transfers("61"), store.RuleAmount}, {"0x", store.RuleToken}, {transfersFrom("41"), store.RuleAmountDay}, {transfersFrom("40"), ""}} {
		handsIn(t, db, c.data[:min(len(c.data), 10)]+" signed", usedMark(ids[0], "x", 0), calls(c.data), c.want, c.want == "")
	}
}

// A queued intent is held to the limits of its caller, and of its token, that are in force when it
// would get its nonce.
func TestLimitsAreReadWithTheQueue(t *testing.T) {
	t.Parallel()
	db := shared(t)
	posts(t, db, "of ann", of(ann, called("a", transfers("60"))), "")
	posts(t, db, "of ben", of(ben, paying(alice, "b", "7", 1)), "")
	limit(t, db, store.Policy{Tokens: map[string]store.TokenLimits{token: {MaxAmount: new("5")}, "0x000000000000000000000000000000000000000b": {MaxAmountPerDay: new("1")}},
		PerCaller: map[string]store.CallerLimits{ann: {MaxValuePerDay: new("3")}, store.AnyCaller: {MaxValue: new("6")}}})
	w := take(t, db, alice, "a/1")
	if got := w.Bounds.Tokens; len(got) != 2 || got[token].Int64() != 5 || got["0x000000000000000000000000000000000000000b"] != nil {
		t.Errorf("tokens: got %v, want 5 of the one, and no bound of the other", got)
	}
	for _, q := range w.Queue {
		check.Equal(t, q.RequestID, fmt.Sprint(q.MaxValueWei), map[string]string{"a": "<nil>", "b": "6"}[q.RequestID])
	}
}

// An intent that is cancelled before it has a nonce releases its use of the day: of the
// submitter's value, its caller's and the token's. Rates are not released.
func TestACancelGivesTheDayBack(t *testing.T) {
	t.Parallel()
	db := shared(t)
	limit(t, db, store.Policy{MaxValuePerDay: new("10"), MaxPerMinute: new(8), PerCaller: map[string]store.CallerLimits{ann: {MaxValuePerDay: new("8")}},
		Tokens: map[string]store.TokenLimits{token: {MaxAmountPerDay: new("100")}}})
	all := of(ann, paying(alice, "r-1", "8", 1))
	posts(t, db, "the whole share", all, "")
	posts(t, db, "a wei more", of(ann, paying(alice, "r-2", "1", 1)), store.RuleCallerDay)
	cancels(t, db, all)
	posts(t, db, "the whole share again", of(ann, paying(alice, "r-3", "8", 1)), "")
	posts(t, db, "a wei more", of(ann, paying(alice, "r-2", "1", 1)), store.RuleCallerDay)
	posts(t, db, "more than the submitter's rest", of(ben, paying(alice, "r-4", "3", 1)), store.RuleDay)
	posts(t, db, "the submitter's rest", of(ben, paying(alice, "r-4", "2", 1)), "")
	units := of(ann, called("t-1", transfers("100")))
	posts(t, db, "all units", units, "")
	posts(t, db, "a unit more", of(ben, called("t-2", transfers("1"))), store.RuleAmountDay)
	check.OK(t)(db.Store.CancelQueue(t.Context(), store.QueueCancel{Submitter: alice, Caller: ann, By: "olga", Reason: "a test", Limit: 10}))
	posts(t, db, "all units again", of(ben, called("t-3", approves("100"))), "")
	posts(t, db, "the share again", of(ann, paying(alice, "r-5", "8", 1)), "")
	posts(t, db, "and no more", of(ann, paying(alice, "r-6", "1", 1)), store.RuleDay)
	bound := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: bound.Lease, Allocations: allocations(bound, true)[:1], LeaseEnd: txmanager.ReleaseUnlessRerun})
	check.Equal(t, "bound", value[int](t, db, `select count(*)::int from managed_tx where nonce is not null`), 1)
	posts(t, db, "the seventh in the minute", of(ben, paying(alice, "r-7", "0", 1)), "")
	posts(t, db, "the eighth", of(ben, paying(alice, "r-8", "0", 1)), "")
	posts(t, db, "the ninth", of(ben, paying(alice, "r-9", "0", 1)), store.RuleRate)
}

// A released amount leaves the window with its use. A caller that posts, cancels 23 hours
// later and posts again has no more than a day's amount in any 24 hours.
func TestWhatIsGivenBackIsGivenOnce(t *testing.T) {
	t.Parallel()
	db := shared(t)
	limit(t, db, store.Policy{MaxValuePerDay: new("10"), PerCaller: map[string]store.CallerLimits{store.AnyCaller: {MaxValuePerDay: new("10")}},
		Tokens: map[string]store.TokenLimits{token: {MaxAmountPerDay: new("10")}}})
	first, units := of(ann, paying(alice, "r-1", "10", 1)), of(ann, called("t-1", transfers("10")))
	posts(t, db, "a day's wei, at hour 0", first, "")
	posts(t, db, "a day's units, at hour 0", units, "")
	later(t, db, "23 hours")
	cancels(t, db, first)
	cancels(t, db, units)
	posts(t, db, "a day's wei, at hour 23", of(ann, paying(alice, "r-2", "10", 1)), "")
	posts(t, db, "a day's units, at hour 23", of(ann, called("t-2", transfers("10"))), "")
	for _, passed := range []string{"59 minutes", "30 seconds", "30 seconds", "1 minute", "10 hours", "12 hours 58 minutes"} {
		later(t, db, passed)
		posts(t, db, "a wei more, "+passed+" on", of(ann, paying(alice, "more "+passed, "1", 1)), store.RuleDay)
		posts(t, db, "a unit more, "+passed+" on", of(ann, called("units "+passed, transfers("1"))), store.RuleAmountDay)
	}
	later(t, db, "1 minute")
	posts(t, db, "a day after hour 23", of(ann, paying(alice, "r-3", "10", 1)), "")
	posts(t, db, "a day after hour 23", of(ann, called("t-3", transfers("10"))), "")
}

// In any 24 hours no more than a day's amount is open, however intents are posted and cancelled.
func TestPropertyNoMoreThanADayIsOutstanding(t *testing.T) {
	t.Parallel()
	const most, steps = 10, 150
	db := shared(t)
	limit(t, db, store.Policy{MaxValuePerDay: new(fmt.Sprint(most)), PerCaller: map[string]store.CallerLimits{ann: {MaxValuePerDay: new(fmt.Sprint(most))}}})
	type taken struct {
		in  store.Intent
		wei int
		at  time.Duration
	}
	r := policies{newRand(18, 3)}
	var now time.Duration
	var open []taken
	accepted, cancelled := 0, 0
	for i := range steps {
		switch r.IntN(3) {
		case 0:
			step := time.Duration(r.IntN(9*60*60)) * time.Second
			now += step
			later(t, db, fmt.Sprint(int(step.Seconds()), " seconds"))
		case 1:
			wei := 1 + r.IntN(most)
			in := of(ann, paying(alice, fmt.Sprint("r-", i), fmt.Sprint(wei), 1))
			if _, err := db.Store.Create(t.Context(), in, 1000); err == nil {
				open = append(open, taken{in, wei, now})
				accepted++
			}
		case 2:
			if len(open) == 0 {
				continue
			}
			n := r.IntN(len(open))
			cancels(t, db, open[n].in)
			open = append(open[:n], open[n+1:]...)
			cancelled++
		}
		sum := 0
		for _, x := range open {
			if now-x.at < 24*time.Hour-time.Minute { // the test's own clock stands still meanwhile
				sum += x.wei
			}
		}
		if sum > most {
			t.Fatalf("step %d: %d wei of the last 24 hours are open, of %d", i, sum, most)
		}
	}
	if accepted < 20 || cancelled < 10 {
		t.Errorf("%d accepted and %d cancelled: too few to tell", accepted, cancelled)
	}
}

// Use is not released for an intent that may have been carried out. That is so in PROTECT,
// after a PROTECT incident that began while it was queued, and in a database that was accepted
// since.
func TestDoubtGivesNothingBack(t *testing.T) {
	t.Parallel()
	for name, doubt := range map[string]string{
		"PROTECT is open":              `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`,
		"PROTECT was open":             `insert into protect_incident (submitter, incident, evidence, closed_at, closed_by, mode, reason) values ($1, 1, '{}', now(), 'olga', 'resume', 'a test')`,
		"the database was accepted":    `insert into identity_change (system_identifier, timeline_id, by, reason) select 1, 1, 'olga', $1`,
		"the database is not believed": `update database_identity set timeline_id = -1 where $1 <> ''`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := shared(t)
			limit(t, db, store.Policy{MaxValuePerDay: new("10")})
			in := of(ann, paying(alice, "r-1", "10", 1))
			posts(t, db, "a day's wei", in, "")
			db.Run(t, doubt, alice)
			cancels(t, db, in)
			check.Equal(t, "given back", value[int](t, db, `select count(*)::int from policy_released_use`), 0)
		})
	}
}

// Concurrent bulk and single cancels of one submitter each release their use, and do not
// deadlock.
func TestManyCancelsAtOnceGiveBackEachOnce(t *testing.T) {
	t.Parallel()
	const n = 60
	db := shared(t)
	limit(t, db, store.Policy{MaxValuePerDay: new(fmt.Sprint(n)), PerCaller: map[string]store.CallerLimits{ann: {MaxValuePerDay: new(fmt.Sprint(n))}}})
	var all []store.Intent
	for i := range n {
		all = append(all, of(ann, paying(alice, fmt.Sprint("r-", i), "1", 1)))
	}
	check.OK(t)(db.Store.CreateAll(t.Context(), all, 1000))
	spread(t, db)
	var wg sync.WaitGroup
	for range 3 {
		s := storetest.At(t, db.URL, storetest.Rules)
		wg.Go(func() {
			for range n {
				got, err := s.CancelQueue(t.Context(), store.QueueCancel{Submitter: alice, By: "olga", Reason: "a test", Limit: 7})
				if err != nil {
					t.Error(err)
				}
				if err != nil || got.Cancelled == 0 && got.Remaining == 0 {
					return
				}
			}
		})
		for i := range n {
			wg.Go(func() {
				if _, err := s.RecordDecision(t.Context(), store.Decision{TxID: all[i].TxID, By: operator, Action: txmanager.ActionCancel, Reason: "a test"}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	check.Equal(t, "given back", value[string](t, db, `select string_agg(scope || '=' || amount, ' ' order by scope) from (select scope, sum(amount) as amount from policy_released_use group by 1) as g`), fmt.Sprintf("=%d sub:ann=%d", n, n))
	posts(t, db, "the whole day again", of(ann, paying(alice, "all", fmt.Sprint(n), 1)), "")
}

// spread puts a minute between any two uses, the last one now.
func spread(t *testing.T, db storetest.Bundle) {
	t.Helper()
	for _, table := range []string{"submitter_use", "policy_use"} {
		db.RunUnguarded(t, table, `update `+table+` u set at = at - (select max(number) - u.number from `+table+`) * interval '1 minute'`)
	}
}

// What a create costs beside a million uses of the last thirty days, by what the policy bounds.
func BenchmarkCreateUnderAPolicy(b *testing.B) {
	amount := "1000000000000"
	day := store.Policy{MaxValuePerDay: &amount, MaxPerMinute: new(1_000_000)}
	callers := day
	callers.PerCaller = map[string]store.CallerLimits{"*": {MaxValuePerDay: &amount, MaxPerMinute: new(1_000_000), MaxQueued: new(1_000_000)}}
	all := callers
	all.Tokens = map[string]store.TokenLimits{token: {MaxAmountPerDay: &amount}}
	for _, c := range []struct {
		name      string
		policy    store.Policy
		givenBack bool
	}{{"none", store.Policy{}, false}, {"day and rate", day, false}, {"with callers", callers, false}, {"with callers and a token", all, false}, {"with 1440 minutes given back", all, true}} {
		b.Run(c.name, func(b *testing.B) {
			db := storetest.New(b)
			db.Register(b, alice, 10)
			conn := db.Connect(b)
			statements := []string{`update submitter set callers = '{sub:ann}'`, aMillionUses}
			if c.givenBack {
				statements = append(statements, aDayGivenBack)
			}
			for _, statement := range append(statements, `vacuum analyze`) {
				check.OK(b)(conn.Exec(b.Context(), statement))
			}
			check.OK(b)(db.Store.PutPolicy(b.Context(), store.PolicyChange{Submitter: alice, Policy: c.policy, By: "olga", Reason: "a test"}))
			n := 0
			create := func() {
				in := of(ann, called(fmt.Sprint("r-", n), transfers("1")))
				n++
				check.OK(b)(db.Store.Create(b.Context(), in, 1_000_000))
			}
			for range 20 {
				create()
			}
			for b.Loop() {
				create()
			}
		})
	}
}

// Of the submitter, its caller and the token.
const (
	aMillionUses = `
with uses as (
  select i, clock_timestamp() - interval '30 days' + i * interval '2.592 seconds' as at, gen_random_uuid() as tx_id from generate_series(1, 1000000) as i
), whole as (
  insert into submitter_use (submitter, number, at, tx_id, added_wei, intents, value_wei)
  select 'eip155:1337:0x00000000000000000000000000000000000a11ce', i, at, tx_id, 1, i, i from uses
)
insert into policy_use (submitter, scope, number, at, tx_id, added, intents, total)
select 'eip155:1337:0x00000000000000000000000000000000000a11ce', scope, i, at, tx_id, 1, i, i from uses, unnest(array['sub:ann', '0x000000000000000000000000000000000000000a']) as scope`

	aDayGivenBack = `
insert into policy_released_use (submitter, scope, minute, amount)
select 'eip155:1337:0x00000000000000000000000000000000000a11ce', scope, date_bin('1 minute', clock_timestamp(), 'epoch') - i * interval '1 minute', 1
  from generate_series(0, 1440) as i, unnest(array['', 'sub:ann', '0x000000000000000000000000000000000000000a']) as scope`
)
