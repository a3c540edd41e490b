package txmanager

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"
)

// slow is a slow signer, in this process or outside.
type slow struct {
	took   time.Duration
	inside bool
	asked  *[]uint64
}

func (s slow) Sign(ctx context.Context, _ Submitter, tx Unsigned) (Signed, error) {
	*s.asked = append(*s.asked, tx.Nonce)
	select {
	case <-time.After(s.took): // in the time of the bubble
	case <-ctx.Done():
	}
	return Signed{Hash: versionHash(tx.Nonce, 1), Raw: []byte{1}}, nil
}
func (s slow) InProcess(Submitter) bool { return s.inside }

// stores keeps each commit, and reports that all of it was.
type stores struct {
	Store
	writes *[]Commit
}

func (s stores) Commit(_ context.Context, w Commit) (CommitResult, error) {
	*s.writes = append(*s.writes, w)
	return CommitResult{Transitioned: len(w.Transitions), Allocated: len(w.Allocations)}, nil
}

// A slow signer must not use up the invocation on a wide window. The signed versions are stored
// and sent; the next iteration, which follows at once, signs the rest.
func TestSlowSignerSignsWhatFitsInAnIteration(t *testing.T) {
	t.Parallel()
	const window = 8
	frozen(t, func(t *testing.T) {
		var asked []uint64
		var queue8 []Tx
		for seq := range int64(window) {
			queue8 = append(queue8, queued(seq+1, "pay"))
		}
		w := queue(stateOf(window, 5), queue8...)
		worker := &Worker{Service: Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Timing: testTiming}, Limits: Limits2{SignTimeout: 5 * time.Second}, Signer: slow{2 * time.Second, true, &asked}}
		tn := queried(invocationBy(worker, leaseSession{chain: reader(nil), kind: KindAdvance, state: w}))
		p := tn.planUnsigned(t.Context(), viewOf(w, block('a', 100)))
		if len(asked) != 3 || len(p.allocations) != 3 || len(p.transitions) != 0 {
			t.Errorf("of 8, by 2 s each, 5 s at most: got nonces %v asked for, %s; want the first 3, allocated with their bytes, and nothing said of the rest", asked, outline(p))
		}
		if after := w.afterCommit(Commit{Lease: w.Lease, Allocations: p.allocations}); len(after.Queue) != window-3 {
			t.Errorf("queue after it: got %d, want 5", len(after.Queue))
		}
	})
	frozen(t, func(t *testing.T) {
		var asked []uint64
		var writes []Commit
		var held []Tx
		for n := range uint64(window) {
			held = append(held, bare(5+n))
		}
		w := stateOf(window, 5+window, held...)
		worker := &Worker{Service: Service{Store: stores{writes: &writes}, Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Timing: testTiming}, Limits: Limits2{SignTimeout: 5 * time.Second}, Signer: slow{2 * time.Second, false, &asked}}
		tn := invocationBy(worker, leaseSession{chain: reader(nil), kind: KindAdvance, state: w})
		ids, err := tn.signDueVersions(t.Context(), viewOf(w, block('a', 100)))
		if err != nil || len(asked) != 3 || len(ids) != 3 || len(writes) != 1 || len(writes[0].Versions) != 3 || len(writes[0].Transitions) != 0 {
			t.Errorf("of 8, by 2 s each, 5 s at most: got nonces %v asked for, %v to be sent, %v; want the first 3, stored in one write", asked, ids, err)
		}
		for i, x := range tn.state.Open[:len(ids)] { // as a node has them afterwards
			tn.state.Open[i] = tn.Rules.afterBroadcast(x, SendResult{Class: SendAccepted}, block('a', 100), w.now())
		}
		if !tn.Rules.planNextWork(tn.state).advanceNow {
			t.Error("the rest: got it left for later, want it due at once")
		}
	})
}

// crowd is a signer that takes a second, counts its concurrent signatures, and gives no answer for
// one nonce.
type crowd struct {
	inside  bool
	refuses uint64

	mu        sync.Mutex
	now, most int
	asked     []uint64
}

