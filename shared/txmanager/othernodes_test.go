package txmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// While a violation is suspected, an observation from below its block, or without the final block,
// neither clears it nor allocates. It cannot contain what caused the suspicion.
func TestNothingIsAllocatedFromBelowASuspicion(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(1, 5)
		w.FinalHead, w.FinalBlocks = 90, []Header{block('a', 90)}
		w.SuspectedViolation = &Violation{Kind: FinalBlockReorged, Block: 100, ExpectedNonce: 5}
		for name, c := range map[string]struct {
			view       ChainObservation
			may, trust bool
		}{
			"from a block below":          {watching(viewOf(w, block('a', 99)), block('a', 90)), false, false},
			"without the final block":     {viewOf(w, block('a', 101)), false, false},
			"at its block":                {watching(viewOf(w, block('a', 100)), block('a', 90)), true, true},
			"past it, with a final block": {watching(viewOf(w, block('a', 101)), block('a', 90)), true, true},
		} {
			if got := allocationBlockedReason(w, nil, c.view) == ""; got != c.may {
				t.Errorf("%s: got allocation %v, want %v", name, got, c.may)
			}
			if got := evaluateViolation(w, c.view).ClearSuspected; got != c.trust {
				t.Errorf("%s: got trust %v, want %v", name, got, c.trust)
			}
			p := &panel{views: ofNodes(c.view, c.view, c.view), quorum: 2}
			if v := looks(t, p, w, asking(w)); (allocationBlockedReason(w, nil, v) == "") != c.may || evaluateViolation(w, v).ClearSuspected != c.trust {
				t.Errorf("%s, three nodes: got %q and trust %v, want allocation %v and trust %v", name, allocationBlockedReason(w, nil, v), evaluateViolation(w, v).ClearSuspected, c.may, c.trust)
			}
		}
	})
}

// Nodes that lag by some blocks only delay the transactions in the blocks that they lack. Under
// load there are always such young blocks.
func TestLaggingNodesDelayOnlyTheYoungestBlocks(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		chain := blocks('a', 100, 107)
		var all []Tx
		var receipts []Receipt
		for i := range uint64(5) { // in blocks 100 to 104, all final by three blocks on top
			x := included(i, chain[i])
			all, receipts = append(all, x), append(receipts, receiptOf(x, chain[i]))
		}
		w := stateOf(9, 5, all...)
		final := finding(viewOf(w, chain...), receipts...)
		upTo := func(name byte, n int) ChainObservation {
			return finding(watching(viewOf(w, block(name, 99+uint64(n))), chain[:n]...), receipts[:n]...)
		}
		forked := finding(watching(viewOf(w, block('b', 107)), append(blocks('a', 100, 101), blocks('b', 102, 107)...)...), receipts[:2]...)
		for name, c := range map[string]struct {
			quorum int
			views  []ChainObservation
			want   int
		}{
			"both have three":            {2, ofNodes(final, upTo('a', 3), upTo('a', 3)), 3},
			"one has three":              {2, ofNodes(final, upTo('a', 3), upTo('a', 1)), 3},
			"none has any":               {2, ofNodes(final, upTo('a', 0), upTo('a', 0)), 0},
			"all have all":               {2, ofNodes(final, upTo('a', 5), upTo('a', 5)), 5},
			"all must, one forks at 102": {3, ofNodes(final, forked, upTo('a', 5)), 2},
		} {
			p := &panel{views: c.views, quorum: c.quorum}
			q := asking(w)
			v := looks(t, p, w, q)
			if got := len(rulesOf(3).evaluate(w, q, v).finals); got != c.want || v.Node != "n0" {
				t.Errorf("%s: got %d ended by %s, want %d by n0; doubts %+v", name, got, v.Node, c.want, v.Disputes)
			}
		}
	})
}

// Of two nodes at the same height with different heads one is on a fork. A quorum of one node is
// then not enough, even if the other node is not past the block.
func TestEqualHeightsOnTwoForks(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		x := included(5, block('a', 100))
		w := stateOf(1, 6, x)
		mine, other := finding(viewOf(w, block('a', 100)), receiptOf(x, block('a', 100))), watching(viewOf(w, block('b', 100)), block('b', 100))
		for name, c := range map[string]struct {
			views []ChainObservation
			ends  bool
		}{
			"another head": {ofNodes(mine, other), false},
			"the same":     {ofNodes(mine, watching(mine, block('a', 100))), true},
		} {
			p := &panel{views: c.views, quorum: 1}
			tn := &leaseSession{Service: &Service{Rules: rulesOf(0), Log: slog.New(slog.DiscardHandler), Timing: testTiming}, chain: p, state: w}
			q := asking(w)
			v, err := tn.queryAgreed(t.Context(), q)
			if got := len(rulesOf(0).evaluate(w, q, v).finals) > 0; err != nil || got != c.ends {
				t.Errorf("%s: got ended %v by %s, %v; want %v", name, got, v.Node, err, c.ends)
			}
		}
	})
}

