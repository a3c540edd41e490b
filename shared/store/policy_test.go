package store_test

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// paying is an intent that sends wei to the account of that number.
func paying(sub txmanager.Submitter, request, wei string, to int) store.Intent {
	in := intent(sub, request)
	in.Payload = fmt.Appendf(nil, `{"to":"0x%040x","value":"%s"}`, to, wei)
	return in
}

// limit sets alice's policy.
func limit(t *testing.T, db storetest.Bundle, p store.Policy) {
	t.Helper()
	check.OK(t)(db.Store.PutPolicy(t.Context(), store.PolicyChange{Submitter: alice, Policy: p, By: "olga", Reason: "a test"}))
}

// posts posts the intent, and wants it refused by the rule, or accepted where it is "".
func posts(t *testing.T, db storetest.Bundle, what string, in store.Intent, want store.PolicyRule) store.StoredIntent {
	t.Helper()
	accepted, err := db.Store.Create(t.Context(), in, 1000)
	refused, _ := errors.AsType[store.PolicyError](err)
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: got %v, want it accepted", what, err)
	case want != "" && refused.Rule != want:
		t.Errorf("%s: got %+v, %v; want it refused by %s", what, accepted, err, want)
	case want != "" && stored(t, db, in) != 0:
		t.Errorf("%s: refused, and stored", what)
	}
	return accepted
}

func stored(t *testing.T, db storetest.Bundle, in store.Intent) int {
	t.Helper()
	return value[int](t, db, `select count(*)::int from managed_tx where submitter = $1 and request_id = $2`, in.Submitter, in.RequestID)
}

// shift moves all that counts against alice's policy back in time.
func shift(t *testing.T, db storetest.Bundle, by string) {
	t.Helper()
	db.RunUnguarded(t, "submitter_use", `update submitter_use set at = at - $1::interval`, by)
}

// An amount passes up to its last wei, also above 64 bits. A recipient passes if it is listed,
// a deployment if the list allows it. A stored intent is returned.
func TestPolicyOfOneTransaction(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice, bob)
	posts(t, db, "before there is a policy", paying(alice, "before", "999", 9), "")
	most := "115792089237316195423570985008687907853269984665640564039457584007913129639934"
	limit(t, db, store.Policy{MaxValue: &most, Targets: []string{fmt.Sprintf("0x%040x", 1), store.TargetDeploy}})
	at := posts(t, db, "to the last wei", paying(alice, "r-1", most, 1), "")
	posts(t, db, "one wei more", paying(alice, "r-2", most[:len(most)-1]+"5", 1), store.RuleValue)
	posts(t, db, "to another", paying(alice, "r-3", "0", 2), store.RuleTarget)
	deploying := intent(alice, "r-4")
	deploying.Payload = []byte(`{"data":"0x60006000fd"}`)
	posts(t, db, "a deployment", deploying, "")
	posts(t, db, "another submitter", paying(bob, "r-3", "0", 2), "")
	limit(t, db, store.Policy{MaxValue: new("0")})
	posts(t, db, "a deployment without value", withID(deploying, "r-5"), "")
	posts(t, db, "to another, without a list", paying(alice, "r-6", "0", 2), "")
	if again := posts(t, db, "known, and too much now", paying(alice, "r-1", most, 1), ""); again.TxID != at.TxID || again.New {
		t.Errorf("a known request: got %+v, want %s as it is stored", again, at.TxID)
	}
	limit(t, db, store.Policy{MaxValuePerDay: new("10")})
	posts(t, db, "in the day", paying(alice, "r-8", "9", 1), "")
	limit(t, db, store.Policy{MaxValuePerDay: new("5")})
	posts(t, db, "nothing, above a limit that was lowered", paying(alice, "r-9", "0", 1), "")
	posts(t, db, "a wei above it", paying(alice, "r-10", "1", 1), store.RuleDay)
	limit(t, db, store.Policy{})
	posts(t, db, "without limits", paying(alice, "r-7", most, 2), "")
}

func withID(in store.Intent, request string) store.Intent {
	in.TxID, in.RequestID = uuid.NewString(), request
	return in
}