func (c *crowd) Sign(_ context.Context, _ Submitter, tx Unsigned) (Signed, error) {
	c.mu.Lock()
	c.now++
	c.most, c.asked = max(c.most, c.now), append(c.asked, tx.Nonce)
	c.mu.Unlock()
	time.Sleep(time.Second + time.Duration(100-tx.Nonce)*time.Millisecond) // the higher nonce answers first; in the time of the bubble
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now--; tx.Nonce == c.refuses {
		return Signed{}, errors.New("no answer")
	}
	return Signed{Hash: versionHash(tx.Nonce, 1), Raw: []byte{byte(tx.Nonce)}}, nil
}
func (c *crowd) InProcess(Submitter) bool { return c.inside }

// signs requests signatures for eight queued intents, from nonce 5 on, or for eight bound nonces,
// and returns the signed nonces.
func (c *crowd) signs(t *testing.T, l Limits2, bound bool) (nonces []uint64) {
	t.Helper()
	const window = 8
	var writes []Commit
	worker := &Worker{Service: Service{Store: stores{writes: &writes}, Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Timing: testTiming}, Limits: l, Signer: c}
	if bound {
		var held []Tx
		for n := range uint64(window) {
			held = append(held, bare(5+n))
		}
		w := stateOf(window, 5+window, held...)
		tn := invocationBy(worker, leaseSession{chain: reader(nil), kind: KindAdvance, state: w})
		if _, err := tn.signDueVersions(t.Context(), viewOf(w, block('a', 100))); err != nil {
			t.Fatal(err)
		}
		for _, v := range writes[0].Versions {
			nonces = append(nonces, uint64(v.Signed.Raw[0]))
		}
		return nonces
	}
	var all []Tx
	for seq := range int64(window) {
		all = append(all, queued(seq+1, "pay"))
	}
	w := queue(stateOf(window, 5), all...)
	tn := queried(invocationBy(worker, leaseSession{chain: reader(nil), kind: KindAdvance, state: w}))
	for _, a := range tn.planUnsigned(t.Context(), viewOf(w, block('a', 100))).allocations {
		if a.Signed == nil || uint64(a.Signed.Raw[0]) != a.Nonce {
			t.Errorf("nonce %d: got other bytes than those that were signed for it", a.Nonce)
		}
		nonces = append(nonces, a.Nonce)
	}
	return nonces
}

// Signatures are made concurrently, as many as the rules allow, and kept in nonce order. A missing
// one excludes all above it. A signer outside this process gets one request at a time.
func TestSignaturesAreMadeConcurrently(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		inside  bool
		most    int
		refuses uint64
		atOnce  int
		signed  []uint64
	}{
		"three at once":           {true, 3, 0, 3, []uint64{5, 6, 7, 8, 9, 10, 11, 12}},
		"more than there are":     {true, 100, 0, 8, []uint64{5, 6, 7, 8, 9, 10, 11, 12}},
		"the fourth is missing":   {true, 3, 8, 3, []uint64{5, 6, 7}},
		"the first is missing":    {true, 8, 5, 8, nil},
		"a service that sees all": {false, 3, 0, 1, []uint64{5, 6, 7, 8, 9, 10, 11, 12}},
	} {
		frozen(t, func(t *testing.T) {
			l := Limits2{SignParallel: c.most, SignTimeout: time.Hour}
			for _, bound := range []bool{true, false} {
				if !c.inside && !bound { // its nonces are bound first
					continue
				}
				signer := &crowd{inside: c.inside, refuses: c.refuses}
				if got := signer.signs(t, l, bound); !slices.Equal(got, c.signed) || signer.most != c.atOnce {
					t.Errorf("%s, bound %v: got %v signed, %d at once; want %v, %d", name, bound, got, signer.most, c.signed, c.atOnce)
				}
			}
		})
	}
}