// A node that calls its head finalized ends nothing alone: the other nodes' tags count too.
func TestTagsNeedAQuorum(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		chain := blocks('a', 100, 103)
		x := included(5, chain[0])
		w := stateOf(1, 6, x)
		r := rulesOf(0)
		r.Finality = ByFinalized
		tagged := func(at *Header) ChainObservation {
			v := watching(finding(viewOf(w, chain...), receiptOf(x, chain[0])), chain...)
			v.Tagged = at
			return v
		}
		head, before := tagged(&chain[3]), tagged(new(block('a', 90)))
		for name, c := range map[string]struct {
			quorum int
			views  []ChainObservation
			ends   bool
		}{
			"alone with the tag":      {2, ofNodes(head, before, before), false},
			"others have no such":     {2, ofNodes(head, tagged(nil), tagged(nil)), false},
			"another has it so far":   {2, ofNodes(head, before, tagged(&chain[0])), true},
			"the other is not so far": {1, ofNodes(head, before), true}, // one node's claim is enough
		} {
			p := &panel{views: c.views, quorum: c.quorum}
			tn := &leaseSession{Service: &Service{Rules: r, Log: slog.New(slog.DiscardHandler), Timing: testTiming}, chain: p, state: w}
			q := asking(w)
			q.Finality = r.finalityTag()
			v, err := tn.queryAgreed(t.Context(), q)
			if got := len(r.evaluate(w, q, v).finals) > 0; err != nil || got != c.ends {
				t.Errorf("%s: got ended %v by %s, %v; want %v", name, got, v.Node, err, c.ends)
			}
			for _, asked := range p.saw {
				if asked.Finality != q.Finality {
					t.Errorf("%s: got tag %q asked for, want %q", name, asked.Finality, q.Finality)
				}
			}
		}
	})
}

// With a quorum of one among three nodes, an abstaining second node does not prevent a query to
// the third, which may disagree.
func TestQuorumOfOneQueriesTheThirdIfTheSecondAbstains(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		chain := blocks('a', 100, 103)
		x := included(5, chain[0])
		w := stateOf(1, 6, x)
		final := finding(viewOf(w, chain...), receiptOf(x, chain[0]))
		silentOne, other := viewOf(w, chain...), watching(viewOf(w, blocks('b', 100, 103)...), block('b', 100))
		p := &panel{views: ofNodes(final, silentOne, other), quorum: 1}
		q := asking(w)
		v := looks(t, p, w, q)
		if got := rulesOf(3).evaluate(w, q, v).finals; len(got) > 0 {
			t.Errorf("got %v final by %s, want nothing: the third node has another block there", got, v.Node)
		}
	})
}

// consumingTxNode is a panel whose first node gives the transaction that consumed a nonce.
type consumingTxNode struct {
	*panel
	consuming ConsumingTx
}

func (p consumingTxNode) FindConsumingTx(context.Context, Submitter, uint64) (ConsumingTx, error) {
	return p.consuming, nil
}

// evidenceStore stores the foreign transactions that are read.
type evidenceStore struct {
	Store
	stored []ForeignTransaction
	open   []OpenRequest
	known  map[string]NamedRequest
	read   ForeignScan // as stored
}

func (b *evidenceStore) ForeignScan(_ context.Context, _ Submitter, episode int, _ uint64) (ForeignScan, error) {
	r := b.read
	r.Incident = episode
	return r, nil
}

func (b *evidenceStore) StoreForeignScan(ctx context.Context, l lease.Lease, found []ForeignTransaction, r ForeignScan) error {
	r.MovedAt = dbNow
	b.read = r
	return b.StoreForeignTransactions(ctx, l, found)
}

func (b *evidenceStore) StoreForeignTransactions(_ context.Context, _ lease.Lease, all []ForeignTransaction) error {
	b.stored = append(b.stored, all...)
	return nil
}

func (b *evidenceStore) ForeignTransactions(_ context.Context, _ Submitter, from, below uint64) (found []ForeignTransaction, err error) {
	for _, f := range b.stored {
		if f.Nonce >= from && f.Nonce < below {
			found = append(found, f)
		}
	}
	return found, nil
}

