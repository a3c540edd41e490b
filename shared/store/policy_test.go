package store_test

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
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
	if _, err := db.Store.PutPolicy(t.Context(), store.PolicyChange{Submitter: alice, Policy: p, By: "olga", Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
}

// posts posts the intent, and wants it refused by the rule, or accepted where it is "".
func posts(t *testing.T, db storetest.Bundle, what string, in store.Intent, want store.PolicyRule) store.StoredIntent {
	t.Helper()
	accepted, err := db.Store.Create(t.Context(), in, 1000)
	var refused store.PolicyError
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: got %v, want it accepted", what, err)
	case want != "" && (!errors.As(err, &refused) || refused.Rule != want):
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
	run(t, db, `alter table submitter_use disable trigger user`)
	run(t, db, `update submitter_use set at = at - $1::interval`, by)
	run(t, db, `alter table submitter_use enable trigger user`)
}

// An amount passes up to its last wei, also above 64 bits. A recipient passes if it is listed,
// a deployment if the list allows it. A stored intent is returned.
func TestPolicyOfOneTransaction(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 10)
	db.Register(t, bob, 10)
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
	db := storetest.New(t)
	db.Register(t, alice, 10)
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
	run(t, db, `alter table submitter_use disable trigger user`)
	run(t, db, `update submitter_use set at = at + '1 hour'::interval where number = (select max(number) from submitter_use)`)
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
	db := storetest.New(t)
	db.Register(t, alice, 10)
	db.Register(t, bob, 10)
	post(t, db, alice, "seen without a policy")
	limit(t, db, store.Policy{MaxValuePerDay: new("10")})
	batch := []store.Intent{paying(alice, "a", "6", 1), paying(alice, "b", "5", 1), paying(bob, "c", "999", 1), paying(alice, "d", "4", 1), paying(alice, "a", "6", 1)}
	got, err := db.Store.CreateAll(t.Context(), batch, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, c := range got {
		switch refused := (store.PolicyError{}); {
		case c.Err == nil:
			said = append(said, fmt.Sprint(c.New))
		case errors.As(c.Err, &refused):
			said = append(said, string(refused.Rule)+" "+refused.Limit)
		default:
			said = append(said, c.Err.Error())
		}
	}
	if got, want := strings.Join(said, ", "), "true, DAY 10, true, true, false"; got != want {
		t.Errorf("a batch: got %s, want %s", got, want)
	}
}

// Concurrent creates in several processes take no more than the policy allows, and none is
// refused while there is room.
func TestPolicyOfManyAtOnce(t *testing.T) {
	t.Parallel()
	const processes, each, most = 4, 25, 40
	db := storetest.New(t)
	db.Register(t, alice, 10)
	limit(t, db, store.Policy{MaxValuePerDay: new(fmt.Sprint(most)), MaxPerMinute: new(1000)})
	var taken atomic.Int64
	var wg sync.WaitGroup
	for p := range processes {
		s, err := store.Open(t.Context(), storetest.Options(db.URL, storetest.Rules))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		for i := range each {
			wg.Go(func() {
				_, err := s.Create(t.Context(), paying(alice, fmt.Sprintf("r-%d-%d", p, i), "1", 1), 1000)
				var refused store.PolicyError
				switch {
				case err == nil:
					taken.Add(1)
				case !errors.As(err, &refused) || refused.Rule != store.RuleDay:
					t.Errorf("r-%d-%d: %v", p, i, err)
				}
			})
		}
	}
	wg.Wait()
	if got := taken.Load(); got != most {
		t.Errorf("taken: got %d wei of %d asked for, want %d", got, processes*each, most)
	}
	if got := value[string](t, db, `select count(*) || ' ' || max(intents) || ' ' || max(value_wei) from submitter_use`); got != fmt.Sprintf("%d %d %d", most, most, most) {
		t.Errorf("uses, their sums: got %s, want %d of each", got, most)
	}
}

// The same requests, asked for by many at once, alone and in batches, in any order,
// count once each.
func TestPolicyCountsARequestOnce(t *testing.T) {
	t.Parallel()
	const processes, requests = 4, 12
	db := storetest.New(t)
	db.Register(t, alice, 10)
	limit(t, db, store.Policy{MaxValuePerDay: new(fmt.Sprint(requests)), MaxPerMinute: new(requests)})
	var wg sync.WaitGroup
	for p := range processes {
		s, err := store.Open(t.Context(), storetest.Options(db.URL, storetest.Rules))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		var batch []store.Intent
		for i := range requests {
			in := paying(alice, fmt.Sprint("r-", (i*(2*p+1))%requests), "1", 1)
			batch = append(batch, withID(in, in.RequestID))
			wg.Go(func() {
				if _, err := s.Create(t.Context(), in, 1000); err != nil {
					t.Errorf("%s: %v", in.RequestID, err)
				}
			})
		}
		wg.Go(func() {
			results, err := s.CreateAll(t.Context(), batch, 1000)
			for _, r := range results {
				err = errors.Join(err, r.Err)
			}
			if err != nil {
				t.Errorf("a batch: %v", err)
			}
		})
	}
	wg.Wait()
	if got := value[string](t, db, `select count(*) || ' ' || max(intents) || ' ' || max(value_wei) from submitter_use`); got != fmt.Sprintf("%d %d %d", requests, requests, requests) {
		t.Errorf("uses, their sums: got %s, want %d of each", got, requests)
	}
}

// What a handler made is held to the policy under the fence, and counts once, however
// often it is asked; its intent counted as one when it was posted.
func TestPolicyOfAHandler(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 10)
	run(t, db, `update submitter set callers = callers || '{handler:wage}' where submitter = $1`, alice)
	limit(t, db, store.Policy{MaxValue: new("8"), MaxValuePerDay: new("10"), MaxPerMinute: new(2), Targets: []string{fmt.Sprintf("0x%040x", 1)}})
	wage := intent(alice, "wage")
	wage.Handler = "wage"
	posts(t, db, "a handler's", wage, "")
	posts(t, db, "another's", paying(alice, "r-2", "4", 1), "")
	posts(t, db, "a third", withID(wage, "r-3"), store.RuleRate)
	w := take(t, db, alice, "a/1")
	one := txmanager.Address{19: 1}
	for _, c := range []struct {
		what string
		call txmanager.Call
		want string
	}{
		{"too much for one", txmanager.Call{To: &one, Value: big.NewInt(9)}, "8 wei in one transaction"},
		{"to another", txmanager.Call{To: &txmanager.Address{19: 2}}, "target"},
		{"a deployment", txmanager.Call{}, "target"},
		{"too much for the day", txmanager.Call{To: &one, Value: big.NewInt(7)}, "10 wei in 24 hours"},
		{"a part", txmanager.Call{To: &one, Value: big.NewInt(5)}, ""},
		{"the same again", txmanager.Call{To: &one, Value: big.NewInt(5)}, ""},
		{"a little more", txmanager.Call{To: &one, Value: big.NewInt(6)}, ""},
		{"too much again", txmanager.Call{To: &one, Value: big.NewInt(7)}, "10 wei in 24 hours"},
		{"nothing", txmanager.Call{To: &one}, ""},
	} {
		got, err := db.Store.CheckPolicy(t.Context(), w.Lease, wage.TxID, c.call)
		if err != nil || (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, %v; want %q", c.what, got, err, c.want)
		}
	}
	if got := value[string](t, db, `select string_agg(added_wei::text, ' ' order by number) from submitter_use`); got != "0 4 5 1" {
		t.Errorf("counted: got %s wei, want 0 4 5 1", got)
	}
}

