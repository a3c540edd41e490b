package protect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/quorum"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
)

// reorgedFinalBlocks are the final blocks that the node's chain lacks. A height without an answer
// counts too. Its callers know already that the highest block was reorged out, or have required an
// answer for every height.
func reorgedFinalBlocks(w txmanager.SubmitterState, v txmanager.ChainObservation) (hashes []txmanager.Hash) {
	for _, h := range w.FinalBlocks {
		if v.HashesAt[h.Number] != h.Hash {
			hashes = append(hashes, h.Hash)
		}
	}
	return hashes
}

// maxResentFinals bounds the final transactions sent again in one iteration.
const maxResentFinals = 500

// ResendReorgedFinals sends the same versions that were final and reorged out. No other version
// can consume their nonces, so their states stay unchanged.
func ResendReorgedFinals(ctx context.Context, t *session.Session, v txmanager.ChainObservation) error {
	finals, err := t.Store.FinalTransactions(ctx, t.State.Submitter(), reorgedFinalBlocks(t.State, v))
	if err != nil {
		return fmt.Errorf("find the final transactions that were reorged out: %w", err)
	}
	finals = slices.DeleteFunc(finals, func(f txmanager.FinalTx) bool { return f.Nonce < v.Account.LatestCount })
	finals = finals[:min(len(finals), maxResentFinals)]
	if len(finals) == 0 {
		return nil
	}
	raws := make([][]byte, len(finals))
	for i, f := range finals {
		raws[i] = f.Raw
	}
	began := time.Now()
	return t.CallOutside(ctx, func(ctx context.Context) error {
		for i, res := range t.Chain.Send(ctx, raws) {
			t.Log.WarnContext(ctx, "final transaction sent again: a reorg removed its block",
				append(t.LogAttrs(), "txId", finals[i].ID, "txHash", finals[i].Hash.String(), "result", res.Class.String())...)
			t.WatchBroadcast(ctx, began, txmanager.Tx{ID: finals[i].ID, Nonce: &finals[i].Nonce, Versions: []txmanager.Hash{finals[i].Hash}}, res, true)
		}
		return nil
	})
}

// recheckFinalBlocks compares every final block with the chain. If some were reorged out, it
// returns the blocks that are canonical now, including those that contain their transactions
// again. missing are the transactions that did not return.
func (t *incident) recheckFinalBlocks(ctx context.Context) (blocks []txmanager.Header, missing []txmanager.FinalTx, err error) {
	q := txmanager.ChainQuery{Submitter: t.State.Submitter(), Account: true, HashesAt: rules.HeightsOf(t.State.FinalBlocks)}
	if len(q.HashesAt) == 0 {
		return nil, nil, nil
	}
	v, lost, err := t.queryFinalBlocks(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	var finals []txmanager.FinalTx
	if len(lost) > 0 {
		if finals, err = t.Store.FinalTransactions(ctx, t.State.Submitter(), lost); err != nil {
			return nil, nil, fmt.Errorf("find the final transactions that were reorged out: %w", err)
		}
		for _, f := range finals {
			q.Receipts = append(q.Receipts, f.Hash)
		}
		var again []txmanager.Hash
		if v, again, err = t.queryFinalBlocks(ctx, q); err != nil { // blocks and receipts come from one node
			return nil, nil, err
		}
		if !slices.Equal(lost, again) {
			return nil, nil, errors.New("the final blocks changed between two queries: ask again")
		}
	}
	what := fmt.Sprintf("%d of the last %d final blocks are gone", len(lost), len(t.State.FinalBlocks))
	if err := quorum.Require(ctx, t.Session, q, v, what, agreesOnFinals(t.State, v, lost)); err != nil || len(lost) == 0 {
		return nil, nil, err
	}
	blocks = slices.DeleteFunc(slices.Clone(t.State.FinalBlocks), func(h txmanager.Header) bool { return slices.Contains(lost, h.Hash) })
	for _, f := range finals {
		a := v.Receipts[f.Hash]
		if a.Answer == txmanager.AnswerUnknown {
			return nil, nil, fmt.Errorf("the node did not say whether it has transaction %s", f.Hash)
		}
		if a.Answer != txmanager.AnswerFound || a.Receipt.Succeeded != f.Succeeded {
			missing = append(missing, f)
			continue
		}
		blocks = append(blocks, txmanager.Header{Number: a.Receipt.BlockNumber, Hash: a.Receipt.BlockHash})
	}
	return append([]txmanager.Header{}, t.Rules.RememberFinalBlocks(blocks, nil)...), missing, nil
}

// queryFinalBlocks queries the final blocks and lists those that were reorged out.
func (t *incident) queryFinalBlocks(ctx context.Context, q txmanager.ChainQuery) (v txmanager.ChainObservation, lost []txmanager.Hash, err error) {
	if v, err = t.Query(ctx, q); err != nil {
		return v, nil, fmt.Errorf("query the final blocks: %w", err)
	}
	if len(v.HashesAt) < len(q.HashesAt) {
		return v, nil, fmt.Errorf("the node shows %d of the %d heights with final blocks: it lags, or did not answer", len(v.HashesAt), len(q.HashesAt))
	}
	return v, reorgedFinalBlocks(t.State, v), nil
}

// agreesOnFinals votes on whether the same final blocks are missing as in v, and the same receipts
// exist.
func agreesOnFinals(w txmanager.SubmitterState, v txmanager.ChainObservation, lost []txmanager.Hash) func(txmanager.ChainObservation) quorum.Vote {
	return func(o txmanager.ChainObservation) quorum.Vote {
		all := quorum.Agrees
		for _, h := range w.FinalBlocks {
			said := quorum.AgreesOnBlock(h)(o)
			if slices.Contains(lost, h.Hash) {
				said = quorum.Negate(quorum.AgreesOnBlock(h))(o)
			}
			switch said {
			case quorum.Disagrees:
				return quorum.Disagrees
			case quorum.Abstains:
				all = quorum.Abstains
			}
		}
		for hash, a := range v.Receipts {
			switch b := o.Receipts[hash]; {
			case b.Answer == txmanager.AnswerUnknown, b.Answer == txmanager.AnswerNotFound && o.Lagging:
				all = quorum.Abstains
			case a.Answer != b.Answer, a.Answer == txmanager.AnswerFound && (a.Receipt.BlockHash != b.Receipt.BlockHash || a.Receipt.Succeeded != b.Receipt.Succeeded):
				return quorum.Disagrees
			}
		}
		return all
	}
}
