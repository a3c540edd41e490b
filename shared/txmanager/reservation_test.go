package txmanager

import (
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// lent is alice's nonce n, reserved for x until then.
func lent(n uint64, s ReservationState, until time.Duration) Tx {
	t := bare(n)
	t.Payload = []byte(`{"reservation": true}`)
	t.Reservation = &Reservation{State: s, Owner: "x", Until: dbNow.Add(until)}
	t.NextCheckAt = &t.Reservation.Until
	return t
}

// usedBy is a transaction of bytes that x signed.
func usedBy(t Tx) Tx {
	t.Payload, t.Reservation = []byte(`{"reservation": true}`), &Reservation{State: Used, Owner: "x", Until: dbNow}
	return t
}

// The next nonce is the lowest released one, if nodes hold all below it; otherwise the cursor's. A
// reservation releases nothing before its owner does, or after it expired.
func TestWhereTheNextNonceComesFrom(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		ordered := lent(5, Recyclable, time.Minute)
		ordered.RequestedAction = ActionPlaceholder
		for name, c := range map[string]struct {
			held  []Tx
			want  nonceSlots
			three []uint64 // the first three nonces that are free together
		}{
			"nothing held":                  {nil, nonceSlots{first: 8, count: 5}, []uint64{8, 9, 10}},
			"behind what a node has":        {[]Tx{pending(7)}, nonceSlots{first: 8, count: 4}, []uint64{8, 9, 10}},
			"one given back":                {[]Tx{lent(7, Recyclable, time.Minute)}, nonceSlots{first: 7, count: 1, reservation: "tx-7"}, []uint64{7, 8, 9}},
			"the lowest of two":             {[]Tx{pending(4), lent(5, Recyclable, time.Minute), pending(6), lent(7, Recyclable, time.Minute)}, nonceSlots{first: 5, count: 1, reservation: "tx-5"}, []uint64{5, 7, 8}},
			"the window is full":            {[]Tx{pending(3), pending(4), pending(5), pending(6), lent(7, Recyclable, time.Minute)}, nonceSlots{first: 7, count: 1, reservation: "tx-7"}, []uint64{7}},
			"above one that is its owner's": {[]Tx{lent(5, Reserved, time.Minute), lent(6, Recyclable, time.Minute)}, nonceSlots{first: 8, count: 2}, nil},
			"above one that is STUCK":       {[]Tx{stuck(5), lent(6, Recyclable, time.Minute)}, nonceSlots{first: 8, count: 2}, nil},
			"below one that is its owner's": {[]Tx{lent(5, Recyclable, time.Minute), lent(6, Reserved, time.Minute)}, nonceSlots{first: 5, count: 1, reservation: "tx-5"}, []uint64{5}},
			"its time is over":              {[]Tx{lent(5, Recyclable, 0)}, nonceSlots{first: 8, count: 2}, nil},
			"somebody decided about it":     {[]Tx{ordered}, nonceSlots{first: 8, count: 2}, nil},
			"used":                          {[]Tx{usedBy(submitted(5))}, nonceSlots{first: 8, count: 2}, nil},
			"used, and a node has it":       {[]Tx{usedBy(pending(5))}, nonceSlots{first: 8, count: 2}, []uint64{8, 9}},
		} {
			w := stateOf(5, 8, c.held...)
			if got := w.nextSlots(); got != c.want {
				t.Errorf("%s: got %+v, want %+v", name, got, c.want)
			}
			var three []uint64
			for _, s := range w.freeSlots(3) {
				three = append(three, s.first)
			}
			if !slices.Equal(three, c.three) {
				t.Errorf("%s: the first three: got %v, want %v", name, three, c.three)
			}
		}
	})
}

