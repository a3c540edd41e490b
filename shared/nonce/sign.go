package nonce

import (
	"context"
	"time"
)

// signAll asks for n signatures, in the order of their nonces, at most atOnce at a time, and
// returns those that it has without a hole before them. err says why the next one is
// missing. It is nil where all are there, or where the time for one iteration was over: what
// is signed is to be stored and sent before more is.
//
// sign is called by several goroutines. This one renews the lease for all of them.
func (t *tenure) signAll(ctx context.Context, n, atOnce int, sign func(ctx context.Context, i int) (Signed, error)) (all []Signed, err error) {
	type answer struct {
		i      int
		signed Signed
		err    error
	}
	answers := make(chan answer)
	all = make([]Signed, n)
	began, asked, waiting, until := time.Now(), 0, 0, n // until: the first that is missing
	for {
		for asked < until && waiting < max(atOnce, 1) && (asked == 0 || !t.signedLong(began)) {
			if t.Rules.Lease.Short(t.work.Lease) {
				if failed := t.renew(ctx); failed != nil {
					until, err = asked, failed
					break
				}
			}
			call, cancel := t.work.Lease.CallContext(ctx, t.signWithin())
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

// atOnce is how many signatures of s may be asked for at a time. A signer whose bytes could
// be seen outside is asked for one after the other.
func (t *tenure) atOnce(s SubmitterSignService) int {
	if !s.InProcess(t.work.submitter()) {
		return 1
	}
	return t.Rules.SignParallel
}
