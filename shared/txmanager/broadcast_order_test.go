package txmanager

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// broadcastLog relates each broadcast to the commits before it. A commit that stores bytes, or
// claims a broadcast, covers one broadcast.
type broadcastLog struct {
	claims     map[string]int // committed and not yet used, by bytes
	sent       []string
	unclaimed  []string // sent without a claim that had been committed
	allocated  int      // of how many allocations a commit binds; -1: all
	failClaims bool     // no write that stores or claims is committed
}

var errNotCommitted = errors.New("the commit did not happen")

// claimsOf are the bytes whose broadcast w claims, once it is committed.
func claimsOf(w Commit) (all []string) {
	for _, a := range w.Allocations {
		if a.Signed != nil {
			all = append(all, string(a.Signed.Raw))
		}
	}
	for _, v := range w.Versions {
		all = append(all, string(v.Signed.Raw))
	}
	for _, m := range w.Transitions {
		if m.To.isBroadcastClaimed() {
			all = append(all, string(m.To.Raw))
		}
	}
	return all
}

// committingStore commits what it gets, unless the log says that it fails.
type committingStore struct {
	Store
	*broadcastLog
}

func (s committingStore) Commit(_ context.Context, w Commit) (CommitResult, error) {
	if s.allocated >= 0 {
		w.Allocations = w.Allocations[:min(s.allocated, len(w.Allocations))]
	}
	if s.failClaims && len(claimsOf(w)) > 0 {
		return CommitResult{}, errNotCommitted
	}
	for _, raw := range claimsOf(w) {
		s.claims[raw]++
	}
	return CommitResult{Transitioned: len(w.Transitions), Allocated: len(w.Allocations), Released: w.LeaseEnd != KeepLease, Token: w.Lease.Token}, nil
}

// answeringChain is a node that answers each broadcast with one class. It has no
// receipt, and knows the hashes in known.
type answeringChain struct {
	payloads
	*broadcastLog
	work   SubmitterState
	answer SendClass
	known  []Hash
	looks  *[]ChainQuery
	fails  bool // no query is answered
}

func (c answeringChain) Query(_ context.Context, q ChainQuery) (ChainObservation, error) {
	if *c.looks = append(*c.looks, q); c.fails {
		return ChainObservation{}, errors.New("no answer")
	}
	v := viewOf(c.work, block('a', 100))
	v.Estimates, v.SelfTransfer = make([]Estimate, len(q.Estimates)), estimated(21_000)
	v.Known = make(map[Hash]Answer)
	for _, h := range q.Known {
		if v.Known[h] = AnswerNotFound; slices.Contains(c.known, h) {
			v.Known[h] = AnswerFound
		}
	}
	return v, nil
}

func (c answeringChain) Send(_ context.Context, raws [][]byte) (results []SendResult) {
	for _, raw := range raws {
		c.sent = append(c.sent, string(raw))
		if c.claims[string(raw)]--; c.claims[string(raw)] < 0 {
			c.unclaimed = append(c.unclaimed, string(raw))
		}
		results = append(results, SendResult{Class: c.answer, Node: "node-1", Text: "the node's words"})
	}
	return results
}

// numberSigner signs with bytes that name the nonce.
type numberSigner struct{ inProcess bool }

func (s numberSigner) Sign(_ context.Context, _ Submitter, tx Unsigned) (Signed, error) {
	return Signed{Hash: versionHash(tx.Nonce, 2), Raw: []byte{'s', byte(tx.Nonce)}}, nil
}
func (s numberSigner) InProcess(Submitter) bool { return s.inProcess }

// iterationOf is a lease session over w, with a chain and a store that keep one log.
func iterationOf(w SubmitterState, inProcess bool, answer SendClass) (*invocation, *broadcastLog, *answeringChain) {
	log := &broadcastLog{claims: map[string]int{}, allocated: -1}
	chain := &answeringChain{payloads: reader(nil), broadcastLog: log, work: w, answer: answer, looks: new([]ChainQuery)}
	worker := &Worker{Service: Service{Store: committingStore{broadcastLog: log}, Rules: rulesOf(3), Node: "node-1", Log: slog.New(slog.DiscardHandler), Timing: testTiming}, Signer: numberSigner{inProcess}}
	return invocationBy(worker, leaseSession{chain: chain, kind: KindAdvance, state: w, began: time.Now()}), log, chain
}

