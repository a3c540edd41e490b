package worker

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/session/sessiontest"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

var rulesOf = sessiontest.Rules

// invocationBy is an invocation of w within s.
func invocationBy(w *Worker, s session.Session) *invocation {
	s.Service = &w.Service
	return &invocation{Session: &s, worker: w}
}

// testSigner signs by a function, in this process or in another.
type testSigner struct {
	inProcess bool
	sign      func(nonce uint64) (txmanager.Signed, error)
}

func (s testSigner) Sign(_ context.Context, _ txmanager.Submitter, tx txmanager.Unsigned) (txmanager.Signed, error) {
	return s.sign(tx.Nonce)
}

func (s testSigner) InProcess(txmanager.Submitter) bool { return s.inProcess }

func (s testSigner) named(string) txmanager.Signer { return s }

// signsNonce signs with bytes that name the nonce.
func signsNonce(nonce uint64) (txmanager.Signed, error) {
	return txmanager.Signed{Hash: txtest.VersionHash(nonce, 2), Raw: []byte{'s', byte(nonce)}}, nil
}

// keyAway never signs.
var keyAway = testSigner{true, func(uint64) (txmanager.Signed, error) { return txmanager.Signed{}, errors.New("the key is away") }}

// advancing is an advance by w for a submitter in this state.
func advancing(w *Worker, state txmanager.SubmitterState) *invocation {
	return invocationBy(w, session.Session{Chain: txtest.Reader(nil), Kind: txmanager.KindAdvance, State: state})
}

// A handler's transaction is never bumped: its first version offers all that the handler allows,
// with or without gas bumps.
func TestAHandlersFirstVersionOffersAllItMay(t *testing.T) {
	t.Parallel()
	x := txtest.Bare(5)
	x.Handler = "wage"
	w := txtest.StateOf(1, 6, x)
	bumping := rulesOf(3)
	bumping.Bump = &gas.BumpLimits{Multiplier: 1125, MinInterval: time.Minute, MaxAttempts: 3, FeeCapWei: big.NewInt(1000)}
	for name, r := range map[string]rules.Rules{"on": bumping, "off": rulesOf(3)} {
		tn := invocationBy(&Worker{Service: sessiontest.Service(r, nil)}, session.Session{State: w})
		made, err := tn.priceCall(t.Context(), x, rules.HandlerResult{Call: txmanager.Call{Gas: 21_000, FeeCapWei: big.NewInt(5000)}}, txtest.ViewOf(w, txtest.Block('a', 100)))
		if err != nil || made.Params.FeeCapWei.Int64() != 5000 {
			t.Errorf("%s: got %v, %v; want 5000 wei per gas, as the handler said", name, made.Params.FeeCapWei, err)
		}
	}
}

// outline summarises an allocation plan.
func outline(p rules.AllocationPlan) string { return txtest.Outline(p.Allocations, p.Transitions) }

// The iteration that binds a nonce for a caller commits the end of its held back time.
func TestAnIterationCommitsTheHeldBackTimes(t *testing.T) {
	t.Parallel()
	w := txtest.Queue(txtest.StateOf(2, 5), txtest.Of("a", txtest.Queued(1, "pay")))
	w.HeldBackSince = map[string]time.Time{"a": txtest.Now, "b": txtest.Now}
	tn, _, _ := iterationOf(w, true, txmanager.SendAccepted)
	check.OK(t)(tn.iterate(t.Context(), false))
	if _, kept := tn.State.HeldBackSince["a"]; kept || len(tn.State.HeldBackSince) != 1 {
		t.Errorf("held back times: got %v, want b's alone", tn.State.HeldBackSince)
	}
}

// H5: of the requested allocations only the bound ones count.
func TestH05OnlyBoundAllocationsCount(t *testing.T) {
	t.Parallel()
	w := txtest.Queue(txtest.StateOf(3, 5), txtest.Queued(1, "pay"), txtest.Queued(2, "pay"), txtest.Queued(3, "pay"))
	var wr txmanager.Commit
	for i, q := range w.Queue {
		n := 5 + uint64(i)
		q.Nonce, q.State = &n, txmanager.Submitted
		wr.Allocations = append(wr.Allocations, txmanager.Allocation{Tx: q, Nonce: n, Signed: &txmanager.Signed{}})
	}
	for bound := range 4 {
		log := &broadcastLog{claims: map[string]int{}, allocated: bound}
		tn := advancing(&Worker{Service: sessiontest.Service(rulesOf(3), committingStore{broadcastLog: log})}, w)
		check.OK(t)(tn.Commit(t.Context(), wr))
		after := tn.State
		if len(after.Open) != bound || after.NextNonce != 5+uint64(bound) || len(after.Queue) != 3-bound {
			t.Errorf("%d bound: got %d held, next %d, %d queued", bound, len(after.Open), after.NextNonce, len(after.Queue))
		}
		check.Equal(t, fmt.Sprintf("%d bound: to send", bound), len(openByID(after, wr.SignedIDs())), bound)
	}
}

func TestOpenByIDKeepsNonceOrder(t *testing.T) {
	t.Parallel()
	w := txmanager.SubmitterState{Open: []txmanager.Tx{txtest.Pending(5), txtest.Pending(6), txtest.Pending(7)}}
	var got []string
	for _, x := range openByID(w, []string{"tx-7", "tx-5", "tx-99"}) {
		got = append(got, x.ID)
	}
	check.Same(t, "open by id", got, []string{"tx-5", "tx-7"})
}

