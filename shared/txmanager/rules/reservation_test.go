package rules

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// The next nonce is the lowest released one, if nodes hold all below it; otherwise the cursor's. A
// reservation releases nothing before its owner does, or after it expired.
func TestWhereTheNextNonceComesFrom(t *testing.T) {
	t.Parallel()
	ordered := txtest.Lent(5, txmanager.Recyclable, time.Minute)
	ordered.RequestedAction = txmanager.ActionPlaceholder
	for name, c := range map[string]struct {
		held  []txmanager.Tx
		want  NonceSlots
		three []uint64 // the first three nonces that are free together
	}{
		"nothing held":                  {nil, NonceSlots{First: 8, Count: 5}, []uint64{8, 9, 10}},
		"behind what a node has":        {[]txmanager.Tx{txtest.Pending(7)}, NonceSlots{First: 8, Count: 4}, []uint64{8, 9, 10}},
		"one given back":                {[]txmanager.Tx{txtest.Lent(7, txmanager.Recyclable, time.Minute)}, NonceSlots{First: 7, Count: 1, Reservation: "tx-7"}, []uint64{7, 8, 9}},
		"the lowest of two":             {[]txmanager.Tx{txtest.Pending(4), txtest.Lent(5, txmanager.Recyclable, time.Minute), txtest.Pending(6), txtest.Lent(7, txmanager.Recyclable, time.Minute)}, NonceSlots{First: 5, Count: 1, Reservation: "tx-5"}, []uint64{5, 7, 8}},
		"the window is full":            {[]txmanager.Tx{txtest.Pending(3), txtest.Pending(4), txtest.Pending(5), txtest.Pending(6), txtest.Lent(7, txmanager.Recyclable, time.Minute)}, NonceSlots{First: 7, Count: 1, Reservation: "tx-7"}, []uint64{7}},
		"above one that is its owner's": {[]txmanager.Tx{txtest.Lent(5, txmanager.Reserved, time.Minute), txtest.Lent(6, txmanager.Recyclable, time.Minute)}, NonceSlots{First: 8, Count: 2}, nil},
		"above one that is STUCK":       {[]txmanager.Tx{txtest.Stuck(5), txtest.Lent(6, txmanager.Recyclable, time.Minute)}, NonceSlots{First: 8, Count: 2}, nil},
		"below one that is its owner's": {[]txmanager.Tx{txtest.Lent(5, txmanager.Recyclable, time.Minute), txtest.Lent(6, txmanager.Reserved, time.Minute)}, NonceSlots{First: 5, Count: 1, Reservation: "tx-5"}, []uint64{5}},
		"its time is over":              {[]txmanager.Tx{txtest.Lent(5, txmanager.Recyclable, 0)}, NonceSlots{First: 8, Count: 2}, nil},
		"somebody decided about it":     {[]txmanager.Tx{ordered}, NonceSlots{First: 8, Count: 2}, nil},
		"used":                          {[]txmanager.Tx{txtest.UsedBy(txtest.Submitted(5))}, NonceSlots{First: 8, Count: 2}, nil},
		"used, and a node has it":       {[]txmanager.Tx{txtest.UsedBy(txtest.Pending(5))}, NonceSlots{First: 8, Count: 2}, []uint64{8, 9}},
	} {
		w := txtest.StateOf(5, 8, c.held...)
		check.Equal(t, name, NextSlots(w), c.want)
		var three []uint64
		for _, s := range FreeSlots(w, 3) {
			three = append(three, s.First)
		}
		check.Same(t, name+": the first three", three, c.three)
	}
}