// Under strict rules no nonce is bound while another is open, whatever window was loaded: neither
// the cursor's nor a released one.
func TestStrictRulesLeaveOneOpenNonce(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		strict := rulesOf(3)
		strict.Strict = true
		for name, c := range map[string]struct {
			held []Tx
			want nonceSlots
		}{
			"nothing open":                {nil, nonceSlots{first: 8, count: 1}},
			"one open":                    {[]Tx{pending(7)}, nonceSlots{first: 8}},
			"a window from before":        {[]Tx{pending(5), pending(6), pending(7)}, nonceSlots{first: 8}},
			"one given back":              {[]Tx{lent(7, Recyclable, time.Minute)}, nonceSlots{first: 7, count: 1, reservation: "tx-7"}},
			"one given back above others": {[]Tx{pending(6), lent(7, Recyclable, time.Minute)}, nonceSlots{first: 8}},
			"one given back below others": {[]Tx{lent(6, Recyclable, time.Minute), usedBy(submitted(7))}, nonceSlots{first: 8}},
		} {
			w := strict.bindWindow(stateOf(5, 8, c.held...))
			if got := w.nextSlots(); got != c.want {
				t.Errorf("%s: got %+v, want %+v", name, got, c.want)
			}
			if got := len(w.freeSlots(3)); got != c.want.count {
				t.Errorf("%s: got %d seats at once, want %d", name, got, c.want.count)
			}
			if got := rulesOf(3).bindWindow(stateOf(5, 8, c.held...)); got.Window != 5 || got.Strict {
				t.Errorf("%s, not strict: got a window of %d, want 5", name, got.Window)
			}
		}
	})
}

// An intent gets the released nonce, alone, at the price of its reservation's placeholder; the
// next intent gets the cursor's nonce.
func TestIntentGetsAReleasedNonce(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := rulesOf(3)
		w := queue(stateOf(4, 7, pending(4), lent(5, Recyclable, time.Minute), usedBy(submitted(6))), queued(1, "pay"), queued(2, "pay"))
		v := viewOf(w, block('a', 100))
		v.Account.PendingCount = 5
		if reason := allocationBlockedReason(w, w.Open, v); reason != "" {
			t.Fatalf("may allocate: got %q", reason)
		}
		// Exactly enough for the open transactions except the reservation, and for the intent.
		taken := GasParams{Gas: 21_000, FeeCapWei: big.NewInt(22), TipCapWei: big.NewInt(2), ValueWei: big.NewInt(1)}
		v.Account.BalanceWei = new(big.Int).Add(costWithPlaceholder(*w.Open[0].Gas), new(big.Int).Add(costWithPlaceholder(*w.Open[2].Gas), costWithPlaceholder(taken)))
		p := r.planAllocations(w, reader(nil), v, nil)
		if len(p.allocations) != 1 || p.allocations[0].Nonce != 5 || p.allocations[0].FromReservation != "tx-5" || p.unsigned[0].Nonce != 5 || len(p.transitions) != 0 {
			t.Fatalf("got %+v, moves %+v; want nonce 5 for the head, from tx-5", p.allocations, p.transitions)
		}
		p.allocations[0].Tx.State = Submitted
		after := w.afterCommit(Commit{Allocations: p.allocations})
		var got []string
		for _, x := range after.Open {
			got = append(got, x.ID)
		}
		if strings.Join(got, " ") != "tx-4 q-1 tx-6" || after.NextNonce != 7 || len(after.Queue) != 1 {
			t.Errorf("after it: got %v, next %d, %d queued; want tx-4 q-1 tx-6, 7, 1", got, after.NextNonce, len(after.Queue))
		}
		v.Account.BalanceWei = new(big.Int).Sub(v.Account.BalanceWei, big.NewInt(1))
		if p := r.planAllocations(w, reader(nil), v, nil); len(p.allocations) != 0 || !p.waiting {
			t.Errorf("one wei less: got %+v, want it to wait", p.allocations)
		}
	})
}

// A nonce that the chain shows as pending or mined is not allocated again.
func TestReleasedNonceSeenOnChainIsNotReused(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(4, 7, pending(4), lent(5, Recyclable, time.Minute), usedBy(submitted(6)))
		for name, c := range map[string]struct {
			latest, pending uint64
			want            string
		}{
			"nothing of it":    {4, 5, ""},
			"something pends":  {4, 6, "released unsigned"},
			"something has it": {6, 6, "released unsigned"},
		} {
			v := viewOf(w, block('a', 100))
			v.Account.LatestCount, v.Account.PendingCount = c.latest, c.pending
			if got := allocationBlockedReason(w, w.Open, v); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s: got %q, want %q in it", name, got, c.want)
			}
		}
	})
}

// H27: a reverting estimate defers an intent until all open nonces are terminal, also where the
// released nonce is below them.
func TestH27RevertAtAReleasedNonceIsDeferred(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := queue(stateOf(4, 7, pending(4), lent(5, Recyclable, time.Minute), usedBy(submitted(6))), queued(1, "call"))
		p := rulesOf(3).planAllocations(w, reader(nil), viewOf(w, block('a', 100)), map[string]Estimate{"q-1": {Outcome: Refused, Reason: "no allowance"}})
		if len(p.transitions) != 1 || p.transitions[0].To.State != Queued || *p.transitions[0].To.DeferredUntilNonce != 6 {
			t.Errorf("got %+v, want it set aside until nonce 6 has settled", p.transitions)
		}
	})
}