// A handler's transaction does not fail because one node says that it would revert.
func TestHandlersCallsFailByAQuorum(t *testing.T) {
	t.Parallel()
	x := txtest.Bare(5)
	w := txtest.StateOf(1, 6, x)
	says := func(o txmanager.Outcome, gas uint64) txmanager.ChainObservation {
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		v.Estimates = []txmanager.Estimate{{Outcome: o, Gas: gas, Reason: "execution reverted"}}
		return v
	}
	for name, c := range map[string]struct {
		views []txmanager.ChainObservation
		fails bool
	}{
		"alone":                  {txtest.OfNodes(says(txmanager.Refused, 0), says(txmanager.Done, 50_000), says(txmanager.Done, 50_000)), false},
		"alone, others are away": {txtest.OfNodes(says(txmanager.Refused, 0)), false},
		"two of three":           {txtest.OfNodes(says(txmanager.Refused, 0), says(txmanager.Done, 50_000), says(txmanager.Refused, 0)), true},
	} {
		tn := invocationBy(&Worker{Service: sessiontest.Service(rulesOf(3), nil)}, session.Session{Chain: &txtest.Panel{Views: c.views, Needed: 2}, State: w})
		m, err := tn.priceCall(t.Context(), x, rules.HandlerResult{Call: txmanager.Call{}}, c.views[0])
		if got := m.Failed != ""; err != nil || got != c.fails || !c.fails && m.Wait.Reason == "" {
			t.Errorf("%s: got failed %q, wait %q, %v; want failed %v, else it waits", name, m.Failed, m.Wait, err, c.fails)
		}
	}
}

// If a signer fails, the transaction that was to be signed waits, and no row changes twice in one
// commit.
func TestFailedSigningMakesTheRightTransactionWait(t *testing.T) {
	t.Parallel()
	w := txtest.Queue(txtest.StateOf(2, 5), txtest.Queued(1, "junk"), txtest.Queued(2, "pay"))
	tn := advancing(&Worker{Service: sessiontest.Service(rulesOf(3), nil), SignerNamed: keyAway.named}, w)
	p := tn.planUnsigned(t.Context(), txtest.ViewOf(w, txtest.Block('a', 100)), true)
	var moved []string
	for _, m := range p.Transitions {
		moved = append(moved, m.To.ID)
	}
	check.Same(t, "moved: q-1 refused, q-2 waiting", moved, []string{"q-1", "q-2"})
	check.Equal(t, "allocations", len(p.Allocations), 0)
}

// A transaction without bytes above one that no node holds is not overdue before that one is
// checked. Once that one is broadcasting, it is due at once.
func TestBlockedTransactionIsNotOverdue(t *testing.T) {
	t.Parallel()
	r := rulesOf(3)
	past, far := txtest.Ago(time.Hour), txtest.Now.Add(rules.StuckPollBlocks*r.BlockTime)
	waiting := func(reason string, at *time.Time) txmanager.Tx {
		x := txtest.Bare(6)
		x.NextCheckAt, x.LastError = at, reason
		return x
	}
	ordered := waiting("", past)
	ordered.RequestedAction = txmanager.ActionPlaceholder
	due := txtest.Stuck(5)
	due.NextCheckAt = past
	distant := txtest.Stuck(5)
	distant.NextCheckAt = txtest.In(time.Hour)
	for _, c := range []struct {
		name         string
		below, above txmanager.Tx
		want         *time.Time // nil: no move
	}{
		{"behind STUCK", txtest.Stuck(5), waiting("", past), &far},
		{"behind STUCK, never planned", txtest.Stuck(5), waiting("", nil), &far},
		{"behind what no node took", txtest.Submitted(5), waiting("", past), &far},
		{"behind a later check", distant, waiting("", past), distant.NextCheckAt},
		{"behind a check that is due now", due, waiting("", past), nil},
		{"planned already", txtest.Stuck(5), waiting("", txtest.In(time.Minute)), nil},
		{"behind what a node holds, planned", txtest.Pending(5), waiting("", txtest.In(time.Minute)), &txtest.Now},
		{"behind what goes now, planned", rules.ClaimBroadcast(txtest.Submitted(5), txtest.Now), waiting("", txtest.In(time.Minute)), &txtest.Now},
		{"behind what a node holds, due", txtest.Pending(5), waiting("", past), nil},
		{"it waits for something of its own", txtest.Pending(5), waiting("not signed: no answer", txtest.In(time.Minute)), nil},
		{"with an order", txtest.Stuck(5), ordered, nil},
	} {
		moves := r.PostponeBlocked(txtest.StateOf(2, 7, c.below, c.above))
		if c.want == nil {
			if len(moves) != 0 {
				t.Errorf("%s: got %+v, want it left as it is", c.name, moves[0].To)
			}
			continue
		}
		if len(moves) != 1 || moves[0].To.ID != "tx-6" || moves[0].From != txmanager.InFlight || !moves[0].To.NextCheckAt.Equal(*c.want) {
			t.Errorf("%s: got %+v, want its next look at %v", c.name, moves, c.want)
		}
	}
	w := txtest.StateOf(2, 7, txtest.Stuck(5), waiting("", past))
	w.Protected = true
	check.Equal(t, "in PROTECT: moves", len(r.PostponeBlocked(w)), 0)
	w = txtest.StateOf(2, 7, txtest.Stuck(5), waiting("", past))
	tn := invocationBy(&Worker{Service: sessiontest.Service(r, nil)}, session.Session{Chain: txtest.Reader(nil), Kind: txmanager.KindReceipt, State: w})
	if p := tn.planUnsigned(t.Context(), txtest.ViewOf(w, txtest.Block('a', 100)), false); len(p.Transitions) != 1 || !p.Transitions[0].To.NextCheckAt.Equal(far) {
		t.Errorf("a look by receipt: got %+v, want it planned too", p.Transitions)
	}
}
