package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/session/sessiontest"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// broadcastLog relates each broadcast to the commits before it. A commit that stores bytes, or
// claims a broadcast, covers one broadcast.
type broadcastLog struct {
	claims     map[string]int // committed and not yet used, by bytes
	sent       []string
	unclaimed  []string // sent without a claim that had been committed
	allocated  int      // of how many allocations a commit binds; -1: all
	failClaims bool     // no write that stores or claims is committed

	committed []txmanager.Transition
}

var errNotCommitted = errors.New("the commit did not happen")

// claimsOf are the bytes whose broadcast w claims, once it is committed.
func claimsOf(w txmanager.Commit) (all []string) {
	for _, a := range w.Allocations {
		if a.Signed != nil {
			all = append(all, string(a.Signed.Raw))
		}
	}
	for _, v := range w.Versions {
		all = append(all, string(v.Signed.Raw))
	}
	for _, m := range w.Transitions {
		if m.To.IsBroadcastClaimed() {
			all = append(all, string(m.To.Raw))
		}
	}
	return all
}

// committingStore commits what it gets, unless the log says that it fails.
type committingStore struct {
	txmanager.Store
	*broadcastLog
}

func (s committingStore) Commit(_ context.Context, w txmanager.Commit) (txmanager.CommitResult, error) {
	if s.allocated >= 0 {
		w.Allocations = w.Allocations[:min(s.allocated, len(w.Allocations))]
	}
	if s.failClaims && len(claimsOf(w)) > 0 {
		return txmanager.CommitResult{}, errNotCommitted
	}
	for _, raw := range claimsOf(w) {
		s.claims[raw]++
	}
	s.committed = append(s.committed, w.Transitions...)
	return txmanager.CommitResult{Transitioned: len(w.Transitions), Allocated: len(w.Allocations), Released: w.LeaseEnd != txmanager.KeepLease, Token: w.Lease.Token}, nil
}

// answeringChain is a node that answers each broadcast with one class. It has no
// receipt, and knows the hashes in known.
type answeringChain struct {
	txtest.Payloads
	*broadcastLog
	work   txmanager.SubmitterState
	answer txmanager.SendClass
	known  []txmanager.Hash
	looks  *[]txmanager.ChainQuery
	fails  bool // no query is answered
}

func (c answeringChain) Query(_ context.Context, q txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	if *c.looks = append(*c.looks, q); c.fails {
		return txmanager.ChainObservation{}, errors.New("no answer")
	}
	v := txtest.ViewOf(c.work, txtest.Block('a', 100))
	v.Estimates, v.SelfTransfer = make([]txmanager.Estimate, len(q.Estimates)), txtest.Estimated(21_000)
	v.Known = make(map[txmanager.Hash]txmanager.Answer)
	for _, h := range q.Known {
		if v.Known[h] = txmanager.AnswerNotFound; slices.Contains(c.known, h) {
			v.Known[h] = txmanager.AnswerFound
		}
	}
	return v, nil
}

func (c answeringChain) Send(_ context.Context, raws [][]byte) (results []txmanager.SendResult) {
	for _, raw := range raws {
		c.sent = append(c.sent, string(raw))
		if c.claims[string(raw)]--; c.claims[string(raw)] < 0 {
			c.unclaimed = append(c.unclaimed, string(raw))
		}
		results = append(results, txmanager.SendResult{Class: c.answer, Node: "node-1", Text: "the node's words"})
	}
	return results
}

// iterationOf is a lease session over w, with a chain and a store that keep one log.
func iterationOf(w txmanager.SubmitterState, inProcess bool, answer txmanager.SendClass) (*invocation, *broadcastLog, *answeringChain) {
	log := &broadcastLog{claims: map[string]int{}, allocated: -1}
	chain := &answeringChain{Payloads: txtest.Reader(nil), broadcastLog: log, work: w, answer: answer, looks: new([]txmanager.ChainQuery)}
	worker := &Worker{Service: sessiontest.Service(rulesOf(3), committingStore{broadcastLog: log}), SignerNamed: testSigner{inProcess, signsNonce}.named}
	worker.Node = "node-1"
	return invocationBy(worker, session.Session{Chain: chain, Kind: txmanager.KindAdvance, State: w, Began: time.Now()}), log, chain
}