// The policy limits the wei of any 24 hours and the intents of any minute, by the database's
// clock. Refused and repeated intents do not count.
func TestPolicyOverTime(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	limit(t, db, store.Policy{MaxValuePerDay: new("10"), MaxPerMinute: new(4)})
	posts(t, db, "the most of a day", paying(alice, "r-1", "7", 1), "")
	posts(t, db, "too much", paying(alice, "r-2", "4", 1), store.RuleDay)
	posts(t, db, "the same again", paying(alice, "r-1", "7", 1), "")
	posts(t, db, "the rest", paying(alice, "r-3", "3", 1), "")
	posts(t, db, "nothing", paying(alice, "r-4", "0", 1), "")
	posts(t, db, "a wei", paying(alice, "r-5", "1", 1), store.RuleDay)
	posts(t, db, "the fourth", paying(alice, "r-6", "0", 1), "")
	posts(t, db, "the fifth", paying(alice, "r-7", "0", 1), store.RuleRate)
	posts(t, db, "a known one", paying(alice, "r-6", "0", 1), "")
	shift(t, db, "59 seconds")
	posts(t, db, "within the minute", paying(alice, "r-7", "0", 1), store.RuleRate)
	shift(t, db, "1 second")
	posts(t, db, "a minute later", paying(alice, "r-7", "0", 1), "")
	posts(t, db, "the same day", paying(alice, "r-5", "1", 1), store.RuleDay)
	shift(t, db, "24 hours")
	posts(t, db, "a day later", paying(alice, "r-5", "10", 1), "")
	posts(t, db, "and no more", paying(alice, "r-8", "1", 1), store.RuleDay)
	db.Run(t, `alter table submitter_use disable trigger user`)
	db.Run(t, `update submitter_use set at = at + '1 hour'::interval where number = (select max(number) from submitter_use)`)
	posts(t, db, "after the clock was set back", paying(alice, "r-8", "1", 1), store.RuleDay)
	posts(t, db, "nothing, meanwhile", paying(alice, "r-9", "0", 1), "")
	shift(t, db, "24 hours")
	posts(t, db, "a day later by the clock that was set back", paying(alice, "r-8", "1", 1), store.RuleDay)
	shift(t, db, "1 hour")
	posts(t, db, "a day later by both", paying(alice, "r-8", "1", 1), "")
}

// Each intent of a batch is checked after those before it. A refused one uses nothing. Other
// submitters' intents are stored beside them.
func TestPolicyOfABatch(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice, bob)
	post(t, db, alice, "seen without a policy")
	limit(t, db, store.Policy{MaxValuePerDay: new("10")})
	batch := []store.Intent{paying(alice, "a", "6", 1), paying(alice, "b", "5", 1), paying(bob, "c", "999", 1), paying(alice, "d", "4", 1), paying(alice, "a", "6", 1)}
	got := check.Value(db.Store.CreateAll(t.Context(), batch, 1000))(t)
	var said []string
	for _, c := range got {
		if refused, ok := errors.AsType[store.PolicyError](c.Err); ok {
			said = append(said, string(refused.Rule)+" "+refused.Limit)
		} else {
			said = append(said, fmt.Sprint(c.New, " ", c.Err))
		}
	}
	check.Equal(t, "a batch", strings.Join(said, ", "), "true <nil>, DAY 10, true <nil>, true <nil>, false <nil>")
}

// Concurrent creates in several processes take no more than the policy allows, and none is
// refused while there is room.
func TestPolicyOfManyAtOnce(t *testing.T) {
	t.Parallel()
	const processes, each, most = 4, 25, 40
	db := registered(t, 10, alice)
	limit(t, db, store.Policy{MaxValuePerDay: new(fmt.Sprint(most)), MaxPerMinute: new(1000)})
	var taken atomic.Int64
	var wg sync.WaitGroup
	for p := range processes {
		s := storetest.Open(t, storetest.Options(db.URL, storetest.Rules))
		for i := range each {
			wg.Go(func() {
				_, err := s.Create(t.Context(), paying(alice, fmt.Sprintf("r-%d-%d", p, i), "1", 1), 1000)
				if refused, _ := errors.AsType[store.PolicyError](err); err == nil {
					taken.Add(1)
				} else if refused.Rule != store.RuleDay {
					t.Errorf("r-%d-%d: %v", p, i, err)
				}
			})
		}
	}
	wg.Wait()
	check.Equal(t, "taken", taken.Load(), most)
	check.Equal(t, "uses, their sums", value[string](t, db, `select count(*) || ' ' || max(intents) || ' ' || max(value_wei) from submitter_use`), fmt.Sprintf("%d %d %d", most, most, most))
}

