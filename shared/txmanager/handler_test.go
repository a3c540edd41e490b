package txmanager

import (
	"context"
	"errors"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"time"
)

// ofHandler is alice's transaction with bound nonce n, whose handler is to be called.
func ofHandler(n uint64) Tx {
	t := bare(n)
	t.Handler, t.Payload = "wage", []byte(`{}`)
	return t
}

// A handler is called only where its transaction could be sent: not above a nonce that no node
// holds, not twice at once, not before its time.
func TestWhoseHandlerIsAskedNext(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		later := ofHandler(5)
		later.NextCheckAt = in(time.Minute)
		decided := ofHandler(5)
		decided.RequestedAction = ActionPlaceholder
		claimedStuck := claimBroadcast(stuck(4), dbNow)
		for name, c := range map[string]struct {
			unsettled []Tx
			want      bool
		}{
			"alone":                                {[]Tx{ofHandler(5)}, true},
			"behind what a node holds":             {[]Tx{pending(4), ofHandler(5)}, true},
			"behind what goes in this round":       {[]Tx{claimBroadcast(submitted(4), dbNow), ofHandler(5)}, true},
			"behind what no node took":             {[]Tx{submitted(4), ofHandler(5)}, false},
			"behind STUCK":                         {[]Tx{stuck(4), ofHandler(5)}, false},
			"behind STUCK, whose send was claimed": {[]Tx{claimedStuck, ofHandler(5)}, false},
			"behind what has no bytes":             {[]Tx{bare(4), ofHandler(5)}, false},
			"not yet":                              {[]Tx{later}, false},
			"decided about":                        {[]Tx{decided}, false},
		} {
			got, ok := stateOf(4, 6, c.unsettled...).nextHandlerCall()
			if ok != c.want || (ok && *got.Nonce != 5) {
				t.Errorf("%s: got %v, %v; want %v", name, got.ID, ok, c.want)
			}
		}
	})
}

// A call that no chain could carry out is a failure of the handler.
func TestWhatAHandlerMadeIsChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call Call
		ok   bool
	}{
		"a transfer":         {Call{To: &Address{1}, Value: big.NewInt(1)}, true},
		"with all given":     {Call{Gas: 21_000, FeeCapWei: big.NewInt(2), TipCapWei: big.NewInt(1)}, true},
		"a negative amount":  {Call{Value: big.NewInt(-1)}, false},
		"more than 256 bits": {Call{Value: new(big.Int).Lsh(big.NewInt(1), 256)}, false},
		"a negative fee":     {Call{FeeCapWei: big.NewInt(-1)}, false},
		"too little gas":     {Call{Gas: 20_999}, false},
		"too much gas":       {Call{Gas: txGasCap + 1}, false},
	} {
		if err := checkCall(c.call); (err == nil) != c.ok {
			t.Errorf("%s: got %v, want fit: %v", name, err, c.ok)
		}
	}
}

// A handler that panics, or does not return in time, has failed; its text is cut.
func TestHandlerIsWaitedForNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	never := make(chan struct{})
	defer close(never)
	_, err, _ := runHandler(ctx, func(context.Context, NonceContext) (Transaction, error) { <-never; return Transaction{}, nil }, NonceContext{}, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that does not return: got %v, want the deadline", err)
	}
	_, err, _ = runHandler(t.Context(), func(context.Context, NonceContext) (Transaction, error) { panic(strings.Repeat("x", 1000)) }, NonceContext{}, nil)
	if err == nil || len(shorten(err.Error())) > 310 {
		t.Errorf("one that panics: got %v, want its words, cut", err)
	}
}

// Without its handler in any process, a transaction keeps its nonce for stuck.after: then an
// operator must decide. The missing handler was not called, so earlier calls still count.
func TestMissingHandlerEndsStuck(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		start, gone := time.Now(), ofHandler(5)
		gone.SubmitAttempts = 2
		r := rulesOf(3)
		for _, step := range []struct {
			after time.Duration
			want  State
		}{{0, InFlight}, {r.StuckAfter - time.Second, InFlight}, {time.Second, Stuck}} {
			time.Sleep(step.after) // of the bubble's clock
			w := stateOf(1, 6, gone)
			w.Now = w.Now.Add(time.Since(start))
			w.Open[0].NextCheckAt = nil
			tn := invocationBy(&Worker{Service: Service{Rules: r, Timing: testTiming}}, leaseSession{state: w})
			answers, ok, err := tn.callHandlers(t.Context(), viewOf(w, block('a', 100)))
			_, moves := r.planSignatures(w, reader(nil), viewOf(w, block('a', 100)), answers)
			if err != nil || !ok || len(moves) != 1 {
				t.Fatalf("after %v more: got %v, %v, %+v; want one move", step.after, ok, err, moves)
			}
			gone = moves[0].To
			if gone.State != step.want || gone.SubmitAttempts != 2 || gone.LastError != "no handler wage in this process" || gone.isDueBy(w.now()) {
				t.Errorf("after %v more: got %+v, want it %s with the reason, 2 attempts and its next look planned", step.after, gone, step.want)
			}
		}
	})
}