// Under strict rules no nonce is bound while another is open, whatever window was loaded: neither
// the cursor's nor a released one.
func TestStrictRulesLeaveOneOpenNonce(t *testing.T) {
	t.Parallel()
	strict := rulesOf(3)
	strict.Strict = true
	for name, c := range map[string]struct {
		held []txmanager.Tx
		want NonceSlots
	}{
		"nothing open":                {nil, NonceSlots{First: 8, Count: 1}},
		"one open":                    {[]txmanager.Tx{txtest.Pending(7)}, NonceSlots{First: 8}},
		"a window from before":        {[]txmanager.Tx{txtest.Pending(5), txtest.Pending(6), txtest.Pending(7)}, NonceSlots{First: 8}},
		"one given back":              {[]txmanager.Tx{txtest.Lent(7, txmanager.Recyclable, time.Minute)}, NonceSlots{First: 7, Count: 1, Reservation: "tx-7"}},
		"one given back above others": {[]txmanager.Tx{txtest.Pending(6), txtest.Lent(7, txmanager.Recyclable, time.Minute)}, NonceSlots{First: 8}},
		"one given back below others": {[]txmanager.Tx{txtest.Lent(6, txmanager.Recyclable, time.Minute), txtest.UsedBy(txtest.Submitted(7))}, NonceSlots{First: 8}},
	} {
		w := strict.BindWindow(txtest.StateOf(5, 8, c.held...))
		check.Equal(t, name, NextSlots(w), c.want)
		check.Equal(t, name+": seats at once", len(FreeSlots(w, 3)), c.want.Count)
		if got := rulesOf(3).BindWindow(txtest.StateOf(5, 8, c.held...)); got.Window != 5 || got.Strict {
			t.Errorf("%s, not strict: got a window of %d, want 5", name, got.Window)
		}
	}
}

// An intent gets the released nonce, alone, at the price of its reservation's placeholder; the
// next intent gets the cursor's nonce.
func TestIntentGetsAReleasedNonce(t *testing.T) {
	t.Parallel()
	r := rulesOf(3)
	w := txtest.Queue(txtest.StateOf(4, 7, txtest.Pending(4), txtest.Lent(5, txmanager.Recyclable, time.Minute), txtest.UsedBy(txtest.Submitted(6))), txtest.Queued(1, "pay"), txtest.Queued(2, "pay"))
	v := txtest.ViewOf(w, txtest.Block('a', 100))
	v.Account.PendingCount = 5
	if reason := AllocationBlocked(w, v).Reason; reason != "" {
		t.Fatalf("may allocate: got %q", reason)
	}
	// Exactly enough for the open transactions except the reservation, and for the intent.
	taken := txmanager.GasParams{Gas: 21_000, FeeCapWei: big.NewInt(22), TipCapWei: big.NewInt(2), ValueWei: big.NewInt(1)}
	v.Account.BalanceWei = new(big.Int).Add(gas.CostWithPlaceholder(*w.Open[0].Gas), new(big.Int).Add(gas.CostWithPlaceholder(*w.Open[2].Gas), gas.CostWithPlaceholder(taken)))
	p := r.PlanAllocations(w, txtest.Reader(nil), v, nil)
	if len(p.Allocations) != 1 || p.Allocations[0].Nonce != 5 || p.Allocations[0].FromReservation != "tx-5" || p.Unsigned[0].Nonce != 5 || len(p.Transitions) != 0 {
		t.Fatalf("got %+v, moves %+v; want nonce 5 for the head, from tx-5", p.Allocations, p.Transitions)
	}
	p.Allocations[0].Tx.State = txmanager.Submitted
	after := AfterCommit(w, txmanager.Commit{Allocations: p.Allocations})
	var got []string
	for _, x := range after.Open {
		got = append(got, x.ID)
	}
	if strings.Join(got, " ") != "tx-4 q-1 tx-6" || after.NextNonce != 7 || len(after.Queue) != 1 {
		t.Errorf("after it: got %v, next %d, %d queued; want tx-4 q-1 tx-6, 7, 1", got, after.NextNonce, len(after.Queue))
	}
	v.Account.BalanceWei = new(big.Int).Sub(v.Account.BalanceWei, big.NewInt(1))
	if p := r.PlanAllocations(w, txtest.Reader(nil), v, nil); len(p.Allocations) != 0 || !p.Waiting {
		t.Errorf("one wei less: got %+v, want it to wait", p.Allocations)
	}
}

// A nonce that the chain shows as pending or mined is not allocated again.
func TestReleasedNonceSeenOnChainIsNotReused(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(4, 7, txtest.Pending(4), txtest.Lent(5, txmanager.Recyclable, time.Minute), txtest.UsedBy(txtest.Submitted(6)))
	for name, c := range map[string]struct {
		latest, pending uint64
		want            string
	}{
		"nothing of it":    {4, 5, ""},
		"something pends":  {4, 6, "released unsigned"},
		"something has it": {6, 6, "released unsigned"},
	} {
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		v.Account.LatestCount, v.Account.PendingCount = c.latest, c.pending
		if got := AllocationBlocked(w, v).Reason; (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q in it", name, got, c.want)
		}
	}
}