// Bytes are sent only after the commit that stores them and claims their first broadcast. A
// rebroadcast needs a commit that claims one more.
func TestNothingIsBroadcastBeforeTheCommitThatClaimsIt(t *testing.T) {
	t.Parallel()
	overdue, ordered := pending(5), pending(5)
	overdue.NextResubmitAt, ordered.RequestedAction = ago(time.Second), ActionCancel
	for _, c := range []struct {
		name      string
		work      func() SubmitterState // in the time of the bubble
		inProcess bool
		want      string // the bytes that go out
	}{
		{"first broadcast, signed before the nonce is bound", func() SubmitterState { return queue(stateOf(2, 5), queued(1, "pay"), queued(2, "pay")) }, true, "s\x05 s\x06"},
		{"first broadcast, signed once the nonce is bound", func() SubmitterState { return queue(stateOf(2, 5), queued(1, "pay"), queued(2, "pay")) }, false, "s\x05 s\x06"},
		{"first broadcast of a nonce bound before", func() SubmitterState { return stateOf(1, 6, bare(5)) }, false, "s\x05"},
		{"a further version", func() SubmitterState { return stateOf(1, 6, ordered) }, true, "s\x05"},
		{"the same bytes again", func() SubmitterState { return stateOf(1, 6, overdue) }, true, "\x05"},
	} {
		frozen(t, func(t *testing.T) {
			tn, log, _ := iterationOf(c.work(), c.inProcess, SendAccepted)
			if _, err := tn.iterate(t.Context()); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if got := strings.Join(log.sent, " "); got != c.want || len(log.unclaimed) > 0 {
				t.Errorf("%s: sent %q, of these before their claim was committed %q; want %q, none", c.name, got, log.unclaimed, c.want)
			}
		})
		frozen(t, func(t *testing.T) {
			tn, log, _ := iterationOf(c.work(), c.inProcess, SendAccepted)
			log.failClaims = true
			if _, err := tn.iterate(t.Context()); !errors.Is(err, errNotCommitted) || len(log.sent) > 0 {
				t.Errorf("%s, whose commit fails: got %v, sent %q; want that error, and nothing sent", c.name, err, log.sent)
			}
		})
	}
}

// Of several allocations only those that the commit bound are sent.
func TestBytesThatTheCommitDidNotBindAreNotBroadcast(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		tn, log, _ := iterationOf(queue(stateOf(2, 5), queued(1, "pay"), queued(2, "pay")), true, SendAccepted)
		log.allocated = 1
		if _, err := tn.iterate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(log.sent, " "); got != "s\x05" || len(log.unclaimed) > 0 {
			t.Errorf("two asked for, one bound: sent %q, without a claim %q; want the first alone", got, log.unclaimed)
		}
	})
}

// H10: after "nonce too low" the chain is queried about every version. Only a chain that knows one
// makes it a success; without an answer it is none.
func TestH10NonceTooLowIsPutToTheChain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		answer SendClass
		known  []Hash
		fails  bool
		want   State
		asked  int // versions that the chain is asked about
	}{
		{"it knows none", SendNonceTooLow, nil, false, Submitted, 2},
		{"it does not answer", SendNonceTooLow, nil, true, Submitted, 2},
		{"it knows another transaction", SendNonceTooLow, []Hash{versionHash(5, 9)}, false, Submitted, 2},
		{"it knows the first version", SendNonceTooLow, []Hash{versionHash(5, 1)}, false, Tracking, 2},
		{"it knows the last version", SendNonceTooLow, []Hash{versionHash(5, 2)}, false, Tracking, 2},
		{"accepted: there is nothing to ask", SendAccepted, nil, false, Tracking, 0},
	} {
		frozen(t, func(t *testing.T) {
			x := claimBroadcast(submitted(5), dbNow)
			x.Versions = append(x.Versions, versionHash(5, 2))
			tn, log, chain := iterationOf(stateOf(1, 6, x), true, c.answer)
			chain.known, chain.fails = c.known, c.fails
			log.claims[string(x.Raw)] = 1
			if _, err := tn.broadcast(t.Context(), []string{x.ID}, []string{x.ID}, block('a', 100)); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			asked := 0
			for _, q := range *chain.looks {
				asked += len(q.Known)
			}
			if got := tn.state.Open[0].State; got != c.want || asked != c.asked {
				t.Errorf("%s: got %s after %d versions were asked about; want %s, %d", c.name, got, asked, c.want, c.asked)
			}
		})
	}
}
