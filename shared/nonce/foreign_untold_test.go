package nonce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"
)

// forgetful is a panel whose node tells of no nonce below oldest; asked counts the questions.
type forgetful struct {
	*panel
	oldest uint64
	err    error
	asked  *int
}

func (p forgetful) Taken(_ context.Context, _ Submitter, n uint64) (Taker, error) {
	if *p.asked++; n < p.oldest {
		return Taker{}, fmt.Errorf("nonce %d: %w", n, p.err)
	}
	to := Address{1}
	return Taker{Hash: Hash{0xf0, byte(n)}, BlockNumber: 95, BlockHash: block('a', 95).Hash, To: &to, ValueWei: "1"}, nil
}

func (forgetful) ReadBlocks(context.Context, BlocksQuery) (BlocksRead, error) {
	return BlocksRead{}, fmt.Errorf("no blocks: %w", ErrNotTold)
}

// However many nonces were lost of which the node cannot tell, a release judges them all: as
// not known. It does not say for ever that they are being read. A node that keeps no old
// counts, and gives no blocks, is asked about few of them.
func TestManyNoncesOfWhichTheNodeCannotTellAreJudged(t *testing.T) {
	t.Parallel()
	const lost = 3*foreignMost + 1
	for name, c := range map[string]struct {
		oldest uint64
		err    error
		most   int // questions
	}{
		"it tells of none":                     {lost, ErrNotTold, lost},
		"it tells of some":                     {lost - 60, ErrNotTold, lost},
		"it has neither old counts nor blocks": {lost, fmt.Errorf("%w: %w", ErrNoCounts, ErrNotTold), 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := workOf(1, 0)
			w.Episode, w.Protected = 1, true
			v := watching(viewOf(w, block('a', 100)), block('a', 95))
			v.FinalCount, v.Account.LatestCount = new(uint64(lost)), lost
			for n := range uint64(lost) {
				v.Receipts[Hash{0xf0, byte(n)}] = ReceiptAnswer{Answer: AnswerFound, Receipt: Receipt{TxHash: Hash{0xf0, byte(n)}, BlockNumber: 95, BlockHash: block('a', 95).Hash, Succeeded: true}}
			}
			asked := 0
			p := forgetful{&panel{ChainConnector: reader(nil), views: []View{v}, quorum: 1}, c.oldest, c.err, &asked}
			book := &evidenceBook{}
			tn := &tenure{Worker: &Worker{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Book: book}, chain: p, work: w, began: time.Now()}
			tn.Rules.RoundsEndAfter = time.Hour
			_, out, err := tn.resync(t.Context(), &Leave{Count: lost}, LostBytes{})
			if err != nil || len(out.Displaced) != lost || len(book.stored) != int(lost-c.oldest) {
				t.Errorf("nothing here wants any of them: got %v with %d lost and %d read, want %d and %d", err, len(out.Displaced), len(book.stored), lost, lost-c.oldest)
			}
			if asked > c.most {
				t.Errorf("got %d questions, want at most %d", asked, c.most)
			}
			book.open = []OpenRequest{{RequestID: "waits"}}
			var open ErrNotForeign
			tn.untold = nil
			_, _, err = tn.resync(t.Context(), &Leave{Count: lost}, LostBytes{})
			if !errors.As(err, &open) || 1+len(open.More) < int(c.oldest) {
				t.Errorf("a request waits: got %v, want each nonce that is not known", err)
			}
		})
	}
}