func (b *evidenceStore) OpenRequests(context.Context, Submitter) ([]OpenRequest, error) {
	return b.open, nil
}

func (b *evidenceStore) LostNonces(context.Context, Submitter) (LostNonces, error) {
	return LostNonces{}, nil
}

func (b *evidenceStore) NamedRequests(context.Context, Submitter, []string) (map[string]NamedRequest, error) {
	return b.known, nil
}

// The consuming transaction of an intent's nonce is one node's claim. Other nodes must have its
// receipt before it ends an intent, with or without a name.
func TestConsumingTransactionsNeedAQuorum(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		x := pending(5)
		x.Payload = []byte("call")
		w := stateOf(1, 6, x)
		counts := func(chain ...Header) ChainObservation {
			v := watching(viewOf(w, block('a', 100)), chain...)
			v.FinalCount = new(uint64(6))
			v.Receipts = map[Hash]ReceiptAnswer{x.Versions[0]: {Answer: AnswerNotFound}}
			return v
		}
		a, b := counts(block('a', 95)), counts(block('b', 95))
		for name, c := range map[string]struct {
			views []ChainObservation
			named bool
			want  bool
		}{
			"all have the block":     {ofNodes(a, a, a), false, true},
			"alone with it":          {ofNodes(a, b, b), false, false},
			"alone, and it is named": {ofNodes(a, b, b), true, false}, // the request ends by its receipt
		} {
			p := consumingTxNode{&panel{ChainConnector: reader(nil), views: c.views, quorum: 2},
				ConsumingTx{Hash: Hash{7}, BlockNumber: 95, BlockHash: block('a', 95).Hash, Node: "n0", ValueWei: "12345"}}
			for i := range p.views {
				v := &p.views[i]
				v.Receipts = map[Hash]ReceiptAnswer{x.Versions[0]: {Answer: AnswerNotFound},
					{7}: {Answer: AnswerFound, Receipt: Receipt{TxHash: Hash{7}, BlockNumber: 95, BlockHash: v.HashesAt[95], Succeeded: true}}}
			}
			tn := &incident{leaseSession: &leaseSession{Service: &Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Store: &evidenceStore{}, Timing: testTiming}, chain: p, state: w, began: time.Now()}}
			tn.state.Incident = 1
			l := ReleaseRequest{Count: 6}
			if c.named {
				l.Requests = map[uint64]string{5: "r"}
			}
			_, _, err := tn.planResync(t.Context(), &l, LostNonces{})
			if got := err == nil; got != c.want || err != nil && !errors.Is(err, ErrNoQuorum) {
				t.Errorf("%s: got %v, want released %v", name, err, c.want)
			}
		}
	})
}

// A node below the block of PROTECT's evidence does not show that a reorg freed the nonce.
func TestLaggardFreesNoNonceInProtect(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		x := held(5, Protect, "")
		w := stateOf(1, 6, x)
		w.Protected, w.Evidence = true, &Violation{Kind: NonceConsumed, Block: 100, ExpectedNonce: 5}
		for head, want := range map[uint64]State{99: Protect, 100: Tracking} {
			v := viewOf(w, block('a', head))
			if got := rulesOf(3).evaluate(w, asking(w), v).after[0].State; got != want {
				t.Errorf("head %d: got %s, want %s", head, got, want)
			}
		}
	})
}

// With a quorum of one, a claim waits while another node that answered before does not answer: it
// may disagree. With a larger quorum, one missing answer changes nothing.
func TestNodeWithoutAnswerDelaysAQuorumOfOne(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		x := included(5, block('a', 90))
		w := stateOf(1, 6, x)
		final := finding(viewOf(w, blocks('a', 90, 100)...), receiptOf(x, block('a', 90)))
		silent := ChainObservation{NoAnswer: true}
		for name, c := range map[string]struct {
			quorum int
			views  []ChainObservation
			ends   bool
		}{
			"one of two":                    {1, ofNodes(final, silent), false},
			"one of two, the other is away": {1, ofNodes(final), true},
			"two of three":                  {2, ofNodes(final, watching(final, block('a', 90)), silent), true},
			"one of three":                  {2, ofNodes(final, silent, silent), false},
		} {
			p := &panel{views: c.views, quorum: c.quorum}
			q := asking(w)
			v := looks(t, p, w, q)
			if got := len(rulesOf(3).evaluate(w, q, v).finals) > 0; got != c.ends {
				t.Errorf("%s: got an end %v, want %v", name, got, c.ends)
			}
			if len(p.out) > 0 {
				t.Errorf("%s: got %v left out, want nobody: nothing was contradicted", name, p.out)
			}
		}
	})
}

