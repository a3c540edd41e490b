package store_test

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// barredOf is why each of alice's queued intents may not get a nonce, by request.
func barredOf(t *testing.T, s *store.Store) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, q := range queueOf(t, s) {
		all[q.RequestID] = q.BarredReason
	}
	return all
}

// Callers and handlers of queued intents are checked again, by the caller's present name.
func TestCallersOfTheQueueAreReadWithIt(t *testing.T) {
	t.Parallel()
	db := at(t, "sub:1", "sub:2", "handler:wage", "handler:rent")
	for _, in := range []store.Intent{by("one", "sub:1"), by("two", "sub:2"), by("wage", "handler:wage"), by("rent", "sub:2")} {
		if in.RequestID == "wage" || in.RequestID == "rent" {
			in.Handler = in.RequestID
		}
		check.OK(t)(db.Store.Create(t.Context(), in, 10))
	}
	want := func(what string, s *store.Store, barred ...string) {
		t.Helper()
		for request, reason := range barredOf(t, s) {
			if (reason != "") != slices.Contains(barred, request) {
				t.Errorf("%s, %s: got %q, want barred: %v", what, request, reason, barred)
			}
		}
	}
	want("all are listed", db.Store)
	put(t, db, []string{"sub:2", "sub:3", "handler:wage"}, "sub:3", "sub:1")
	want("one is succeeded, a handler is gone", db.Store, "rent")
	put(t, db, []string{"sub:3"})
	want("a caller is gone, and its handlers", db.Store, "two", "wage", "rent")
	if got := barredOf(t, db.Store)["two"]; !strings.Contains(got, "do not name sub:2 any more") {
		t.Errorf("the reason: got %q, want it to name the caller", got)
	}
	db.Run(t, `update submitter set callers = '{*}' where submitter = $1`, alice)
	want("everybody, of an open issuer", db.Store, "one", "two", "wage", "rent")
	closed := reopened(t, db, func(o *store.Options) { o.AnyCaller = true })
	want("everybody, of a closed one", closed.Store, "wage", "rent")
}

// Changes of the policy and the callers, and suspensions, end the earlier lease session: its holder writes no more. So
// they do if the submitter had no lease row when the change began.
func TestChangesEndTheLeaseSession(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*store.Store) (token int64, err error)
		changed func(after txmanager.SubmitterState) bool
	}{
		"policy": {func(s *store.Store) (int64, error) {
			return s.PutPolicy(t.Context(), store.PolicyChange{Submitter: alice, Policy: store.Policy{MaxValue: new("0")}, By: "olga", Reason: "a test"})
		}, func(after txmanager.SubmitterState) bool { return after.Bounds.ValueWei != nil }},
		"suspension": {func(s *store.Store) (int64, error) {
			return s.SetStatus(t.Context(), store.Suspension{Submitter: alice, Suspend: true, By: "olga", Reason: "a test"})
		}, func(after txmanager.SubmitterState) bool { return after.Suspended }},
		"callers": {func(s *store.Store) (int64, error) {
			token, _, err := s.PutCallers(t.Context(), change([]string{"sub:2"}, "sub:2", "sub:1"))
			return token, err
		}, func(after txmanager.SubmitterState) bool { return after.Queue[0].PresentCaller == "sub:2" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := at(t, "sub:1")
			create(t, db, by("r", "sub:1"))
			before := take(t, db, alice, "a/1")
			check.Equal(t, "token", check.Value(c.change(db.Store))(t), before.Lease.Token+1)
			done, err := db.Store.Commit(t.Context(), txmanager.Commit{Lease: before.Lease, Allocations: allocations(before, true)})
			if err == nil || done.Allocated != 0 {
				t.Errorf("the holder binds what it loaded before: got %d bound, %v; want it fenced", done.Allocated, err)
			}
			after := take(t, db, alice, "b/1")
			if after.Lease.Token != before.Lease.Token+2 || !c.changed(after) {
				t.Errorf("the next: got %+v; want what was changed", after)
			}
		})
	}
}

// Changes of policy and callers race advances and creates in several sessions. After a change
// was answered no forbidden intent gets a nonce, and no intent is lost.
func TestChangesRaceAdvances(t *testing.T) {
	t.Parallel()
	const rounds, sessions = 25, 3
	for round := range rounds {
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) { // its database is used again
			callers := round%2 == 0
			db := at(t, "sub:1", "sub:2")
			db.Run(t, `update submitter set max_in_flight = 100`)
			var work, poster sync.WaitGroup
			stop := make(chan struct{})
			for i := range sessions {
				other := storetest.At(t, db.URL, storetest.Rules)
				work.Go(func() { advances(t, other, fmt.Sprintf("%d/1", i), stop) })
			}
			posted := make(chan int, 1)
			poster.Go(func() {
				n := 0
				for ; n < 12; n++ {
					in := of("sub:1", paying(alice, fmt.Sprint("r-", n), "5", 1))
					if _, err := db.Store.Create(t.Context(), in, 100); err != nil {
						break // it is forbidden by now
					}
				}
				posted <- n
			})
			if callers {
				put(t, db, []string{"sub:2"})
			} else {
				limit(t, db, store.Policy{MaxValue: new("4")})
			}
			bound := value[int](t, db, `select count(*)::int from managed_tx where nonce is not null`)
			poster.Wait()
			create(t, db, of("sub:2", paying(alice, "good", "4", 1)))
			storetest.Await(t, "nothing is queued", func() bool { return value[bool](t, db, `select not exists (select from managed_tx where queued)`) })
			close(stop)
			work.Wait()
			n := <-posted // were answered; one more may be stored whose answer is that it is forbidden by now
			after := value[int](t, db, `select count(*)::int from managed_tx where nonce is not null`)
			refused := value[int](t, db, `select count(*)::int from managed_tx where state = 'FAILED' and sub_state = 'REJECTED' and nonce is null`)
			stored := value[int](t, db, `select count(*)::int from managed_tx where request_id <> 'good'`)
			if after != bound+1 || bound+refused != stored || stored < n || stored > n+1 {
				t.Fatalf("%d posted, %d stored, %d bound at the change's answer: got %d bound, with the good one, and %d refused", n, stored, bound, after, refused)
			}
		})
	}
}

