package txmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxWatched bounds the final blocks remembered for one submitter.
const maxWatched = 100

// FinalTx is a final transaction that consumed its nonce, with the mined version.
type FinalTx struct {
	ID        string `json:"txId"`
	Nonce     uint64 `json:"nonce"`
	Hash      Hash   `json:"hash"`
	Raw       []byte `json:"-"`
	Succeeded bool   `json:"succeeded"`
}

// finalBlockStatus is the status of the highest remembered final block in an observation.
type finalBlockStatus int

// The zero status proves nothing: the node lags, or gave no answer.
const (
	finalBlockUnknown finalBlockStatus = iota
	finalBlockCanonical
	finalBlockReorged // the node is past the height and has another block there
)

// lastFinal is the highest remembered block of a final transaction; ok is false without one.
// Blocks name their parents, and each was compared when the next was added. If the highest is
// canonical, so are those below it.
func (w SubmitterState) lastFinal() (h Header, ok bool) {
	if len(w.FinalBlocks) == 0 {
		return h, false
	}
	return w.FinalBlocks[len(w.FinalBlocks)-1], true
}

// finalBlockStatusIn compares the highest final block with the node's chain.
func finalBlockStatusIn(w SubmitterState, v ChainObservation) finalBlockStatus {
	last, ok := w.lastFinal()
	if !ok {
		return finalBlockCanonical
	}
	switch hash, seen := v.HashesAt[last.Number]; {
	case !seen:
		return finalBlockUnknown
	case hash == last.Hash:
		return finalBlockCanonical
	case v.Head.Number > last.Number:
		return finalBlockReorged
	}
	return finalBlockUnknown
}

// reorgedFinalBlocks are the final blocks that the node's chain lacks. A height without an answer
// counts too. Its callers know already that the highest block was reorged out, or have required an
// answer for every height.
func reorgedFinalBlocks(w SubmitterState, v ChainObservation) (hashes []Hash) {
	for _, h := range w.FinalBlocks {
		if v.HashesAt[h.Number] != h.Hash {
			hashes = append(hashes, h.Hash)
		}
	}
	return hashes
}

// isFinalBlockReorged reports whether PROTECT is open because a final block was reorged out.
func (w SubmitterState) isFinalBlockReorged() bool {
	return w.Evidence != nil && w.Evidence.Kind == FinalBlockReorged
}

// watchedHeights are the heights to compare: that of the highest final block, or all of them in
// PROTECT.
func (w SubmitterState) watchedHeights() (heights []uint64) {
	if !w.Protected {
		if last, ok := w.lastFinal(); ok {
			heights = append(heights, last.Number)
		}
		return heights
	}
	return heightsOf(w.FinalBlocks)
}

// heightsOf lists the heights of ascending blocks, each once. After a reorg two blocks of one
// height may be remembered.
func heightsOf(blocks []Header) (heights []uint64) {
	for _, h := range blocks {
		heights = append(heights, h.Number)
	}
	return slices.Compact(heights)
}

// rememberFinalBlocks adds the blocks that became final to those kept, and drops those deeper than
// reorg.watchDepth.
func (r Rules) rememberFinalBlocks(kept, fresh []Header) []Header {
	all := slices.Concat(kept, fresh)
	slices.SortFunc(all, func(a, b Header) int { return cmp.Compare(a.Number, b.Number) })
	all = slices.CompactFunc(all, func(a, b Header) bool { return a.Number == b.Number && a.Hash == b.Hash })
	if len(all) == 0 {
		return nil
	}
	top := all[len(all)-1].Number
	all = slices.DeleteFunc(all, func(h Header) bool { return h.Number+r.WatchDepth < top })
	return all[max(0, len(all)-maxWatched):]
}

// maxResentFinals bounds the final transactions sent again in one iteration.
const maxResentFinals = 500

// resendReorgedFinals sends the same versions that were final and reorged out. No other version
// can consume their nonces, so their states stay unchanged.
func (t *leaseSession) resendReorgedFinals(ctx context.Context, v ChainObservation) error {
	finals, err := t.Store.FinalTransactions(ctx, t.state.submitterOf(), reorgedFinalBlocks(t.state, v))
	if err != nil {
		return fmt.Errorf("find the final transactions that were reorged out: %w", err)
	}
	finals = slices.DeleteFunc(finals, func(f FinalTx) bool { return f.Nonce < v.Account.LatestCount })
	finals = finals[:min(len(finals), maxResentFinals)]
	if len(finals) == 0 {
		return nil
	}
	raws := make([][]byte, len(finals))
	for i, f := range finals {
		raws[i] = f.Raw
	}
	began := time.Now()
	return t.callOutside(ctx, func(ctx context.Context) error {
		for i, res := range t.chain.Send(ctx, raws) {
			t.Log.WarnContext(ctx, "final transaction sent again: a reorg removed its block",
				append(t.logAttrs(), "txId", finals[i].ID, "txHash", finals[i].Hash.String(), "result", res.Class.String())...)
			t.watchBroadcast(ctx, began, Tx{ID: finals[i].ID, Nonce: &finals[i].Nonce, Versions: []Hash{finals[i].Hash}}, res, true)
		}
		return nil
	})
}