// A request whose handler this process lacks waits in the queue, and so do later ones; earlier
// ones proceed.
func TestNoNonceIsBoundForAMissingHandler(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		wage := queued(2, `{}`)
		wage.Handler = "wage"
		for _, c := range []struct {
			name   string
			has    map[string]Handler
			window uint64
			queue  []Tx
			want   string
		}{
			{"it is here", map[string]Handler{"wage": nil}, 4, []Tx{queued(1, "pay"), wage, queued(3, "pay")}, "q-1=5, q-2=6"},
			{"it is not", nil, 4, []Tx{queued(1, "pay"), wage, queued(3, "pay")}, "q-1=5, q-2 waits"},
			{"at the head", nil, 4, []Tx{wage, queued(3, "pay")}, "q-2 waits"},
			{"no room for it", nil, 1, []Tx{queued(1, "pay"), wage}, "q-1=5"},
			{"behind what waits", nil, 4, []Tx{queued(1, "call"), wage}, "q-1 waits"},
		} {
			w := queue(stateOf(c.window, 5), c.queue...)
			worker := &Worker{Service: Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Timing: testTiming}, Signer: signsHere{}, Handlers: c.has}
			tn := queried(invocationBy(worker, leaseSession{chain: reader(nil), kind: KindAdvance, state: w}))
			v := viewOf(w, block('a', 100))
			v.Estimates = make([]Estimate, len(callsToEstimate(w, tn.chain)))
			p := tn.planUnsigned(t.Context(), v)
			if got := outline(p); got != c.want {
				t.Errorf("%s: got %q, want %q", c.name, got, c.want)
			}
			for _, m := range p.transitions {
				if m.To.isDueBy(w.now()) || m.To.LastError == "" {
					t.Errorf("%s: got %+v, want a reason and its next look planned", c.name, m.To)
				}
			}
		}
	})
}

// A transaction without bytes always plans its next check. Otherwise iterations would repeat
// without end.
func TestWaitingWithoutBytesIsNoLoop(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		cancelled, undecided := ofHandler(5), ofHandler(5)
		cancelled.State, cancelled.RequestedAction, cancelled.LastError = Stuck, ActionCancel, "a cancel was asked for, and nonce.placeholder=ask: an operator must decide"
		undecided.State, undecided.NextCheckAt = Stuck, ago(time.Second)
		r := rulesOf(3)
		r.AskBeforePlaceholder = true
		w := stateOf(1, 6, cancelled)
		_, moves := r.planSignatures(w, reader(nil), viewOf(w, block('a', 100)), nil)
		if len(moves) != 1 || moves[0].To.isDueBy(dbNow) {
			t.Errorf("STUCK with a cancel under ask: got %+v, want its next look planned", moves)
		}
		w = stateOf(1, 6, undecided)
		j := r.evaluate(w, asking(w), viewOf(w, block('a', 100)))
		if len(j.transitions) != 1 || !j.transitions[0].To.NextCheckAt.Equal(dbNow.Add(stuckPollBlocks*r.BlockTime)) {
			t.Errorf("STUCK without bytes or order: got %+v, want its next look ten blocks on", j.transitions)
		}
	})
}

// In PROTECT, and above a nonce that no node holds, a requested action waits; polling continues.
func TestWaitingActionDoesNotEndPolling(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		ordered := pending(5)
		ordered.RequestedAction = ActionCancel
		w := stateOf(1, 6, ordered)
		w.Protected = true
		if d := rulesOf(3).planNextWork(w); d.advanceNow || d.kind != KindReceipt || !d.at.Equal(*ordered.NextCheckAt) {
			t.Errorf("in PROTECT: got %+v, want the look for its receipt", d)
		}
		ordered.Nonce = new(uint64(6))
		w = stateOf(2, 7, stuck(5), ordered)
		if d := rulesOf(3).planNextWork(w); d.advanceNow {
			t.Errorf("behind STUCK: got %+v, want no advance", d)
		}
	})
}