// advances binds allowed queued intents and refuses the others, until it is stopped.
func advances(t *testing.T, db storetest.Bundle, owner string, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		taken, err := db.Store.Acquire(t.Context(), alice, owner, true)
		if err != nil {
			t.Errorf("take: %v", err)
			return
		}
		if !taken.Held {
			continue
		}
		wr := txmanager.Commit{Lease: taken.State.Lease, LeaseEnd: txmanager.ReleaseAnyway}
		w := taken.State
		w.Queue = nil
		for _, q := range taken.State.Queue {
			if reason := forbidden(taken.State, q); reason != "" {
				q.State, q.Sub, q.LastError = txmanager.Failed, txmanager.Rejected, reason
				wr.Transitions = append(wr.Transitions, txmanager.Transition{From: txmanager.Queued, To: q})
				continue
			}
			w.Queue = append(w.Queue, q)
		}
		if len(w.Queue) > 0 {
			wr.Allocations = allocations(w, true)
		}
		_, _ = db.Store.Commit(t.Context(), wr) // fenced, perhaps
	}
}

// forbidden is the finding of [rules.Rules] for a value, a recipient and a caller.
func forbidden(w txmanager.SubmitterState, q txmanager.Tx) string {
	if q.BarredReason != "" {
		return q.BarredReason
	}
	value := int64(5)
	if q.RequestID == "good" {
		value = 4
	}
	return w.Bounds.RefusalReason(txmanager.BoundedTerms{ValueWei: big.NewInt(value)})
}

// A queue is cancelled page by page and by caller, each with the decision recorded.
// Transactions with a nonce, and payouts, are counted and kept.
func TestQueueIsCancelledByPages(t *testing.T) {
	t.Parallel()
	db := at(t, "sub:1", "sub:2")
	db.Register(t, bob, 1, store.PayoutCaller)
	create(t, db, payoutIntent(bob, "payout"))
	for n, caller := range []string{"sub:1", "sub:1", "sub:2", "sub:1", "sub:1"} {
		check.OK(t)(db.Store.Create(t.Context(), by(fmt.Sprint("r-", n), caller), 10))
	}
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)[:1], LeaseEnd: txmanager.ReleaseAnyway})
	check.OK(t)(db.Store.SetStatus(t.Context(), store.Suspension{Submitter: alice, Suspend: true, By: "ann", Reason: "a test"}))
	for what, c := range []struct {
		caller string
		want   store.QueueCancelResult
	}{
		{"sub:1", store.QueueCancelResult{Cancelled: 2, Remaining: 1, Bound: 1}},
		{"sub:1", store.QueueCancelResult{Cancelled: 1, Bound: 1}},
		{"sub:1", store.QueueCancelResult{Bound: 1}},
		{"", store.QueueCancelResult{Cancelled: 1, Bound: 1}},
	} {
		got, err := db.Store.CancelQueue(t.Context(), store.QueueCancel{Submitter: alice, Caller: c.caller, By: "ann", Reason: "a theft", Limit: 2})
		if got.Token = 0; err != nil || got != c.want {
			t.Errorf("call %d, of %q: got %+v, %v; want %+v", what, c.caller, got, err, c.want)
		}
	}
	check.Equal(t, "on record", value[int](t, db, `select count(*)::int from managed_tx m join tx_decision d using (tx_id)
		where m.state = 'FAILED' and m.sub_state = 'CANCELLED' and m.nonce is null and d.action = 'CANCEL' and d.by = 'ann' and d.reason = 'a theft'`), 4)
	got, err := db.Store.CancelQueue(t.Context(), store.QueueCancel{Submitter: bob, By: "ann", Reason: "a theft", Limit: 2})
	if want := (store.QueueCancelResult{Payouts: 1}); err != nil || got != want {
		t.Errorf("a payer: got %+v, %v; want its payout left", got, err)
	}
	check.Err(t, "no such submitter", store.ErrUnknownSubmitter)(db.Store.CancelQueue(t.Context(), store.QueueCancel{Submitter: "eip155:1337:0x00000000000000000000000000000000000000ff", By: "ann", Reason: "r", Limit: 2}))
}