// H27: a reverting estimate defers an intent until all open nonces are terminal, also where the
// released nonce is below them.
func TestH27RevertAtAReleasedNonceIsDeferred(t *testing.T) {
	t.Parallel()
	w := txtest.Queue(txtest.StateOf(4, 7, txtest.Pending(4), txtest.Lent(5, txmanager.Recyclable, time.Minute), txtest.UsedBy(txtest.Submitted(6))), txtest.Queued(1, "call"))
	p := rulesOf(3).PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), map[string]txmanager.Estimate{"q-1": {Outcome: txmanager.Refused, Reason: "no allowance"}})
	if len(p.Transitions) != 1 || p.Transitions[0].To.State != txmanager.Queued || *p.Transitions[0].To.DeferredUntilNonce != 6 {
		t.Errorf("got %+v, want it set aside until nonce 6 has settled", p.Transitions)
	}
}

// H13: an expired reservation needs a placeholder, whether it was not marked or not reused; with
// nonce.placeholder=ask it needs an operator.
func TestH13TimeOutIsAPlaceholder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		held txmanager.Tx
		want string
	}{
		"in time":                   {txtest.Lent(5, txmanager.Reserved, time.Second), ""},
		"given back, in time":       {txtest.Lent(5, txmanager.Recyclable, time.Second), ""},
		"its time is over":          {txtest.Lent(5, txmanager.Reserved, 0), "the nonce that was reserved for x was not marked in time"},
		"given back, and not taken": {txtest.Lent(5, txmanager.Recyclable, 0), "the nonce that was reserved for x was released, and not used in time"},
	} {
		w := txtest.StateOf(1, 6, c.held)
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		r := rulesOf(3)
		jobs, moves := r.PlanSignatures(w, txtest.Reader(nil), v, HandlerResult{})
		if c.want == "" {
			if len(jobs)+len(moves) != 0 {
				t.Errorf("%s: got %+v, %+v; want nothing", name, jobs, moves)
			}
			continue
		}
		if len(jobs) != 0 || len(moves) != 1 || moves[0].To.RequestedAction != txmanager.ActionPlaceholder || moves[0].Decision == nil || moves[0].Decision.Reason != c.want || moves[0].Decision.By != decidedByTimeOut {
			t.Errorf("%s: got %+v, %+v; want a placeholder ordered: %s", name, jobs, moves, c.want)
			continue
		}
		w.Open[0] = moves[0].To
		v.SelfTransfer = txmanager.Estimate{Outcome: txmanager.Done, Gas: 21_000}
		if jobs, _ := r.PlanSignatures(w, txtest.Reader(nil), v, HandlerResult{}); len(jobs) != 1 || jobs[0].Kind != txmanager.VersionPlaceholder || *jobs[0].Unsigned.To != txtest.Alice.Address() {
			t.Errorf("%s: got %+v, want the placeholder to sign", name, jobs)
		}
		r.AskBeforePlaceholder = true
		if _, moves := r.PlanSignatures(txtest.StateOf(1, 6, c.held), txtest.Reader(nil), v, HandlerResult{}); len(moves) != 1 || moves[0].To.State != txmanager.Stuck || moves[0].To.RequestedAction != "" {
			t.Errorf("%s, with ask: got %+v, want STUCK", name, moves)
		}
		if w := (txtest.StateOf(1, 6, c.held)); true {
			w.Protected = true
			if jobs, moves := rulesOf(3).PlanSignatures(w, txtest.Reader(nil), v, HandlerResult{}); len(jobs)+len(moves) != 0 {
				t.Errorf("%s, in PROTECT: got %+v, %+v; want nothing", name, jobs, moves)
			}
		}
	}
}

