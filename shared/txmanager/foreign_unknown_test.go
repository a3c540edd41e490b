package txmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"
)

// forgetful is a panel whose node gives no consuming transaction below oldest; asked counts the
// queries.
type forgetful struct {
	*panel
	oldest uint64
	err    error
	asked  *int
}

func (p forgetful) FindConsumingTx(_ context.Context, _ Submitter, n uint64) (ConsumingTx, error) {
	if *p.asked++; n < p.oldest {
		return ConsumingTx{}, fmt.Errorf("nonce %d: %w", n, p.err)
	}
	to := Address{1}
	return ConsumingTx{Hash: Hash{0xf0, byte(n)}, BlockNumber: 95, BlockHash: block('a', 95).Hash, To: &to, ValueWei: "1"}, nil
}

func (forgetful) ReadBlocks(context.Context, BlocksQuery) (BlocksRead, error) {
	return BlocksRead{}, fmt.Errorf("no blocks: %w", ErrConsumerUnavailable)
}

// However many lost nonces the node cannot answer, a release decides about all of them as unknown.
// It does not report forever that they are being read. A node without old counts and blocks is
// queried about few of them.
func TestReleaseDecidesAboutManyUnknownNonces(t *testing.T) {
	t.Parallel()
	const lost = 3*maxForeignReads + 1
	for name, c := range map[string]struct {
		oldest uint64
		err    error
		most   int // queries
	}{
		"it tells of none":                     {lost, ErrConsumerUnavailable, lost},
		"it tells of some":                     {lost - 60, ErrConsumerUnavailable, lost},
		"it has neither old counts nor blocks": {lost, fmt.Errorf("%w: %w", ErrNoCounts, ErrConsumerUnavailable), 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := stateOf(1, 0)
			w.Incident, w.Protected = 1, true
			v := watching(viewOf(w, block('a', 100)), block('a', 95))
			v.FinalCount, v.Account.LatestCount = new(uint64(lost)), lost
			for n := range uint64(lost) {
				v.Receipts[Hash{0xf0, byte(n)}] = ReceiptAnswer{Answer: AnswerFound, Receipt: Receipt{TxHash: Hash{0xf0, byte(n)}, BlockNumber: 95, BlockHash: block('a', 95).Hash, Succeeded: true}}
			}
			asked := 0
			p := forgetful{&panel{ChainConnector: reader(nil), views: []ChainObservation{v}, quorum: 1}, c.oldest, c.err, &asked}
			book := &evidenceStore{}
			tn := &incident{leaseSession: &leaseSession{Service: &Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Store: book, Timing: testTiming}, chain: p, state: w, began: time.Now()}}
			tn.Timing.IterationsEndAfter = time.Hour
			_, out, err := tn.planResync(t.Context(), &ReleaseRequest{Count: lost}, LostNonces{})
			if err != nil || len(out.Displaced) != lost || len(book.stored) != int(lost-c.oldest) {
				t.Errorf("nothing here wants any of them: got %v with %d lost and %d read, want %d and %d", err, len(out.Displaced), len(book.stored), lost, lost-c.oldest)
			}
			if asked > c.most {
				t.Errorf("got %d questions, want at most %d", asked, c.most)
			}
			book.open = []OpenRequest{{RequestID: "waits"}}
			var open UnnamedNonceError
			tn.unknownConsumers = nil
			_, _, err = tn.planResync(t.Context(), &ReleaseRequest{Count: lost}, LostNonces{})
			if !errors.As(err, &open) || 1+len(open.More) < int(c.oldest) {
				t.Errorf("a request waits: got %v, want each nonce that is not known", err)
			}
		})
	}
}