// Reservations count as intents when they are made, all or none. The owner's bytes are checked
// against the policy when they are marked, under the fence. They count once, however often
// they are marked.
func TestPolicyOfAReservation(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 10)
	limit(t, db, store.Policy{MaxValue: new("8"), MaxValuePerDay: new("10"), MaxPerMinute: new(4), Targets: []string{fmt.Sprintf("0x%040x", 1), fmt.Sprintf("0x%040x:0xa9059cbb", 3)}})
	ids := reserve(t, db, "x", 0, 1)
	posts(t, db, "an intent", paying(alice, "r-1", "4", 1), "")
	kept := append([]string{"submitter_use"}, written...)
	before := contents(t, db, kept...)
	w := take(t, db, alice, "h/1")
	_, err := db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Reservations: bookings("x", time.Hour, 2, 3)})
	if want := (store.PolicyError{Rule: store.RuleRate, Limit: "4"}); !errors.Is(err, want) {
		t.Errorf("two more: got %v, want %v", err, want)
	}
	wantSameBut(t, before, contents(t, db, kept...))
	_, err = db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Reservations: bookings("x", time.Hour, 2, 3, 4, 5, 6)})
	if want := (store.PolicyError{Rule: store.RuleCount, Limit: "4"}); !errors.Is(err, want) || !want.IsPermanent() {
		t.Errorf("five at once, where a minute allows four: got %v, want %v, for good", err, want)
	}
	wantSameBut(t, before, contents(t, db, kept...))
	write(t, db, txmanager.Commit{Lease: w.Lease, Reservations: bookings("x", time.Hour, 2), LeaseEnd: txmanager.ReleaseAnyway})
	posts(t, db, "an intent behind them", paying(alice, "r-2", "0", 1), store.RuleRate)
	before = contents(t, db, kept...)
	one, token := txmanager.Address{19: 1}, txmanager.Address{19: 3}
	for _, c := range []struct {
		what, owner string
		call        txmanager.Call
		want        store.PolicyRule
		marked      bool
	}{
		{"too much for one", "x", txmanager.Call{To: &one, Value: big.NewInt(9)}, store.RuleValue, false},
		{"to another", "x", txmanager.Call{To: &txmanager.Address{19: 2}}, store.RuleTarget, false},
		{"a deployment", "x", txmanager.Call{}, store.RuleTarget, false},
		{"another function", "x", txmanager.Call{To: &token, Data: []byte{0x09, 0x5e, 0xa7, 0xb3}}, store.RuleTarget, false},
		{"the function, another owner's", "y", txmanager.Call{To: &token, Data: []byte{0xa9, 0x05, 0x9c, 0xbb}}, "", false},
		{"too much for the day", "x", txmanager.Call{To: &one, Value: big.NewInt(7)}, store.RuleDay, false},
		{"another owner's", "y", txmanager.Call{To: &one, Value: big.NewInt(6)}, "", false},
		{"the rest of the day", "x", txmanager.Call{To: &one, Value: big.NewInt(6)}, "", true},
		{"the same again", "x", txmanager.Call{To: &one, Value: big.NewInt(6)}, "", false},
	} {
		m := usedMark(ids[1], c.owner, 1)
		m.Call = c.call
		done := write(t, db, txmanager.Commit{Lease: take(t, db, alice, "h/1").Lease, Mark: &m, LeaseEnd: txmanager.ReleaseAnyway})
		var refused store.PolicyError
		if errors.As(done.Refused, &refused); refused.Rule != c.want || done.Marked != c.marked {
			t.Errorf("%s: got %+v, want refused by %q, marked %t", c.what, done, c.want, c.marked)
		}
		if after := contents(t, db, kept...); c.marked {
			before = after
		} else {
			wantSameBut(t, before, after)
		}
	}
	if got := value[string](t, db, `select string_agg(added_wei || ' ' || intents, ', ' order by number) from submitter_use`); got != "0 2, 4 3, 0 4, 6 4" {
		t.Errorf("counted: got %s, want two reservations, an intent of 4 wei, a reservation, and the 6 wei that were signed", got)
	}
}