// A reservation is checked when it expires. A released nonce is checked at once, for waiting
// intents, and again when it expires.
func TestWhenAReservationIsDue(t *testing.T) {
	t.Parallel()
	back := txtest.Lent(5, txmanager.Recyclable, time.Minute)
	back.NextCheckAt = txtest.Ago(time.Second)
	ready := txtest.Queued(1, "pay")
	for name, c := range map[string]struct {
		held  []txmanager.Tx
		queue []txmanager.Tx
		want  NextWork
	}{
		"its owner's":                       {[]txmanager.Tx{txtest.Lent(5, txmanager.Reserved, time.Minute)}, []txmanager.Tx{ready}, NextWork{Kind: txmanager.KindAdvance, At: *txtest.In(time.Minute)}},
		"its time is over":                  {[]txmanager.Tx{txtest.Lent(5, txmanager.Reserved, 0)}, nil, NextWork{AdvanceNow: true}},
		"given back just now":               {[]txmanager.Tx{back}, nil, NextWork{AdvanceNow: true}},
		"given back, nobody waits":          {[]txmanager.Tx{txtest.Lent(5, txmanager.Recyclable, time.Minute)}, nil, NextWork{Kind: txmanager.KindAdvance, At: *txtest.In(time.Minute)}},
		"given back, somebody waits":        {[]txmanager.Tx{txtest.Lent(5, txmanager.Recyclable, time.Minute)}, []txmanager.Tx{ready}, NextWork{AdvanceNow: true, Kind: txmanager.KindAdvance, At: *txtest.In(time.Minute)}},
		"given back behind what nobody has": {[]txmanager.Tx{timed(txtest.Submitted(4), txtest.In(time.Hour), nil), txtest.Lent(5, txmanager.Recyclable, time.Minute)}, []txmanager.Tx{ready}, NextWork{Kind: txmanager.KindReceipt, At: *txtest.In(time.Hour)}},
	} {
		check.Equal(t, name, rulesOf(3).PlanNextWork(txtest.Queue(txtest.StateOf(1, 6, c.held...), c.queue...)), c.want)
	}
	w := txtest.StateOf(1, 6, back)
	if moves := rulesOf(3).PostponeBlocked(w); len(moves) != 1 || !moves[0].To.NextCheckAt.Equal(back.Reservation.Until) {
		t.Errorf("given back, nobody took it: got %+v, want the next look when its time is over", moves)
	}
	moves := rulesOf(3).PostponeBlocked(txtest.StateOf(1, 6, txtest.Lent(5, txmanager.Reserved, 0)))
	check.Equal(t, "its time is over, and a placeholder follows: moves", len(moves), 0)
}

// A reserved nonce that the chain has consumed is foreign use: its owner had stored no bytes. The
// reservation stays unchanged during the PROTECT incident.
func TestConsumedReservedNonceIsForeignUse(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(1, 6, txtest.Lent(5, txmanager.Reserved, time.Minute))
	v := txtest.ViewOf(w, txtest.Block('a', 100))
	v.Account.LatestCount, v.Account.PendingCount = 6, 6
	if c := EvaluateViolation(w, v); c.Suspect == nil || c.Suspect.Kind != txmanager.NonceConsumed || c.Suspect.ExpectedNonce != 5 {
		t.Fatalf("seen once: got %+v, want a suspicion that nonce 5 is taken", c)
	}
	w.SuspectedViolation = EvaluateViolation(w, v).Suspect
	v.Head = txtest.Block('a', 101)
	check.Equal(t, "seen twice", changed(EvaluateViolation(w, v)), "protect")
	if j := rulesOf(3).Evaluate(w, txtest.Asking(w), v); len(j.Transitions) != 0 || len(j.After) != 1 || j.After[0].State != txmanager.InFlight {
		t.Errorf("the judgement: got %+v, want it left as it is", j.Transitions)
	}
}

// No transaction is sent above a reserved nonce, and its owner's bytes are sent in nonce order.
func TestNothingIsSentAheadOfAReservation(t *testing.T) {
	t.Parallel()
	due := txtest.UsedBy(timed(txtest.Submitted(6), txtest.In(0), txtest.In(0)))
	w := txtest.StateOf(4, 7, txtest.Lent(5, txmanager.Reserved, time.Minute), due)
	v := txtest.ViewOf(w, txtest.Block('a', 100))
	check.Equal(t, "above a reservation: sent", len(rulesOf(3).Evaluate(w, txtest.Asking(w), v).Rebroadcasts), 0)
	w.Open[0] = txtest.UsedBy(timed(txtest.Submitted(5), txtest.In(0), txtest.In(0)))
	v = txtest.ViewOf(w, txtest.Block('a', 100))
	check.Same(t, "once it is used: sent", rulesOf(3).Evaluate(w, txtest.Asking(w), v).Rebroadcasts, []string{"tx-5", "tx-6"})
	blocked := AllocationBlocked(txtest.StateOf(4, 6, txtest.Lent(5, txmanager.Reserved, time.Minute)), v)
	check.Equal(t, "above a reservation: allocation blocked", blocked.Reason != "", true)
}
