package txmanager

import (
	"context"
	"time"
)

// signInOrder requests n signatures in nonce order, at most atOnce at a time. It returns the
// results before the first missing one. The error says why that one is missing. It is nil if none
// is missing, or if the time for signing was over: the signed versions must be stored and sent
// first.
//
// The function sign is called by several goroutines. This goroutine renews the lease for all of
// them.
func (t *invocation) signInOrder(ctx context.Context, n, atOnce int, sign func(ctx context.Context, i int) (Signed, error)) (all []Signed, err error) {
	type answer struct {
		i      int
		signed Signed
		err    error
	}
	answers := make(chan answer)
	all = make([]Signed, n)
	began, asked, waiting, until := time.Now(), 0, 0, n // until: index of the first missing one
	for {
		for asked < until && waiting < max(atOnce, 1) && (asked == 0 || !t.isSigningTimeOver(began)) {
			if t.Timing.Lease.Short(t.state.Lease) {
				if failed := t.renewLease(ctx); failed != nil {
					until, err = asked, failed
					break
				}
			}
			call, cancel := t.state.Lease.CallContext(ctx, t.signTimeout())
			i := asked
			go func() {
				defer cancel()
				s, failed := sign(call, i)
				answers <- answer{i, s, failed}
			}()
			asked, waiting = asked+1, waiting+1
		}
		if waiting == 0 {
			return all[:min(asked, until)], err
		}
		a := <-answers
		waiting--
		if all[a.i] = a.signed; a.err != nil && a.i < until {
			until, err = a.i, a.err
		}
	}
}

// signParallelism is how many signatures of s may be requested at once. A signer outside this
// process gets one request at a time.
func (t *invocation) signParallelism(s Signer) int {
	if !s.InProcess(t.state.submitterOf()) {
		return 1
	}
	return t.worker.Limits.SignParallel
}