// The same requests, asked for by many at once, alone and in batches, in any order,
// count once each.
func TestPolicyCountsARequestOnce(t *testing.T) {
	t.Parallel()
	const processes, requests = 4, 12
	db := registered(t, 10, alice)
	limit(t, db, store.Policy{MaxValuePerDay: new(fmt.Sprint(requests)), MaxPerMinute: new(requests)})
	var wg sync.WaitGroup
	for p := range processes {
		s := storetest.Open(t, storetest.Options(db.URL, storetest.Rules))
		var batch []store.Intent
		for i := range requests {
			in := paying(alice, fmt.Sprint("r-", (i*(2*p+1))%requests), "1", 1)
			batch = append(batch, withID(in, in.RequestID))
			wg.Go(func() {
				check.Err(t, in.RequestID, nil)(s.Create(t.Context(), in, 1000))
			})
		}
		wg.Go(func() {
			results, err := s.CreateAll(t.Context(), batch, 1000)
			for _, r := range results {
				err = errors.Join(err, r.Err)
			}
			check.Err(t, "a batch", nil)(err)
		})
	}
	wg.Wait()
	check.Equal(t, "uses, their sums", value[string](t, db, `select count(*) || ' ' || max(intents) || ' ' || max(value_wei) from submitter_use`), fmt.Sprintf("%d %d %d", requests, requests, requests))
}

// What a handler made is held to the policy under the fence, and counts once, however
// often it is asked; its intent counted as one when it was posted.
func TestPolicyOfAHandler(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	db.Run(t, `update submitter set callers = callers || '{handler:wage}' where submitter = $1`, alice)
	limit(t, db, store.Policy{MaxValue: new("8"), MaxValuePerDay: new("10"), MaxPerMinute: new(2), Targets: []string{fmt.Sprintf("0x%040x", 1)}})
	wage := intent(alice, "wage")
	wage.Handler = "wage"
	posts(t, db, "a handler's", wage, "")
	posts(t, db, "another's", paying(alice, "r-2", "4", 1), "")
	posts(t, db, "a third", withID(wage, "r-3"), store.RuleRate)
	w := take(t, db, alice, "a/1")
	one := eip155.Address([20]byte{19: 1})
	for _, c := range []struct {
		what string
		call txmanager.Call
		want string
	}{
		{"too much for one", txmanager.Call{To: &one, Value: big.NewInt(9)}, "8 wei in one transaction"},
		{"to another", txmanager.Call{To: new(eip155.Address([20]byte{19: 2}))}, "target"},
		{"a deployment", txmanager.Call{}, "target"},
		{"too much for the day", txmanager.Call{To: &one, Value: big.NewInt(7)}, "10 wei in 24 hours"},
		{"a part", txmanager.Call{To: &one, Value: big.NewInt(5)}, ""},
		{"the same again", txmanager.Call{To: &one, Value: big.NewInt(5)}, ""},
		{"a little more", txmanager.Call{To: &one, Value: big.NewInt(6)}, ""},
		{"too much again", txmanager.Call{To: &one, Value: big.NewInt(7)}, "10 wei in 24 hours"},
		{"nothing", txmanager.Call{To: &one}, ""},
	} {
		makes(t, db, w, wage.TxID, c.what, c.call, c.want)
	}
	check.Equal(t, "counted", value[string](t, db, `select string_agg(added_wei::text, ' ' order by number) from submitter_use`), "0 4 5 1")
}