// A handler that the submitter does not name is refused for every caller. A stored intent is
// returned.
func TestAHandlerIsNamedByTheSubmitter(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 10)
	run(t, db, `update submitter set callers = '{shop,handler:refund}' where submitter = $1`, alice)
	in := intent(alice, "r")
	in.Caller, in.Handler = "shop", "wage"
	if _, err := db.Store.Create(t.Context(), in, 10); !errors.Is(err, store.ErrHandlerBarred) || stored(t, db, in) != 0 {
		t.Errorf("a handler that alice does not name: got %v, want ErrHandlerBarred and nothing stored", err)
	}
	in.Handler = "refund"
	accepted, err := db.Store.Create(t.Context(), in, 10)
	if err != nil || !accepted.New {
		t.Errorf("one that she names: got %+v, %v; want it accepted", accepted, err)
	}
	run(t, db, `update submitter set callers = '{shop}' where submitter = $1`, alice)
	if again, err := db.Store.Create(t.Context(), in, 10); err != nil || again.TxID != accepted.TxID {
		t.Errorf("the same again, once she does not: got %+v, %v; want %s", again, err, accepted.TxID)
	}
}

// A suspended submitter accepts no intent and allocates no nonce until it is resumed. Each
// change is recorded, and a repetition is reported.
func TestSuspendAndResume(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 10)
	set := func(suspend bool, want error) {
		t.Helper()
		if _, err := db.Store.SetStatus(t.Context(), store.Suspension{Submitter: alice, Suspend: suspend, By: "olga", Reason: "a test"}); !errors.Is(err, want) {
			t.Errorf("suspend %v: got %v, want %v", suspend, err, want)
		}
	}
	set(false, store.ErrStatusUnchanged)
	set(true, nil)
	set(true, store.ErrStatusUnchanged)
	if _, err := db.Store.Create(t.Context(), intent(alice, "r"), 10); !errors.Is(err, store.ErrSuspended) {
		t.Errorf("create while suspended: got %v, want ErrSuspended", err)
	}
	if w := take(t, db, alice, "a/1"); !w.Suspended {
		t.Error("work while suspended: got it open, want it suspended")
	}
	set(false, nil)
	post(t, db, alice, "r")
	if got := value[string](t, db, `select string_agg(action || ' by ' || by, ', ' order by id) from submitter_change`); got != "SUSPEND by olga, RESUME by olga" {
		t.Errorf("on record: got %s, want both", got)
	}
	if _, err := db.Store.SetStatus(t.Context(), store.Suspension{Submitter: bob, Suspend: true, By: "olga", Reason: "a test"}); !errors.Is(err, store.ErrUnknownSubmitter) {
		t.Errorf("nobody's: got %v, want ErrUnknownSubmitter", err)
	}
	if _, err := db.Store.PutPolicy(t.Context(), store.PolicyChange{Submitter: bob, By: "olga", Reason: "a test"}); !errors.Is(err, store.ErrUnknownSubmitter) {
		t.Errorf("nobody's policy: got %v, want ErrUnknownSubmitter", err)
	}
}