// H13: an expired reservation needs a placeholder, whether it was not marked or not reused; with
// nonce.placeholder=ask it needs an operator.
func TestH13TimeOutIsAPlaceholder(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			held Tx
			want string
		}{
			"in time":                   {lent(5, Reserved, time.Second), ""},
			"given back, in time":       {lent(5, Recyclable, time.Second), ""},
			"its time is over":          {lent(5, Reserved, 0), "the nonce that was reserved for x was not marked in time"},
			"given back, and not taken": {lent(5, Recyclable, 0), "the nonce that was reserved for x was given back, and nobody took it in time"},
		} {
			w := stateOf(1, 6, c.held)
			v := viewOf(w, block('a', 100))
			r := rulesOf(3)
			jobs, moves := r.planSignatures(w, reader(nil), v, nil)
			if c.want == "" {
				if len(jobs)+len(moves) != 0 {
					t.Errorf("%s: got %+v, %+v; want nothing", name, jobs, moves)
				}
				continue
			}
			if len(jobs) != 0 || len(moves) != 1 || moves[0].To.RequestedAction != ActionPlaceholder || moves[0].Decision == nil || moves[0].Decision.Reason != c.want || moves[0].Decision.By != decidedByTimeOut {
				t.Errorf("%s: got %+v, %+v; want a placeholder ordered: %s", name, jobs, moves, c.want)
				continue
			}
			w.Open[0] = moves[0].To
			v.SelfTransfer = Estimate{Outcome: Done, Gas: 21_000}
			if jobs, _ := r.planSignatures(w, reader(nil), v, nil); len(jobs) != 1 || jobs[0].kind != VersionPlaceholder || *jobs[0].unsigned.To != alice.Address() {
				t.Errorf("%s: got %+v, want the placeholder to sign", name, jobs)
			}
			r.AskBeforePlaceholder = true
			if _, moves := r.planSignatures(stateOf(1, 6, c.held), reader(nil), v, nil); len(moves) != 1 || moves[0].To.State != Stuck || moves[0].To.RequestedAction != "" {
				t.Errorf("%s, with ask: got %+v, want STUCK", name, moves)
			}
			if w := (stateOf(1, 6, c.held)); true {
				w.Protected = true
				if jobs, moves := rulesOf(3).planSignatures(w, reader(nil), v, nil); len(jobs)+len(moves) != 0 {
					t.Errorf("%s, in PROTECT: got %+v, %+v; want nothing", name, jobs, moves)
				}
			}
		}
	})
}

// A reservation is checked when it expires. A released nonce is checked at once, for waiting
// intents, and again when it expires.
func TestWhenAReservationIsDue(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		back := lent(5, Recyclable, time.Minute)
		back.NextCheckAt = ago(time.Second)
		ready := queued(1, "pay")
		for name, c := range map[string]struct {
			held  []Tx
			queue []Tx
			want  nextWork
		}{
			"its owner's":                       {[]Tx{lent(5, Reserved, time.Minute)}, []Tx{ready}, nextWork{kind: KindAdvance, at: *in(time.Minute)}},
			"its time is over":                  {[]Tx{lent(5, Reserved, 0)}, nil, nextWork{advanceNow: true}},
			"given back just now":               {[]Tx{back}, nil, nextWork{advanceNow: true}},
			"given back, nobody waits":          {[]Tx{lent(5, Recyclable, time.Minute)}, nil, nextWork{kind: KindAdvance, at: *in(time.Minute)}},
			"given back, somebody waits":        {[]Tx{lent(5, Recyclable, time.Minute)}, []Tx{ready}, nextWork{advanceNow: true, kind: KindAdvance, at: *in(time.Minute)}},
			"given back behind what nobody has": {[]Tx{timed(submitted(4), in(time.Hour), nil), lent(5, Recyclable, time.Minute)}, []Tx{ready}, nextWork{kind: KindReceipt, at: *in(time.Hour)}},
		} {
			if got := rulesOf(3).planNextWork(queue(stateOf(1, 6, c.held...), c.queue...)); got != c.want {
				t.Errorf("%s: got %+v, want %+v", name, got, c.want)
			}
		}
		w := stateOf(1, 6, back)
		if moves := rulesOf(3).postponeBlocked(w); len(moves) != 1 || !moves[0].To.NextCheckAt.Equal(back.Reservation.Until) {
			t.Errorf("given back, nobody took it: got %+v, want the next look when its time is over", moves)
		}
		if moves := rulesOf(3).postponeBlocked(stateOf(1, 6, lent(5, Reserved, 0))); len(moves) != 0 {
			t.Errorf("its time is over: got %+v, want it left for the placeholder", moves)
		}
	})
}

