package worker

import (
	"context"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/session/sessiontest"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A call that no chain could carry out is a failure of the handler.
func TestWhatAHandlerMadeIsChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call txmanager.Call
		ok   bool
	}{
		"a transfer":         {txmanager.Call{To: new(eip155.Address([20]byte{1})), Value: big.NewInt(1)}, true},
		"with all given":     {txmanager.Call{Gas: 21_000, FeeCapWei: big.NewInt(2), TipCapWei: big.NewInt(1)}, true},
		"a negative amount":  {txmanager.Call{Value: big.NewInt(-1)}, false},
		"more than 256 bits": {txmanager.Call{Value: new(big.Int).Lsh(big.NewInt(1), 256)}, false},
		"a negative fee":     {txmanager.Call{FeeCapWei: big.NewInt(-1)}, false},
		"too little gas":     {txmanager.Call{Gas: 20_999}, false},
		"too much gas":       {txmanager.Call{Gas: gas.TxGasCap + 1}, false},
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
	_, err, _ := runHandler(ctx, func(context.Context, txmanager.NonceContext) (txmanager.Transaction, error) {
		<-never
		return txmanager.Transaction{}, nil
	}, txmanager.NonceContext{}, nil)
	check.Err(t, "one that does not return", context.DeadlineExceeded)(err)
	_, err, _ = runHandler(t.Context(), func(context.Context, txmanager.NonceContext) (txmanager.Transaction, error) {
		panic(strings.Repeat("x", 1000))
	}, txmanager.NonceContext{}, nil)
	if err == nil || len(shorten(err.Error())) > 310 {
		t.Errorf("one that panics: got %v, want its words, cut", err)
	}
}

// Without its handler in any process, a transaction keeps its nonce for stuck.after: then an
// operator must decide. The missing handler was not called, so earlier calls still count.
func TestMissingHandlerEndsStuck(t *testing.T) {
	t.Parallel()
	now, gone := txtest.Now, txtest.OfHandler(5)
	gone.SubmitAttempts = 2
	r := rulesOf(3)
	for _, step := range []struct {
		after time.Duration
		want  txmanager.State
	}{{0, txmanager.InFlight}, {r.StuckAfter - time.Second, txmanager.InFlight}, {time.Second, txmanager.Stuck}} {
		now = now.Add(step.after)
		w := txtest.StateOf(1, 6, gone)
		w.Now = now
		w.Open[0].NextCheckAt = nil
		tn := invocationBy(&Worker{Service: sessiontest.Service(r, nil)}, session.Session{State: w})
		answer, outdated, err := tn.callDueHandler(t.Context(), txtest.ViewOf(w, txtest.Block('a', 100)))
		_, moves := r.PlanSignatures(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), answer)
		if err != nil || outdated || len(moves) != 1 {
			t.Fatalf("after %v more: got %v, %v, %+v; want one move", step.after, outdated, err, moves)
		}
		gone = moves[0].To
		if gone.State != step.want || gone.SubmitAttempts != 2 || gone.LastError != "no handler wage in this process" || gone.IsDueBy(w.DatabaseTime()) {
			t.Errorf("after %v more: got %+v, want it %s with the reason, 2 attempts and its next look planned", step.after, gone, step.want)
		}
	}
}

// A request whose handler this process lacks waits in the queue, and so do later ones; earlier
// ones proceed.
func TestNoNonceIsBoundForAMissingHandler(t *testing.T) {
	t.Parallel()
	wage := txtest.Queued(2, `{}`)
	wage.Handler = "wage"
	for _, c := range []struct {
		name   string
		has    map[string]txmanager.Handler
		window uint64
		queue  []txmanager.Tx
		want   string
	}{
		{"it is here", map[string]txmanager.Handler{"wage": nil}, 4, []txmanager.Tx{txtest.Queued(1, "pay"), wage, txtest.Queued(3, "pay")}, "q-1=5, q-2=6"},
		{"it is not", nil, 4, []txmanager.Tx{txtest.Queued(1, "pay"), wage, txtest.Queued(3, "pay")}, "q-1=5, q-2 waits"},
		{"at the head", nil, 4, []txmanager.Tx{wage, txtest.Queued(3, "pay")}, "q-2 waits"},
		{"no room for it", nil, 1, []txmanager.Tx{txtest.Queued(1, "pay"), wage}, "q-1=5"},
		{"behind what waits", nil, 4, []txmanager.Tx{txtest.Queued(1, "call"), wage}, "q-1 waits"},
	} {
		w := txtest.Queue(txtest.StateOf(c.window, 5), c.queue...)
		tn := advancing(&Worker{Service: sessiontest.Service(rulesOf(3), nil), SignerNamed: testSigner{true, signsNonce}.named, Handlers: c.has}, w)
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		v.Estimates = make([]txmanager.Estimate, len(rules.CallsToEstimate(w, tn.Chain)))
		p := tn.planUnsigned(t.Context(), v, true)
		check.Equal(t, c.name, outline(p), c.want)
		for _, m := range p.Transitions {
			if m.To.IsDueBy(w.DatabaseTime()) || m.To.LastError == "" {
				t.Errorf("%s: got %+v, want a reason and its next look planned", c.name, m.To)
			}
		}
	}
}