// Reservations count as intents when they are made, all or none. The owner's bytes are checked
// against the policy when they are marked, under the fence. They count once, however often
// they are marked.
func TestPolicyOfAReservation(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	limit(t, db, store.Policy{MaxValue: new("8"), MaxValuePerDay: new("10"), MaxPerMinute: new(4), Targets: []string{fmt.Sprintf("0x%040x", 1), fmt.Sprintf("0x%040x:0xa9059cbb", 3)}})
	ids := reserve(t, db, "x", 0, 1)
	posts(t, db, "an intent", paying(alice, "r-1", "4", 1), "")
	kept := append([]string{"submitter_use"}, written...)
	before := contents(t, db, kept...)
	w := take(t, db, alice, "h/1")
	check.Err(t, "two more", store.PolicyError{Rule: store.RuleRate, Limit: "4"})(db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Reservations: bookings("x", time.Hour, 2, 3)}))
	wantSameBut(t, before, contents(t, db, kept...))
	forGood := store.PolicyError{Rule: store.RuleCount, Limit: "4"}
	check.Err(t, "five at once, where a minute allows four", forGood)(db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Reservations: bookings("x", time.Hour, 2, 3, 4, 5, 6)}))
	check.Equal(t, "for good", forGood.IsPermanent(), true)
	wantSameBut(t, before, contents(t, db, kept...))
	write(t, db, txmanager.Commit{Lease: w.Lease, Reservations: bookings("x", time.Hour, 2), LeaseEnd: txmanager.ReleaseAnyway})
	posts(t, db, "an intent behind them", paying(alice, "r-2", "0", 1), store.RuleRate)
	before = contents(t, db, kept...)
	one, token := eip155.Address([20]byte{19: 1}), eip155.Address([20]byte{19: 3})
	for _, c := range []struct {
		what, owner string
		call        txmanager.Call
		want        store.PolicyRule
		marked      bool
	}{
		{"too much for one", "x", txmanager.Call{To: &one, Value: big.NewInt(9)}, store.RuleValue, false},
		{"to another", "x", txmanager.Call{To: new(eip155.Address([20]byte{19: 2}))}, store.RuleTarget, false},
		{"a deployment", "x", txmanager.Call{}, store.RuleTarget, false},
		{"another function", "x", txmanager.Call{To: &token, Data: []byte{0x09, 0x5e, 0xa7, 0xb3}}, store.RuleTarget, false},
		{"the function, another owner's", "y", txmanager.Call{To: &token, Data: []byte{0xa9, 0x05, 0x9c, 0xbb}}, "", false},
		{"too much for the day", "x", txmanager.Call{To: &one, Value: big.NewInt(7)}, store.RuleDay, false},
		{"another owner's", "y", txmanager.Call{To: &one, Value: big.NewInt(6)}, "", false},
		{"the rest of the day", "x", txmanager.Call{To: &one, Value: big.NewInt(6)}, "", true},
		{"the same again", "x", txmanager.Call{To: &one, Value: big.NewInt(6)}, "", false},
	} {
		handsIn(t, db, c.what, usedMark(ids[1], c.owner, 1), c.call, c.want, c.marked)
		if after := contents(t, db, kept...); c.marked {
			before = after
		} else {
			wantSameBut(t, before, after)
		}
	}
	check.Equal(t, "counted", value[string](t, db, `select string_agg(added_wei || ' ' || intents, ', ' order by number) from submitter_use`), "0 2, 4 3, 0 4, 6 4")
}