// A handler's signer signs during the handler call, and never after.
func TestSignerOfAHandlerEndsWithItsAsking(t *testing.T) {
	t.Parallel()
	kept := make(chan NonceSigner, 3) // one for each call
	h := func(ctx context.Context, n NonceContext) (Transaction, error) {
		kept <- n.Signer
		s, err := n.Signer.Sign(ctx, Call{Gas: 21_000})
		return Transaction{Signed: s.Raw}, err
	}
	signs := func(c Call) (Signed, error, error) { return Signed{Raw: []byte{byte(c.Gas >> 8)}}, nil, nil }
	tx, failed, broken := runHandler(t.Context(), h, NonceContext{}, signs)
	if failed != nil || broken != nil || string(tx.Signed) != string([]byte{21_000 >> 8}) {
		t.Errorf("while it is asked: got %x, %v, %v; want the bytes", tx.Signed, failed, broken)
	}
	if _, err := (<-kept).Sign(t.Context(), Call{}); !errors.Is(err, ErrHandlerCallOver) {
		t.Errorf("afterwards: got %v, want ErrAskedNoMore", err)
	}
	refuses := func(Call) (Signed, error, error) { return Signed{}, ErrSignedOther, nil }
	if _, failed, _ = runHandler(t.Context(), h, NonceContext{}, refuses); !errors.Is(failed, ErrSignedOther) {
		t.Errorf("refused: got %v, want ErrSignedOther", failed)
	}
	lost := errors.New("the lease is lost")
	breaks := func(Call) (Signed, error, error) { return Signed{}, nil, lost }
	if _, _, broken = runHandler(t.Context(), h, NonceContext{}, breaks); !errors.Is(broken, lost) {
		t.Errorf("a tenure that ends: got %v, want it to end the asking", broken)
	}
}

// Signed bytes from a handler must be signed by the submitter, for the nonce and chain, within the
// deployment's fee limits.
func TestSignedBytesOfAHandlerFit(t *testing.T) {
	t.Parallel()
	good := Unsigned{ChainID: 1337, Nonce: 5, Value: big.NewInt(1), Gas: 21_000, FeeCapWei: big.NewInt(10), TipCapWei: big.NewInt(1)}
	k := &handlerCall{session: invocationBy(&Worker{Service: Service{Rules: Rules{Limits: Limits{FeeCapWei: big.NewInt(10)}}, Timing: testTiming}}, leaseSession{}), tx: ofHandler(5)}
	for name, c := range map[string]struct {
		from Address
		edit func(*Unsigned)
		ok   bool
	}{
		"as they should be": {alice.Address(), func(*Unsigned) {}, true},
		"signed by another": {Address{1}, func(*Unsigned) {}, false},
		"another chain":     {alice.Address(), func(u *Unsigned) { u.ChainID = 1 }, false},
		"another nonce":     {alice.Address(), func(u *Unsigned) { u.Nonce = 6 }, false},
		"too dear":          {alice.Address(), func(u *Unsigned) { u.FeeCapWei = big.NewInt(11) }, false},
		"too much gas":      {alice.Address(), func(u *Unsigned) { u.Gas = txGasCap + 1 }, false},
	} {
		tx := good
		c.edit(&tx)
		if err := k.checkSigned(c.from, tx); (err == nil) != c.ok {
			t.Errorf("%s: got %v, want fit: %v", name, err, c.ok)
		}
	}
}

// A failing handler gets a placeholder at once. Where an operator must decide first, the
// transaction is STUCK until then, and no version is signed for the nonce.
func TestFailingHandlerWaitsForAnOperatorUnderAsk(t *testing.T) {
	t.Parallel()
	for _, ask := range []bool{false, true} {
		frozen(t, func(t *testing.T) {
			r := rulesOf(3)
			r.AskBeforePlaceholder = ask
			w := stateOf(1, 6, ofHandler(5))
			jobs, moves := r.planSignatures(w, reader(nil), viewOf(w, block('a', 100)), map[string]handlerResult{"tx-5": {failed: "handler wage: broken", asked: true}})
			if len(jobs) != 0 || len(moves) != 1 {
				t.Fatalf("ask %v: got %d to sign, %d moves; want none, one", ask, len(jobs), len(moves))
			}
			to, decided := moves[0].To, moves[0].Decision
			if ask && (to.State != Stuck || to.RequestedAction != "" || decided != nil) {
				t.Errorf("under ask: got %s, ordered %q, decided %+v; want STUCK, and nothing ordered by anyone", to.State, to.RequestedAction, decided)
			}
			if !ask && (to.State != InFlight || to.RequestedAction != ActionPlaceholder || decided == nil || decided.By != decidedByHandler) {
				t.Errorf("without ask: got %s, ordered %q, decided %+v; want a placeholder ordered for the handler", to.State, to.RequestedAction, decided)
			}
			tn := invocationBy(&Worker{Service: Service{Rules: r, Timing: testTiming}}, leaseSession{state: w.afterCommit(Commit{Transitions: moves})})
			if jobs, _ = r.planSignatures(tn.state, reader(nil), estimatedSelf(viewOf(w, block('a', 100))), nil); len(jobs) != map[bool]int{false: 1, true: 0}[ask] {
				t.Errorf("ask %v, afterwards: got %d to sign", ask, len(jobs))
			}
		})
	}
}

// estimatedSelf is v with the gas of a placeholder.
func estimatedSelf(v ChainObservation) ChainObservation {
	v.SelfTransfer = estimated(21_000)
	return v
}