// Bytes are sent only after the commit that stores them and claims their first broadcast. A
// rebroadcast needs a commit that claims one more.
func TestNothingIsBroadcastBeforeTheCommitThatClaimsIt(t *testing.T) {
	t.Parallel()
	overdue, ordered := txtest.Pending(5), txtest.Pending(5)
	overdue.NextResubmitAt, ordered.RequestedAction = txtest.Ago(time.Second), txmanager.ActionCancel
	two := func() txmanager.SubmitterState {
		return txtest.Queue(txtest.StateOf(2, 5), txtest.Queued(1, "pay"), txtest.Queued(2, "pay"))
	}
	for _, c := range []struct {
		name      string
		work      func() txmanager.SubmitterState
		inProcess bool
		want      string // the bytes that go out
	}{
		{"first broadcast, signed before the nonce is bound", two, true, "s\x05 s\x06"},
		{"first broadcast, signed once the nonce is bound", two, false, "s\x05 s\x06"},
		{"first broadcast of a nonce bound before", func() txmanager.SubmitterState { return txtest.StateOf(1, 6, txtest.Bare(5)) }, false, "s\x05"},
		{"a further version", func() txmanager.SubmitterState { return txtest.StateOf(1, 6, ordered) }, true, "s\x05"},
		{"the same bytes again", func() txmanager.SubmitterState { return txtest.StateOf(1, 6, overdue) }, true, "\x05"},
	} {
		tn, log, _ := iterationOf(c.work(), c.inProcess, txmanager.SendAccepted)
		tn.Tasks = &taskLog{}
		check.OK(t)(tn.runFrom(t.Context(), tn.iterate))
		if got := strings.Join(log.sent, " "); got != c.want || len(log.unclaimed) > 0 {
			t.Errorf("%s: sent %q, of these before their claim was committed %q; want %q, none", c.name, got, log.unclaimed, c.want)
		}
		tn, log, _ = iterationOf(c.work(), c.inProcess, txmanager.SendAccepted)
		log.failClaims = true
		if _, err := tn.iterate(t.Context(), false); !errors.Is(err, errNotCommitted) || len(log.sent) > 0 {
			t.Errorf("%s, whose commit fails: got %v, sent %q; want that error, and nothing sent", c.name, err, log.sent)
		}
	}
}

// The commit of an evaluation names the node that was queried, and the commit of a broadcast's outcome its answers. The
// answers are those of the nodes, also if the chain then shows that "nonce too low" was about our own bytes.
func TestCommitsNameTheNodes(t *testing.T) {
	t.Parallel()
	for class, known := range map[txmanager.SendClass][]txmanager.Hash{txmanager.SendAccepted: nil, txmanager.SendNonceTooLow: {txtest.VersionHash(5, 1)}} {
		overdue := txtest.Pending(5)
		overdue.NextResubmitAt = txtest.Ago(time.Second)
		tn, log, chain := iterationOf(txtest.StateOf(1, 6, overdue), true, class)
		chain.known = known
		check.OK(t)(tn.iterate(t.Context(), false))
		want := []txmanager.NodeAnswer{{Node: "node-1", Class: class}}
		if c := log.committed; len(c) != 2 || c[0].Node != "node-1" || c[0].Answers != nil || c[1].Node != "" || !slices.Equal(c[1].Answers, want) {
			t.Errorf("%s: got %+v, want the claim by node-1 and then its answer", class, c)
		}
	}
}

// Of several allocations only those that the commit bound are sent.
func TestBytesThatTheCommitDidNotBindAreNotBroadcast(t *testing.T) {
	t.Parallel()
	tn, log, _ := iterationOf(txtest.Queue(txtest.StateOf(2, 5), txtest.Queued(1, "pay"), txtest.Queued(2, "pay")), true, txmanager.SendAccepted)
	log.allocated = 1
	check.OK(t)(tn.iterate(t.Context(), false))
	if got := strings.Join(log.sent, " "); got != "s\x05" || len(log.unclaimed) > 0 {
		t.Errorf("two asked for, one bound: sent %q, without a claim %q; want the first alone", got, log.unclaimed)
	}
}

// H10: after "nonce too low" the chain is queried about every version. Only a chain that knows one
// makes it a success; without an answer it is none.
func TestH10NonceTooLowIsPutToTheChain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		answer txmanager.SendClass
		known  []txmanager.Hash
		fails  bool
		want   txmanager.State
		asked  int // versions that the chain is asked about
	}{
		{"it knows none", txmanager.SendNonceTooLow, nil, false, txmanager.Submitted, 2},
		{"it does not answer", txmanager.SendNonceTooLow, nil, true, txmanager.Submitted, 2},
		{"it knows another transaction", txmanager.SendNonceTooLow, []txmanager.Hash{txtest.VersionHash(5, 9)}, false, txmanager.Submitted, 2},
		{"it knows the first version", txmanager.SendNonceTooLow, []txmanager.Hash{txtest.VersionHash(5, 1)}, false, txmanager.Tracking, 2},
		{"it knows the last version", txmanager.SendNonceTooLow, []txmanager.Hash{txtest.VersionHash(5, 2)}, false, txmanager.Tracking, 2},
		{"accepted: there is nothing to ask", txmanager.SendAccepted, nil, false, txmanager.Tracking, 0},
	} {
		x := rules.ClaimBroadcast(txtest.Submitted(5), txtest.Now)
		x.Versions = append(x.Versions, txtest.VersionHash(5, 2))
		tn, log, chain := iterationOf(txtest.StateOf(1, 6, x), true, c.answer)
		chain.known, chain.fails = c.known, c.fails
		log.claims[string(x.Raw)] = 1
		check.OK(t)(tn.broadcast(t.Context(), []string{x.ID}, []string{x.ID}, txtest.Block('a', 100)))
		asked := 0
		for _, q := range *chain.looks {
			asked += len(q.Known)
		}
		check.Equal(t, c.name, tn.State.Open[0].State, c.want)
		check.Equal(t, c.name+": versions asked about", asked, c.asked)
	}
}