// A reserved nonce that the chain has consumed is foreign use: its owner had stored no bytes. The
// reservation stays unchanged during the PROTECT incident.
func TestConsumedReservedNonceIsForeignUse(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(1, 6, lent(5, Reserved, time.Minute))
		v := viewOf(w, block('a', 100))
		v.Account.LatestCount, v.Account.PendingCount = 6, 6
		if c := evaluateViolation(w, v); c.Suspect == nil || c.Suspect.Kind != NonceConsumed || c.Suspect.ExpectedNonce != 5 {
			t.Fatalf("seen once: got %+v, want a suspicion that nonce 5 is taken", c)
		}
		w.SuspectedViolation = evaluateViolation(w, v).Suspect
		v.Head = block('a', 101)
		if c := evaluateViolation(w, v); c.OpenIncident == nil {
			t.Errorf("seen twice: got %+v, want PROTECT", c)
		}
		if j := rulesOf(3).evaluate(w, asking(w), v); len(j.transitions) != 0 || len(j.after) != 1 || j.after[0].State != InFlight {
			t.Errorf("the judgement: got %+v, want it left as it is", j.transitions)
		}
	})
}

// No transaction is sent above a reserved nonce, and its owner's bytes are sent in nonce order.
func TestNothingIsSentAheadOfAReservation(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		due := usedBy(timed(submitted(6), in(0), in(0)))
		w := stateOf(4, 7, lent(5, Reserved, time.Minute), due)
		v := viewOf(w, block('a', 100))
		if j := rulesOf(3).evaluate(w, asking(w), v); len(j.rebroadcasts) != 0 {
			t.Errorf("above a reservation: got %v sent, want nothing", j.claimedIDs())
		}
		w.Open[0] = usedBy(timed(submitted(5), in(0), in(0)))
		v = viewOf(w, block('a', 100))
		if j := rulesOf(3).evaluate(w, asking(w), v); strings.Join(j.claimedIDs(), " ") != "tx-5 tx-6" {
			t.Errorf("once it is used: got %v sent, want both in order", j.claimedIDs())
		}
		if got := allocationBlockedReason(stateOf(4, 6, lent(5, Reserved, time.Minute)), []Tx{lent(5, Reserved, time.Minute)}, v); got == "" {
			t.Error("above a reservation: got an allocation allowed")
		}
	})
}

// An owner's bytes are not replaced by code or by a higher fee. A lost nonce of an owner needs a
// request's name: the owner may have sent the consuming transaction.
func TestOwnersBytesAreNotReplaced(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		x := usedBy(stuck(5))
		if reason := rulesOf(3).refuseAction(x, ActionReplace); reason == "" {
			t.Error("replace by code: got it allowed")
		}
		x.RequestedAction = ActionReplace
		w := stateOf(1, 6, x)
		if jobs, _ := rulesOf(3).planSignatures(w, reader(nil), viewOf(w, block('a', 100)), nil); len(jobs) != 0 {
			t.Errorf("replace by order: got %+v signed", jobs)
		}
		held := stateOf(1, 6, lent(5, Reserved, time.Minute))
		tn := &incident{leaseSession: &leaseSession{Service: &Service{Rules: rulesOf(3), Timing: testTiming}, state: held}}
		tn.state.Lease = lease.New(string(alice), "a/1", 1, time.Now(), time.Hour)
		e := evidence{lost: []uint64{5}, foreign: map[uint64]ForeignTransaction{5: {Nonce: 5}}}
		tn.chain = reader(nil)
		_, err := tn.pairRequests(&ReleaseRequest{Count: 6}, e, nil)
		var foreign UnnamedNonceError
		if !errors.As(err, &foreign) || foreign.Nonce != 5 {
			t.Errorf("a lost nonce that nobody named: got %v, want it refused", err)
		}
	})
}
