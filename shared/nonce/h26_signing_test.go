package nonce

import (
	"context"
	"log/slog"
	"testing"
)

// signsHere signs at once, in this process.
type signsHere struct{}

func (signsHere) Sign(_ context.Context, _ Submitter, tx Unsigned) (Signed, error) {
	return Signed{Hash: versionHash(tx.Nonce, 1), Raw: []byte{1}}, nil
}
func (signsHere) InProcess(Submitter) bool { return true }

// H26: bytes must not be made and sent for a nonce above one whose handler has
// not answered yet.
func TestH26NothingIsSentAheadOfAHandler(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		made := queued(1, "pay")
		made.Handler = "pay-out"
		w := queue(workOf(2, 5), made, queued(2, "pay"))
		worker := &Worker{Signer: signsHere{}, Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler)}
		tn := &tenure{Worker: worker, chain: reader(nil), kind: KindAdvance, work: w, open: true}
		p := tn.prepare(t.Context(), viewOf(w, block('a', 100)))
		if ids := (Write{Allocate: p.allocate}).signed(); len(ids) != 0 {
			t.Errorf("allocated %s: got %v signed and sent in the same round, want none: nonce 5 has no bytes", outline(p), ids)
		}
	})
}

// H26: nothing must be signed, and then sent, above a nonce that cannot be signed
// or that no node holds.
func TestH26NothingIsSignedAheadOfWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		unreadable, waits := bare(5), bare(5)
		unreadable.Payload = []byte("junk")
		waits.Handler = "of another version"
		refused := submitted(5) // the node had no room; its next attempt is to come
		for name, low := range map[string]Tx{"a payload that cannot be read": unreadable, "a handler that waits": waits, "refused by the node": refused, "STUCK": stuck(5)} {
			w := workOf(2, 7, low, bare(6))
			jobs, _ := rulesOf(3).toSign(w, reader(nil), viewOf(w, block('a', 100)), map[string]made{"tx-5": {wait: "no handler in this process"}})
			for _, job := range jobs {
				t.Errorf("%s: got nonce %d signed, to be sent ahead of nonce 5; want it to wait", name, *job.tx.Nonce)
			}
		}
	})
}