// The success of a call is not one node's claim either, since a payout may be returned for it. A
// node without the receipt abstains.
func TestSuccessIsNotOneNodesWord(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		x := included(5, block('a', 90))
		w := stateOf(1, 6, x)
		says := func(succeeded bool) ChainObservation {
			rec := receiptOf(x, block('a', 90))
			rec.Succeeded = succeeded
			return finding(watching(viewOf(w, blocks('a', 90, 100)...), block('a', 90)), rec)
		}
		untold := watching(viewOf(w, blocks('a', 90, 100)...), block('a', 90))
		untold.Receipts = nil
		for name, c := range map[string]struct {
			views []ChainObservation
			want  State
		}{
			"all alike":                      {ofNodes(says(true), says(true), says(true)), Confirmed},
			"the first says otherwise":       {ofNodes(says(false), says(true), says(true)), Confirmed},
			"all say that it failed":         {ofNodes(says(false), says(false), says(false)), Failed},
			"one says otherwise, one is mum": {ofNodes(says(false), says(true), untold), Tracking},
			"the others are mum":             {ofNodes(says(true), untold, untold), Tracking},
		} {
			p := &panel{views: c.views, quorum: 2}
			q := asking(w)
			if got := rulesOf(3).evaluate(w, q, looks(t, p, w, q)).after[0].State; got != c.want {
				t.Errorf("%s: got %s, want %s", name, got, c.want)
			}
			if asked := p.saw[0].Receipts; len(asked) != 1 || asked[0] != x.Hash() {
				t.Errorf("%s: asked for the receipts %v, want that of %v", name, asked, x.Hash())
			}
		}
	})
}

// A node with one contradicting receipt disagrees, whatever else it lacks.
func TestAMissingReceiptHidesNoContradiction(t *testing.T) {
	t.Parallel()
	h := block('a', 90)
	mine := []Receipt{receiptOf(included(5, h), h), receiptOf(included(6, h), h)}
	other := mine[1]
	other.Succeeded = !other.Succeeded
	for _, in := range [][]Receipt{{mine[0], mine[1]}, {mine[1], mine[0]}} {
		o := ChainObservation{Head: block('a', 100), HashesAt: map[uint64]Hash{90: h.Hash}, Receipts: map[Hash]ReceiptAnswer{other.TxHash: {Answer: AnswerFound, Receipt: other}}}
		if got := rulesOf(3).agreesOnFinality(h, in)(o); got != disagrees {
			t.Errorf("got vote %v, want it contradicted", got)
		}
	}
}

// failingConsumingTxNode is a panel whose first node fails to give the transaction that consumed a
// nonce.
type failingConsumingTxNode struct {
	*panel
	err error
}

func (p failingConsumingTxNode) FindConsumingTx(context.Context, Submitter, uint64) (ConsumingTx, error) {
	return ConsumingTx{}, p.err
}

// A node that gave no answer is queried again. An operator reads that a consuming transaction is
// unknown only where the node answered that it cannot give it.
func TestANodeWithoutAnAnswerIsAskedAgain(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		x := pending(5)
		x.Payload = []byte("call")
		w := stateOf(1, 6, x)
		var open UnnamedNonceError
		for name, c := range map[string]struct {
			err   error
			again bool
		}{
			"connection refused": {errors.New("dial tcp: connection refused"), true},
			"no answer in time":  {context.DeadlineExceeded, true},
			"not consumed there": {ErrNotConsumed, true},
			"an old state":       {fmt.Errorf("%w: missing trie node", ErrConsumerUnavailable), false},
		} {
			v := watching(viewOf(w, block('a', 100)), block('a', 95))
			v.FinalCount = new(uint64(6))
			v.Receipts = map[Hash]ReceiptAnswer{x.Versions[0]: {Answer: AnswerNotFound}}
			p := failingConsumingTxNode{&panel{ChainConnector: reader(nil), views: ofNodes(v, v, v), quorum: 2}, c.err}
			tn := &incident{leaseSession: &leaseSession{Service: &Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Store: &evidenceStore{}, Timing: testTiming}, chain: p, state: w, began: time.Now()}}
			tn.state.Incident = 1
			_, _, err := tn.planResync(t.Context(), &ReleaseRequest{Count: 6}, LostNonces{})
			if again := errors.Is(err, ErrStillReading); again != c.again || !again && !errors.As(err, &open) {
				t.Errorf("%s: got %v, want to be asked again %v", name, err, c.again)
			}
		}
	})
}
