package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session/sessiontest"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// stores keeps each commit, and reports that all of it was.
type stores struct {
	txmanager.Store
	writes *[]txmanager.Commit
}

func (s stores) Commit(_ context.Context, w txmanager.Commit) (txmanager.CommitResult, error) {
	*s.writes = append(*s.writes, w)
	return txmanager.CommitResult{Transitioned: len(w.Transitions), Allocated: len(w.Allocations)}, nil
}

const window = 8

// fullQueue has as many queued intents as its window has room.
func fullQueue() txmanager.SubmitterState {
	var queue []txmanager.Tx
	for seq := range int64(window) {
		queue = append(queue, txtest.Queued(seq+1, "pay"))
	}
	return txtest.Queue(txtest.StateOf(window, 5), queue...)
}

// fullWindow has a window of bound nonces without a signed version.
func fullWindow() txmanager.SubmitterState {
	var held []txmanager.Tx
	for n := range uint64(window) {
		held = append(held, txtest.Bare(5+n))
	}
	return txtest.StateOf(window, 5+window, held...)
}

// A slow signer must not use up the invocation on a wide window. The signed versions are stored
// and sent; the next iteration, which follows at once, signs the rest.
func TestSlowSignerSignsWhatFitsInAnIteration(t *testing.T) {
	t.Parallel()
	limits := Limits{SignTimeout: 5 * time.Second}
	slow := func(asked *[]uint64) func(uint64) (txmanager.Signed, error) {
		return func(nonce uint64) (txmanager.Signed, error) {
			*asked = append(*asked, nonce)
			time.Sleep(2 * time.Second) // in the time of the bubble
			return txmanager.Signed{Hash: txtest.VersionHash(nonce, 1), Raw: []byte{1}}, nil
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var asked []uint64
		w := fullQueue()
		tn := advancing(&Worker{Service: sessiontest.Service(rulesOf(3), nil), Limits: limits, SignerNamed: testSigner{true, slow(&asked)}.named}, w)
		p := tn.planUnsigned(t.Context(), txtest.ViewOf(w, txtest.Block('a', 100)), true)
		if len(asked) != 3 || len(p.Allocations) != 3 || len(p.Transitions) != 0 {
			t.Errorf("of 8, by 2 s each, 5 s at most: got nonces %v asked for, %s; want the first 3, allocated with their bytes, and nothing said of the rest", asked, outline(p))
		}
		after := rules.AfterCommit(w, txmanager.Commit{Lease: w.Lease, Allocations: p.Allocations})
		check.Equal(t, "queue after it", len(after.Queue), window-3)
	})
	synctest.Test(t, func(t *testing.T) {
		var asked []uint64
		var writes []txmanager.Commit
		w := fullWindow()
		tn := advancing(&Worker{Service: sessiontest.Service(rulesOf(3), stores{writes: &writes}), Limits: limits, SignerNamed: testSigner{false, slow(&asked)}.named}, w)
		ids, _, err := tn.signDueVersions(t.Context(), txtest.ViewOf(w, txtest.Block('a', 100)), nil)
		if err != nil || len(asked) != 3 || len(ids) != 3 || len(writes) != 1 || len(writes[0].Versions) != 3 || len(writes[0].Transitions) != 0 {
			t.Errorf("of 8, by 2 s each, 5 s at most: got nonces %v asked for, %v to be sent, %v; want the first 3, stored in one write", asked, ids, err)
		}
		for i, x := range tn.State.Open[:len(ids)] { // as a node has them afterwards
			tn.State.Open[i] = tn.Rules.AfterBroadcast(x, txmanager.SendResult{Class: txmanager.SendAccepted}, txtest.Block('a', 100), w.DatabaseTime())
		}
		check.Equal(t, "the rest is due at once", tn.Rules.PlanNextWork(tn.State).AdvanceNow, true)
	})
}

// crowd is a signer that takes a second, counts its concurrent signatures, and gives no answer for
// one nonce.
type crowd struct {
	inside  bool
	refuses uint64

	mu        sync.Mutex
	now, most int
}

func (c *crowd) Sign(_ context.Context, _ txmanager.Submitter, tx txmanager.Unsigned) (txmanager.Signed, error) {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	time.Sleep(time.Second + time.Duration(100-tx.Nonce)*time.Millisecond) // the higher nonce answers first; in the time of the bubble
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now--; tx.Nonce == c.refuses {
		return txmanager.Signed{}, errors.New("no answer")
	}
	return txmanager.Signed{Hash: txtest.VersionHash(tx.Nonce, 1), Raw: []byte{byte(tx.Nonce)}}, nil
}

func (c *crowd) InProcess(txmanager.Submitter) bool { return c.inside }

// signs requests signatures for eight queued intents, from nonce 5 on, or for eight bound nonces,
// and returns the signed nonces.
func (c *crowd) signs(t *testing.T, l Limits, bound bool) (nonces []uint64) {
	t.Helper()
	var writes []txmanager.Commit
	worker := &Worker{Service: sessiontest.Service(rulesOf(3), stores{writes: &writes}), Limits: l, SignerNamed: func(string) txmanager.Signer { return c }}
	if bound {
		w := fullWindow()
		check.OK(t)(advancing(worker, w).signDueVersions(t.Context(), txtest.ViewOf(w, txtest.Block('a', 100)), nil))
		for _, v := range writes[0].Versions {
			nonces = append(nonces, uint64(v.Signed.Raw[0]))
		}
		return nonces
	}
	w := fullQueue()
	for _, a := range advancing(worker, w).planUnsigned(t.Context(), txtest.ViewOf(w, txtest.Block('a', 100)), true).Allocations {
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
		synctest.Test(t, func(t *testing.T) {
			l := Limits{SignParallel: c.most, SignTimeout: time.Hour}
			for _, bound := range []bool{true, false} {
				if !c.inside && !bound { // its nonces are bound first
					continue
				}
				signer := &crowd{inside: c.inside, refuses: c.refuses}
				check.Same(t, fmt.Sprintf("%s, bound %v: signed", name, bound), signer.signs(t, l, bound), c.signed)
				check.Equal(t, fmt.Sprintf("%s, bound %v: at once", name, bound), signer.most, c.atOnce)
			}
		})
	}
}