// makes checks the call that a handler made for the intent against alice's policy. want is part of the refusal; "": it is allowed.
func makes(t *testing.T, db storetest.Bundle, w txmanager.SubmitterState, txID, what string, call txmanager.Call, want string) {
	t.Helper()
	got := check.Value(db.Store.CheckPolicy(t.Context(), w.Lease, txID, call))(t)
	if (got == "") != (want == "") || !strings.Contains(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// handsIn hands in the bytes of a call for a reservation, and checks which rule refuses them, if any, and
// whether they are marked.
func handsIn(t *testing.T, db storetest.Bundle, what string, m txmanager.ReservationMark, call txmanager.Call, rule store.PolicyRule, marked bool) {
	t.Helper()
	m.Call = call
	done := write(t, db, txmanager.Commit{Lease: take(t, db, alice, "h/1").Lease, Mark: &m, LeaseEnd: txmanager.ReleaseAnyway})
	if refused, _ := errors.AsType[store.PolicyError](done.Refused); refused.Rule != rule || done.Marked != marked {
		t.Errorf("%s: got %+v, want refused by %q, marked %t", what, done, rule, marked)
	}
}

// A handler that the submitter does not name is refused for every caller. A stored intent is
// returned.
func TestAHandlerIsNamedByTheSubmitter(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	db.Run(t, `update submitter set callers = '{shop,handler:refund}' where submitter = $1`, alice)
	in := intent(alice, "r")
	in.Caller, in.Handler = "shop", "wage"
	check.Err(t, "a handler that alice does not name", store.ErrHandlerBarred)(db.Store.Create(t.Context(), in, 10))
	check.Equal(t, "rows of it", stored(t, db, in), 0)
	in.Handler = "refund"
	accepted := check.Value(db.Store.Create(t.Context(), in, 10))(t)
	check.Equal(t, "one that she names is new", accepted.New, true)
	db.Run(t, `update submitter set callers = '{shop}' where submitter = $1`, alice)
	check.Equal(t, "the same again, once she does not", check.Value(db.Store.Create(t.Context(), in, 10))(t).TxID, accepted.TxID)
}

// A suspended submitter accepts no intent and allocates no nonce until it is resumed. Each
// change is recorded, and a repetition is reported.
func TestSuspendAndResume(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	set := func(suspend bool, want error) {
		t.Helper()
		check.Err(t, fmt.Sprintf("suspend %v", suspend), want)(db.Store.SetStatus(t.Context(), store.Suspension{Submitter: alice, Suspend: suspend, By: "olga", Reason: "a test"}))
	}
	set(false, store.ErrStatusUnchanged)
	set(true, nil)
	set(true, store.ErrStatusUnchanged)
	check.Err(t, "create while suspended", store.ErrSuspended)(db.Store.Create(t.Context(), intent(alice, "r"), 10))
	check.Equal(t, "suspended, as the holder loads it", take(t, db, alice, "a/1").Suspended, true)
	set(false, nil)
	post(t, db, alice, "r")
	check.Equal(t, "on record", value[string](t, db, `select string_agg(action || ' by ' || by, ', ' order by id) from submitter_change`), "SUSPEND by olga, RESUME by olga")
	check.Err(t, "nobody's", store.ErrUnknownSubmitter)(db.Store.SetStatus(t.Context(), store.Suspension{Submitter: bob, Suspend: true, By: "olga", Reason: "a test"}))
	check.Err(t, "nobody's policy", store.ErrUnknownSubmitter)(db.Store.PutPolicy(t.Context(), store.PolicyChange{Submitter: bob, By: "olga", Reason: "a test"}))
}

// Where a policy names functions of a contract, a create, and what a handler makes, may call
// these and no others.
func TestFunctionsOfAPolicy(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
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
		makes(t, db, w, "00000000-0000-4000-8000-000000000001", c.what+", of a handler", made, map[store.PolicyRule]string{store.RuleTarget: "target"}[c.want])
	}
}

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
	db := registered(t, 10, alice)
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
		check.Err(t, "refused by the deployment", refused.Refused)(db.Store.Create(t.Context(), refused, 1000))
		check.Equal(t, "rows of it", stored(t, db, refused), 0)
	}
	known := asking("r-1", "30000", "10", "5")
	known.Refused = refused.Refused
	check.Equal(t, "new, although known, and refused by now", check.Value(db.Store.Create(t.Context(), known, 1000))(t).New, false)
}

