package txmanager

import (
	"context"
	"time"
)

// signInOrder asks for n signatures, in the order of their nonces, at most signParallelism at a time, and
// returns those that it has without a hole before them. err says why the next one is
// missing. It is nil where all are there, or where the time for one iteration was over: what
// is signed is to be stored and sent before more is.
//
// sign is called by several goroutines. This one renews the lease for all of them.
func (t *leaseSession) signInOrder(ctx context.Context, n, atOnce int, sign func(ctx context.Context, i int) (Signed, error)) (all []Signed, err error) {
	type answer struct {
		i      int
		signed Signed
		err    error
	}
	answers := make(chan answer)
	all = make([]Signed, n)
	began, asked, waiting, until := time.Now(), 0, 0, n // until: the first that is missing
	for {
		for asked < until && waiting < max(atOnce, 1) && (asked == 0 || !t.isSigningTimeOver(began)) {
			if t.Rules.Lease.Short(t.state.Lease) {
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

// signParallelism is how many signatures of s may be asked for at a time. A signer whose bytes could
// be seen outside is asked for one after the other.
func (t *leaseSession) signParallelism(s Signer) int {
	if !s.InProcess(t.state.submitterOf()) {
		return 1
	}
	return t.Rules.SignParallel
}
