package nonce

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

// slow is a signer elsewhere, or one whose bytes nobody else sees, that takes its time.
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

// stores keeps what is written, and says that all of it was.
type stores struct {
	Book
	writes *[]Write
}

func (s stores) Write(_ context.Context, w Write) (Written, error) {
	*s.writes = append(*s.writes, w)
	return Written{Moved: len(w.Moves), Allocated: len(w.Allocate)}, nil
}

// A slow signer must not use up the invocation on a wide window: what it has signed is
// stored and sent, the rest is signed in the next round, which is at once.
func TestSlowSignerSignsWhatARoundCanHold(t *testing.T) {
	t.Parallel()
	const window = 8
	frozen(t, func(t *testing.T) {
		rules := rulesOf(3)
		rules.SignTimeout = 5 * time.Second
		var asked []uint64
		var queue8 []Tx
		for seq := range int64(window) {
			queue8 = append(queue8, queued(seq+1, "pay"))
		}
		w := queue(workOf(window, 5), queue8...)
		worker := &Worker{Signer: slow{2 * time.Second, true, &asked}, Rules: rules, Log: slog.New(slog.DiscardHandler)}
		tn := &tenure{Worker: worker, chain: reader(nil), kind: KindAdvance, work: w, open: true}
		p := tn.prepare(t.Context(), viewOf(w, block('a', 100)))
		if len(asked) != 3 || len(p.allocate) != 3 || len(p.moves) != 0 {
			t.Errorf("of 8, by 2 s each, 5 s at most: got nonces %v asked for, %s; want the first 3, allocated with their bytes, and nothing said of the rest", asked, outline(p))
		}
		if after := w.with(Write{Lease: w.Lease, Allocate: p.allocate}); len(after.Queue) != window-3 {
			t.Errorf("queue after it: got %d, want 5", len(after.Queue))
		}
	})
	frozen(t, func(t *testing.T) {
		rules := rulesOf(3)
		rules.SignTimeout = 5 * time.Second
		var asked []uint64
		var writes []Write
		var held []Tx
		for n := range uint64(window) {
			held = append(held, bare(5+n))
		}
		w := workOf(window, 5+window, held...)
		worker := &Worker{Signer: slow{2 * time.Second, false, &asked}, Book: stores{writes: &writes}, Rules: rules, Log: slog.New(slog.DiscardHandler)}
		tn := &tenure{Worker: worker, chain: reader(nil), kind: KindAdvance, work: w}
		ids, err := tn.signDue(t.Context(), viewOf(w, block('a', 100)))
		if err != nil || len(asked) != 3 || len(ids) != 3 || len(writes) != 1 || len(writes[0].Store) != 3 || len(writes[0].Moves) != 0 {
			t.Errorf("of 8, by 2 s each, 5 s at most: got nonces %v asked for, %v to be sent, %v; want the first 3, stored in one write", asked, ids, err)
		}
		for i, x := range tn.work.Unsettled[:len(ids)] { // as a node has them then
			tn.work.Unsettled[i] = tn.Rules.sent(x, SendResult{Class: SendAccepted}, block('a', 100), w.now())
		}
		if !tn.Rules.due(tn.work).advance {
			t.Error("the rest: got it left for later, want it due at once")
		}
	})
}
