package protect

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// forgetful is a panel whose node gives no consuming transaction below oldest; asked counts the
// queries.
type forgetful struct {
	*txtest.Panel
	oldest uint64
	err    error
	asked  *int
}

func (p forgetful) FindConsumingTx(_ context.Context, _ txmanager.Submitter, n uint64) (txmanager.ConsumingTx, error) {
	if *p.asked++; n < p.oldest {
		return txmanager.ConsumingTx{}, fmt.Errorf("nonce %d: %w", n, p.err)
	}
	to := eip155.Address([20]byte{1})
	return txmanager.ConsumingTx{Hash: txmanager.Hash{0xf0, byte(n)}, BlockNumber: 95, BlockHash: txtest.Block('a', 95).Hash, To: &to, ValueWei: "1"}, nil
}

func (forgetful) ReadBlocks(context.Context, txmanager.BlocksQuery) (txmanager.BlocksRead, error) {
	return txmanager.BlocksRead{}, fmt.Errorf("no blocks: %w", txmanager.ErrConsumerUnavailable)
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
		"it tells of none":                     {lost, txmanager.ErrConsumerUnavailable, lost},
		"it tells of some":                     {lost - 60, txmanager.ErrConsumerUnavailable, lost},
		"it has neither old counts nor blocks": {lost, fmt.Errorf("%w: %w", txmanager.ErrNoCounts, txmanager.ErrConsumerUnavailable), 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := txtest.StateOf(1, 0)
			w.Incident, w.Protected = 1, true
			v := txtest.Watching(txtest.ViewOf(w, txtest.Block('a', 100)), txtest.Block('a', 95))
			v.FinalCount, v.Account.LatestCount = new(uint64(lost)), lost
			for n := range uint64(lost) {
				v.Receipts[txmanager.Hash{0xf0, byte(n)}] = txmanager.ReceiptAnswer{Answer: txmanager.AnswerFound, Receipt: txmanager.Receipt{TxHash: txmanager.Hash{0xf0, byte(n)}, BlockNumber: 95, BlockHash: txtest.Block('a', 95).Hash, Succeeded: true}}
			}
			asked := 0
			p := forgetful{&txtest.Panel{ChainConnector: txtest.Reader(nil), Views: []txmanager.ChainObservation{v}, Needed: 1}, c.oldest, c.err, &asked}
			book := &evidenceStore{}
			tn := incidentOf(p, w, book)
			tn.Timing.IterationsEndAfter = time.Hour
			_, out, err := tn.planResync(t.Context(), &txmanager.ReleaseRequest{Count: lost}, txmanager.LostNonces{})
			if err != nil || len(out.Displaced) != lost || len(book.stored) != int(lost-c.oldest) {
				t.Errorf("nothing here wants any of them: got %v with %d lost and %d read, want %d and %d", err, len(out.Displaced), len(book.stored), lost, lost-c.oldest)
			}
			if asked > c.most {
				t.Errorf("got %d questions, want at most %d", asked, c.most)
			}
			book.open = []txmanager.OpenRequest{{RequestID: "waits"}}
			var open txmanager.UnnamedNonceError
			tn.unknownConsumers = nil
			_, _, err = tn.planResync(t.Context(), &txmanager.ReleaseRequest{Count: lost}, txmanager.LostNonces{})
			if !errors.As(err, &open) || 1+len(open.More) < int(c.oldest) {
				t.Errorf("a request waits: got %v, want each nonce that is not known", err)
			}
		})
	}
}