// A handler's signer signs during the handler call, and never after.
func TestSignerOfAHandlerEndsWithItsAsking(t *testing.T) {
	t.Parallel()
	kept := make(chan txmanager.NonceSigner, 4) // one for each call
	h := func(ctx context.Context, n txmanager.NonceContext) (txmanager.Transaction, error) {
		kept <- n.Signer
		s, err := n.Signer.Sign(ctx, txmanager.Call{Gas: 21_000})
		return txmanager.Transaction{Signed: s.Raw}, err
	}
	signs := func(c txmanager.Call) (txmanager.Signed, error, error) {
		return txmanager.Signed{Raw: []byte{byte(c.Gas >> 8)}}, nil, nil
	}
	tx, failed, broken := runHandler(t.Context(), h, txmanager.NonceContext{}, signs)
	if failed != nil || broken != nil || string(tx.Signed) != string([]byte{21_000 >> 8}) {
		t.Errorf("while it is asked: got %x, %v, %v; want the bytes", tx.Signed, failed, broken)
	}
	check.Err(t, "afterwards", txmanager.ErrHandlerCallOver)((<-kept).Sign(t.Context(), txmanager.Call{}))
	refuses := func(txmanager.Call) (txmanager.Signed, error, error) {
		return txmanager.Signed{}, txmanager.ErrSignedOther, nil
	}
	_, failed, _ = runHandler(t.Context(), h, txmanager.NonceContext{}, refuses)
	check.Err(t, "refused", txmanager.ErrSignedOther)(failed)
	lost := errors.New("the lease is lost")
	breaks := func(txmanager.Call) (txmanager.Signed, error, error) { return txmanager.Signed{}, nil, lost }
	_, _, broken = runHandler(t.Context(), h, txmanager.NonceContext{}, breaks)
	check.Err(t, "a lease session that ends", lost)(broken)

	// A panic of the lease session's own code is not the handler's failure, which a placeholder would answer.
	panics := func(txmanager.Call) (txmanager.Signed, error, error) { panic("of the session") }
	check.Equal(t, "a panic while it signs", txmanager.PanicOf(func() { _, _, _ = runHandler(t.Context(), h, txmanager.NonceContext{}, panics) }), any("of the session"))
}

// Signed bytes from a handler must be signed by the submitter, for the nonce and chain, within the
// deployment's fee limits.
func TestSignedBytesOfAHandlerFit(t *testing.T) {
	t.Parallel()
	good := txmanager.Unsigned{ChainID: 1337, Nonce: 5, Value: big.NewInt(1), Gas: 21_000, FeeCapWei: big.NewInt(10), TipCapWei: big.NewInt(1)}
	k := &handlerCall{session: invocationBy(&Worker{Service: sessiontest.Service(rules.Rules{Limits: gas.Limits{MaxFeePerGasWei: big.NewInt(10)}}, nil)}, session.Session{}), tx: txtest.OfHandler(5)}
	for name, c := range map[string]struct {
		from txmanager.Address
		edit func(*txmanager.Unsigned)
		ok   bool
	}{
		"as they should be": {txtest.Alice.Address(), func(*txmanager.Unsigned) {}, true},
		"signed by another": {eip155.Address([20]byte{1}), func(*txmanager.Unsigned) {}, false},
		"another chain":     {txtest.Alice.Address(), func(u *txmanager.Unsigned) { u.ChainID = 1 }, false},
		"another nonce":     {txtest.Alice.Address(), func(u *txmanager.Unsigned) { u.Nonce = 6 }, false},
		"too dear":          {txtest.Alice.Address(), func(u *txmanager.Unsigned) { u.FeeCapWei = big.NewInt(11) }, false},
		"too much gas":      {txtest.Alice.Address(), func(u *txmanager.Unsigned) { u.Gas = gas.TxGasCap + 1 }, false},
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
		r := rulesOf(3)
		r.AskBeforePlaceholder = ask
		w := txtest.StateOf(1, 6, txtest.OfHandler(5))
		jobs, moves := r.PlanSignatures(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), rules.HandlerResult{TxID: "tx-5", Failed: "handler wage: broken", Asked: true})
		if len(jobs) != 0 || len(moves) != 1 {
			t.Fatalf("ask %v: got %d to sign, %d moves; want none, one", ask, len(jobs), len(moves))
		}
		to, decided := moves[0].To, moves[0].Decision
		if ask && (to.State != txmanager.Stuck || to.RequestedAction != "" || decided != nil) {
			t.Errorf("under ask: got %s, ordered %q, decided %+v; want STUCK, and nothing ordered by anyone", to.State, to.RequestedAction, decided)
		}
		if !ask && (to.State != txmanager.InFlight || to.RequestedAction != txmanager.ActionPlaceholder || decided == nil || decided.By != rules.DecidedByHandler) {
			t.Errorf("without ask: got %s, ordered %q, decided %+v; want a placeholder ordered for the handler", to.State, to.RequestedAction, decided)
		}
		tn := invocationBy(&Worker{Service: sessiontest.Service(r, nil)}, session.Session{State: rules.AfterCommit(w, txmanager.Commit{Transitions: moves})})
		if jobs, _ = r.PlanSignatures(tn.State, txtest.Reader(nil), estimatedSelf(txtest.ViewOf(w, txtest.Block('a', 100))), rules.HandlerResult{}); len(jobs) != map[bool]int{false: 1, true: 0}[ask] {
			t.Errorf("ask %v, afterwards: got %d to sign", ask, len(jobs))
		}
	}
}

// estimatedSelf is v with the gas of a placeholder.
func estimatedSelf(v txmanager.ChainObservation) txmanager.ChainObservation {
	v.SelfTransfer = txtest.Estimated(21_000)
	return v
}