// The fees of a day are the highest costs of all versions bound and stored under the lease.
// They are read with the state, counted once in the commit that binds, and expire after 24
// hours.
func TestFeesOfAPolicy(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
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
		again := check.Value(db.BeginIteration(t.Context(), w.Lease, true))(t)
		w.Lease = again.Lease
		if got := again.Bounds.FeesUsedWei; got == nil || got.Int64() != want {
			t.Errorf("%s: got %s used, want %d", what, got, want)
		}
	}
	used("two bound", 42_000)
	posts(t, db, "more than is left", asking("r-4", "29001", "2", ""), store.RuleFees)
	posts(t, db, "all that is left", asking("r-5", "29000", "2", ""), "")
	db.Run(t, `alter table submitter_fee disable trigger user`)
	db.Run(t, `update submitter_fee set at = at - interval '24 hours' where number = 1`)
	used("a day after the first", 21_000)
	db.Run(t, `update submitter_fee set at = at - interval '24 hours' where number = 2`)
	used("a day after both", 0)
	limit(t, db, store.Policy{})
	if after := take(t, db, alice, "b/1"); after.Bounds.FeesPerDayWei != nil || after.Bounds.Gas != 0 {
		t.Errorf("without limits: got %+v", after.Bounds)
	}
}

// The database and the rules reach the same verdict on a caller's values.
func TestPropertyTheCreateEvaluatesAsTheBinding(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	rnd := rand.New(rand.NewPCG(18, 1))
	some := func(least, most int64) (*string, *big.Int) {
		if rnd.IntN(3) == 0 {
			return nil, nil
		}
		n := big.NewInt(least + rnd.Int64N(most))
		return new(n.String()), n
	}
	chain := check.Value(evm.New(evm.Options{ChainID: 1337, URL: "http://127.0.0.1:9"}))(t)
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
		call := check.Value(chain.ParsePayload(in.Payload))(t)
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
		check.Equal(t, c.what, (store.Policy{Targets: c.now}).TighterThan(store.Policy{Targets: c.then}), c.want)
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
		check.Equal(t, c.what, c.now.TighterThan(c.old), c.want)
	}
}

// policies makes policies and intents at random that often meet at their limits.
type policies struct{ *rand.Rand }

func newRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

func (r policies) amount() *string { return maybe(r, 2, fmt.Sprint(r.IntN(4))) }
func (r policies) number() *int    { return maybe(r, 2, 1+r.IntN(3)) }

// maybe is the value in one of so many cases.
func maybe[T any](r policies, cases int, value T) *T {
	if r.IntN(cases) > 0 {
		return nil
	}
	return &value
}

// some is n different ones of all, at least one, or none at all.
func (r policies) some(all []string) (some []string) {
	if r.IntN(2) == 0 {
		return nil
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+r.IntN(len(all))]
}

func (r policies) one() (p store.Policy) {
	p.MaxValue, p.MaxValuePerDay, p.Targets = r.amount(), r.amount(), r.some(targetsAtRandom())
	p.MaxPerMinute, p.MaxPriorityFeePerGas, p.MaxGas = maybe(r, 3, 1+r.IntN(3)), maybe(r, 3, fmt.Sprint(1+r.IntN(3))), maybe(r, 3, int64(21_000+r.IntN(3)))
	p.MaxFeePerTx, p.MaxFeesPerDay = maybe(r, 3, fmt.Sprint(r.IntN(4)*21_000)), maybe(r, 3, fmt.Sprint(r.IntN(4)*21_000))
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
	fields, others := reflect.ValueOf(&p).Elem(), reflect.ValueOf(other)
	for i := range fields.NumField() {
		if r.IntN(4) == 0 {
			fields.Field(i).Set(others.Field(i))
		}
	}
	for _, change := range []func(){
		func() { p.Targets = []string{tokenOne + ":0x39509351", tokenTwo} },
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
			check.OK(t)(err)
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
			check.OK(t)(db.Store.CancelQueue(t.Context(), store.QueueCancel{Submitter: alice, By: "olga", Reason: "a test", Limit: 1000}))
		}
	}
	for _, rule := range []store.PolicyRule{store.RuleValue, store.RuleTarget, store.RuleGas, store.RuleTip, store.RuleFee, store.RuleRate, store.RuleDay,
		store.RuleCallerValue, store.RuleCallerRate, store.RuleCallerQueue, store.RuleCallerDay, store.RuleToken, store.RuleAmount, store.RuleAmountDay} {
		if said[rule] < 2 {
			t.Errorf("%s refused %d: too few to tell", rule, said[rule])
		}
	}
}