// FinalsMissingError reports a resume while final transactions are not back on the chain.
type FinalsMissingError struct{ Missing []FinalTx }

// Error gives their number and the first of them.
func (e FinalsMissingError) Error() string {
	return fmt.Sprintf("%d final transactions are not on the chain again, the first with nonce %d, hash %s",
		len(e.Missing), e.Missing[0].Nonce, e.Missing[0].Hash)
}

// recheckFinalBlocks compares every final block with the chain. If some were reorged out, it
// returns the blocks that are canonical now, including those that contain their transactions
// again. missing are the transactions that did not return.
func (t *incident) recheckFinalBlocks(ctx context.Context) (blocks []Header, missing []FinalTx, err error) {
	q := ChainQuery{Submitter: t.state.submitterOf(), Account: true, HashesAt: heightsOf(t.state.FinalBlocks)}
	if len(q.HashesAt) == 0 {
		return nil, nil, nil
	}
	v, lost, err := t.queryFinalBlocks(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	var finals []FinalTx
	if len(lost) > 0 {
		if finals, err = t.Store.FinalTransactions(ctx, t.state.submitterOf(), lost); err != nil {
			return nil, nil, fmt.Errorf("find the final transactions that were reorged out: %w", err)
		}
		for _, f := range finals {
			q.Receipts = append(q.Receipts, f.Hash)
		}
		var again []Hash
		if v, again, err = t.queryFinalBlocks(ctx, q); err != nil { // blocks and receipts come from one node
			return nil, nil, err
		}
		if !slices.Equal(lost, again) {
			return nil, nil, errors.New("the final blocks changed between two queries: ask again")
		}
	}
	if err := t.requireQuorum(ctx, q, v, fmt.Sprintf("%d of the last %d final blocks are gone", len(lost), len(t.state.FinalBlocks)), agreesOnFinals(t.state, v, lost)); err != nil || len(lost) == 0 {
		return nil, nil, err
	}
	blocks = slices.DeleteFunc(slices.Clone(t.state.FinalBlocks), func(h Header) bool { return slices.Contains(lost, h.Hash) })
	for _, f := range finals {
		a := v.Receipts[f.Hash]
		if a.Answer == AnswerUnknown {
			return nil, nil, fmt.Errorf("the node did not say whether it has transaction %s", f.Hash)
		}
		if a.Answer != AnswerFound || a.Receipt.Succeeded != f.Succeeded {
			missing = append(missing, f)
			continue
		}
		blocks = append(blocks, Header{Number: a.Receipt.BlockNumber, Hash: a.Receipt.BlockHash})
	}
	return append([]Header{}, t.Rules.rememberFinalBlocks(blocks, nil)...), missing, nil
}

// queryFinalBlocks queries the final blocks and lists those that were reorged out.
func (t *incident) queryFinalBlocks(ctx context.Context, q ChainQuery) (v ChainObservation, lost []Hash, err error) {
	if v, err = t.query(ctx, q); err != nil {
		return v, nil, fmt.Errorf("query the final blocks: %w", err)
	}
	if len(v.HashesAt) < len(q.HashesAt) {
		return v, nil, fmt.Errorf("the node shows %d of the %d heights with final blocks: it lags, or did not answer", len(v.HashesAt), len(q.HashesAt))
	}
	return v, reorgedFinalBlocks(t.state, v), nil
}

// agreesOnFinals votes on whether the same final blocks are missing as in v, and the same receipts
// exist.
func agreesOnFinals(w SubmitterState, v ChainObservation, lost []Hash) func(ChainObservation) vote {
	return func(o ChainObservation) vote {
		all := agrees
		for _, h := range w.FinalBlocks {
			said := agreesOnBlock(h)(o)
			if slices.Contains(lost, h.Hash) {
				said = negate(agreesOnBlock(h))(o)
			}
			switch said {
			case disagrees:
				return disagrees
			case abstains:
				all = abstains
			}
		}
		for hash, a := range v.Receipts {
			switch b := o.Receipts[hash]; {
			case b.Answer == AnswerUnknown, b.Answer == AnswerNotFound && o.Lagging:
				all = abstains
			case a.Answer != b.Answer, a.Answer == AnswerFound && (a.Receipt.BlockHash != b.Receipt.BlockHash || a.Receipt.Succeeded != b.Receipt.Succeeded):
				return disagrees
			}
		}
		return all
	}
}
