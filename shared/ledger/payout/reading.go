package payout

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/conservation"
	checks "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// ChainReader reads the payments of all payers from final blocks of their chains, and evaluates
// them. Each call continues after the last one. It implements [conservation.Payments].
type ChainReader struct {
	Book    *checks.Book // stores the payments
	ChainOf func(payer txmanager.Submitter) (PayerChain, error)

	Blocks  uint64        // maximum of blocks in one step
	History time.Duration // how far back a new payer is read; 0: to its registration
	Time    time.Duration // maximum time that one call reads

	Log *slog.Logger
	At  func(point string) // called between steps; nil outside tests
}

var _ conservation.Payments = (*ChainReader)(nil)

// wholeBlocks is how many blocks one step reads with all their transactions, if the node does not
// answer queries for old transaction counts.
const wholeBlocks = 100

// registrationMargin covers the difference between the database's clock and the chain's.
const registrationMargin = 10 * time.Minute

// Check implements [conservation.Payments].
func (r *ChainReader) Check(ctx context.Context, full bool) ([]conservation.Finding, error) {
	if full {
		if err := r.Book.Reopen(ctx); err != nil {
			return nil, err
		}
	}
	payers, err := r.Book.Readings(ctx, r.History)
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(r.Time)
	for i, payer := range payers {
		share := time.Until(end) / time.Duration(len(payers)-i)
		if share <= 0 {
			break // the payers that were read longest ago came first
		}
		turn, cancel := context.WithTimeout(ctx, share)
		err := r.read(turn, payer)
		cancel()
		if err != nil {
			r.Log.WarnContext(ctx, "the payments of a payer were not all read from its chain: the next check continues", "submitter", payer.Submitter, "error", err.Error())
		}
	}
	return r.Book.EvaluateChain(ctx)
}

// read makes steps until all final blocks are read or the time is over.
func (r *ChainReader) read(ctx context.Context, at conservation.ChainReading) error {
	submitter := txmanager.Submitter(at.Submitter)
	payments, err := r.ChainOf(submitter)
	if err != nil {
		return err
	}
	q := chain.PaymentsQuery{Payer: submitter.Address(), ByTag: payments.Finality == txmanager.ByFinalized, Depth: payments.Confirmations, MaxBlocks: wholeBlocks}
	for _, token := range at.Tokens {
		q.Tokens = append(q.Tokens, txmanager.Address(token))
	}
	if at.New {
		if at, err = r.begin(ctx, payments, q, at); err != nil {
			return err
		}
	}
	for more := true; more; {
		if at, more, err = r.step(ctx, payments, q, at); err != nil {
			return err
		}
		if r.At != nil {
			r.At("payments.stored")
		}
	}
	return nil
}

func (r *ChainReader) begin(ctx context.Context, chain PayerChain, q chain.PaymentsQuery, at conservation.ChainReading) (conservation.ChainReading, error) {
	start, err := chain.PaymentsStart(ctx, q, time.Unix(at.Registered, 0).Add(-registrationMargin))
	if err != nil {
		return at, err
	}
	at.Start, at.Block, at.BlockHash, at.Sent, at.New = start.Block, start.Block, start.Hash.String(), start.Sent, false
	return at, r.Book.BeginReading(ctx, at)
}

// step reads some blocks and stores their payments.
func (r *ChainReader) step(ctx context.Context, chain PayerChain, q chain.PaymentsQuery, at conservation.ChainReading) (next conservation.ChainReading, more bool, err error) {
	if q.AfterHash, err = txmanager.ParseHash(at.BlockHash); err != nil {
		return at, false, err
	}
	q.After, q.Sent = at.Block, at.Sent
	p, err := r.query(ctx, chain, q)
	if err != nil {
		return at, false, err
	}
	if p.WentBack {
		return at, false, r.recordWentBack(ctx, chain, q, at, p)
	}
	next = at
	next.Block, next.BlockHash, next.Sent = p.End, p.EndHash.String(), p.Sent
	stored, err := r.Book.StoreReading(ctx, at, next, p.Final, p.Found)
	return next, stored && p.End > at.Block && p.End < p.Final, err
}

// query reads payments, with fewer blocks after each error: many nodes bound the range of one
// answer.
func (r *ChainReader) query(ctx context.Context, chain PayerChain, q chain.PaymentsQuery) (p chain.Payments, err error) {
	for blocks := max(r.Blocks, 1); ; blocks /= 8 {
		q.UpTo = q.After + max(blocks, 1)
		if p, err = chain.Payments(ctx, q); err == nil || blocks <= 1 || ctx.Err() != nil {
			return p, err
		}
	}
}

func (r *ChainReader) recordWentBack(ctx context.Context, chain PayerChain, q chain.PaymentsQuery, at conservation.ChainReading, p chain.Payments) error {
	evidence, err := json.Marshal(map[string]any{"block": at.Block, "was": at.BlockHash, "is": p.EndHash.String(), "node": p.Node})
	if err != nil {
		return err
	}
	q.After, q.AfterHash, q.UpTo = at.Start, txmanager.Hash{}, at.Start
	start, err := chain.Payments(ctx, q)
	if err != nil {
		return err
	}
	return r.Book.GoBack(ctx, at, start.EndHash.String(), evidence)
}
