package nonce

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// broadcastLog relates each broadcast to the writes that had been committed when it
// was made. A commit that stores bytes, or claims a broadcast, pays for one.
type broadcastLog struct {
	claims     map[string]int // committed and not yet used, by bytes
	sent       []string
	unclaimed  []string // sent without a claim that had been committed
	allocated  int      // of how many allocations a commit binds; -1: all
	failClaims bool     // no write that stores or claims is committed
}

var errNotCommitted = errors.New("the commit did not happen")

// claimsOf are the bytes whose broadcast w claims, once it is committed.
func claimsOf(w Write) (all []string) {
	for _, a := range w.Allocate {
		if a.Signed != nil {
			all = append(all, string(a.Signed.Raw))
		}
	}
	for _, v := range w.Store {
		all = append(all, string(v.Signed.Raw))
	}
	for _, m := range w.Moves {
		if m.To.claimed() {
			all = append(all, string(m.To.Raw))
		}
	}
	return all
}

// committingStore commits what it is given, unless the log says that it fails.
type committingStore struct {
	Book
	*broadcastLog
}

func (s committingStore) Write(_ context.Context, w Write) (Written, error) {
	if s.allocated >= 0 {
		w.Allocate = w.Allocate[:min(s.allocated, len(w.Allocate))]
	}
	if s.failClaims && len(claimsOf(w)) > 0 {
		return Written{}, errNotCommitted
	}
	for _, raw := range claimsOf(w) {
		s.claims[raw]++
	}
	return Written{Moved: len(w.Moves), Allocated: len(w.Allocate), Released: w.Release != Keep, Token: w.Lease.Token}, nil
}

// answeringChain is a node that answers each broadcast with one class. It has no
// receipt, and knows the hashes in known.
type answeringChain struct {
	payloads
	*broadcastLog
	work   Work
	answer SendClass
	known  []Hash
	looks  *[]Look
	fails  bool // no look is answered
}

func (c answeringChain) Look(_ context.Context, q Look) (View, error) {
	if *c.looks = append(*c.looks, q); c.fails {
		return View{}, errors.New("no answer")
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
func iterationOf(w Work, inProcess bool, answer SendClass) (*tenure, *broadcastLog, *answeringChain) {
	log := &broadcastLog{claims: map[string]int{}, allocated: -1}
	chain := &answeringChain{payloads: reader(nil), broadcastLog: log, work: w, answer: answer, looks: new([]Look)}
	worker := &Worker{Book: committingStore{broadcastLog: log}, Signer: numberSigner{inProcess}, Rules: rulesOf(3), Node: "node-1", Log: slog.New(slog.DiscardHandler)}
	return &tenure{Worker: worker, chain: chain, kind: KindAdvance, work: w, began: time.Now()}, log, chain
}

// Bytes go out only after the commit that stores them and claims their first
// broadcast; bytes that were sent before, only after the commit that claims one more.
func TestNothingIsBroadcastBeforeTheCommitThatClaimsIt(t *testing.T) {
	t.Parallel()
	overdue, ordered := pending(5), pending(5)
	overdue.NextResubmitAt, ordered.Ordered = ago(time.Second), OrderCancel
	for _, c := range []struct {
		name      string
		work      func() Work // in the time of the bubble
		inProcess bool
		want      string // the bytes that go out
	}{
		{"first broadcast, signed before the nonce is bound", func() Work { return queue(workOf(2, 5), queued(1, "pay"), queued(2, "pay")) }, true, "s\x05 s\x06"},
		{"first broadcast, signed once the nonce is bound", func() Work { return queue(workOf(2, 5), queued(1, "pay"), queued(2, "pay")) }, false, "s\x05 s\x06"},
		{"first broadcast of a nonce bound before", func() Work { return workOf(1, 6, bare(5)) }, false, "s\x05"},
		{"a further version", func() Work { return workOf(1, 6, ordered) }, true, "s\x05"},
		{"the same bytes again", func() Work { return workOf(1, 6, overdue) }, true, "\x05"},
	} {
		frozen(t, func(t *testing.T) {
			tn, log, _ := iterationOf(c.work(), c.inProcess, SendAccepted)
			if _, err := tn.round(t.Context()); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if got := strings.Join(log.sent, " "); got != c.want || len(log.unclaimed) > 0 {
				t.Errorf("%s: sent %q, of these before their claim was committed %q; want %q, none", c.name, got, log.unclaimed, c.want)
			}
		})
		frozen(t, func(t *testing.T) {
			tn, log, _ := iterationOf(c.work(), c.inProcess, SendAccepted)
			log.failClaims = true
			if _, err := tn.round(t.Context()); !errors.Is(err, errNotCommitted) || len(log.sent) > 0 {
				t.Errorf("%s, whose commit fails: got %v, sent %q; want that error, and nothing sent", c.name, err, log.sent)
			}
		})
	}
}

// Of several allocations only those that the commit has bound are sent.
func TestBytesThatTheCommitDidNotBindAreNotBroadcast(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		tn, log, _ := iterationOf(queue(workOf(2, 5), queued(1, "pay"), queued(2, "pay")), true, SendAccepted)
		log.allocated = 1
		if _, err := tn.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(log.sent, " "); got != "s\x05" || len(log.unclaimed) > 0 {
			t.Errorf("two asked for, one bound: sent %q, without a claim %q; want the first alone", got, log.unclaimed)
		}
	})
}

// H10: after "nonce too low" the chain is asked about every version. Only a chain
// that knows one makes it a success; without an answer it is none.
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
			x := claim(submitted(5), dbNow)
			x.Versions = append(x.Versions, versionHash(5, 2))
			tn, log, chain := iterationOf(workOf(1, 6, x), true, c.answer)
			chain.known, chain.fails = c.known, c.fails
			log.claims[string(x.Raw)] = 1
			if _, err := tn.send(t.Context(), []string{x.ID}, []string{x.ID}, block('a', 100)); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			asked := 0
			for _, q := range *chain.looks {
				asked += len(q.Known)
			}
			if got := tn.work.Unsettled[0].State; got != c.want || asked != c.asked {
				t.Errorf("%s: got %s after %d versions were asked about; want %s, %d", c.name, got, asked, c.want, c.asked)
			}
		})
	}
}
